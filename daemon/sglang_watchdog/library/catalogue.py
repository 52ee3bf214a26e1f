"""The table of signatures in signatures/README.md, written from the files."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..config.faults import Fault
from ..model.series import FUNCTIONS, GPU_SERIES, LOG_SERIES
from .files import SignatureFile, shown_name
from .load import Loaded

BEGIN: Final = "<!-- catalogue: written by `sglang-watchdog signatures lock`, do not edit -->"
END: Final = "<!-- end of catalogue -->"
WORDS_BEGIN: Final = "<!-- series and functions: written by `sglang-watchdog signatures lock`, do not edit -->"
WORDS_END: Final = "<!-- end of series and functions -->"
README: Final = "README.md"


def catalogue(loaded: Loaded) -> str:
    """The table, an area at a time, with counts on top."""
    files = sorted(loaded.files, key=lambda file: (file.area, file.body.id))
    parts = [_counts(files), ""]
    for area in sorted({file.area for file in files}):
        inside = [file for file in files if file.area == area]
        parts += [f"### {area} ({len(inside)})", "", "| signature | what it says | topic | kind | severity | releases |",
                  "|---|---|---|---|---|---|", *(_row(file) for file in inside), ""]  # fmt: skip
    return "\n".join(parts)


def _counts(files: list[SignatureFile]) -> str:
    kinds = Counter(str(file.body.kind) for file in files)
    topics = {file.body.topic for file in files}
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{len(files)} signatures ({listed}) on {len(topics)} topics."


def _row(file: SignatureFile) -> str:
    body, signature = file.body, file.signature
    status = "" if body.status == "stable" else f" ({body.status})"
    cells = (f"[{body.id}]({file.path.relative_to(file.root).as_posix()}){status}", body.title, f"`{body.topic}`", str(body.kind),
             str(signature.severity), body.releases or "any")  # fmt: skip
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def words() -> str:
    """The closed lists that `let:` chooses from, as tables."""
    lists = (("function", FUNCTIONS), ("series of the log", LOG_SERIES), ("series of a GPU", GPU_SERIES))
    return "\n\n".join(
        "\n".join([f"| {title} | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in listed.items())]) for title, listed in lists
    )


def with_catalogue(text: str, table: str) -> str:
    """The README with its two generated parts replaced.

    Raises:
        ValueError: the marks between which one of them stands are missing.
    """
    return _between(_between(text, WORDS_BEGIN, WORDS_END, words()), BEGIN, END, table)


def _between(text: str, begin: str, end: str, content: str) -> str:
    if begin not in text or end not in text:
        raise ValueError(f"{README} needs the lines `{begin}` and `{end}`")
    return f"{text[: text.index(begin)]}{begin}\n\n{content}\n{text[text.index(end) :]}"


def check_catalogue(loaded: Loaded, root: Path) -> list[Fault]:
    """A fault if the table in the README is not what the files say."""
    path = root / README
    try:
        text = path.read_text("utf-8")
        current = with_catalogue(text, catalogue(loaded)) == text
    except (OSError, ValueError) as error:
        return [Fault(path=shown_name(path), code="SIG081", message=str(error))]
    if current:
        return []
    return [
        Fault(
            path=shown_name(path),
            code="SIG081",
            message="the table of signatures is not what the files say",
            help="Run `sglang-watchdog signatures lock`.",
        )
    ]


def topics_without(loaded: Loaded, ignore: Iterable[str] = ()) -> list[str]:
    """Topics that no signature names, for the counts that `signatures list` prints."""
    named = {file.body.topic for file in loaded.files if file.body.status != "retired"}
    skipped = set(ignore)
    return [topic for topic in loaded.library.topics if topic not in named and topic not in skipped]
