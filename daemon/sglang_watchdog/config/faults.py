"""One thing that is wrong in a file: what, where and what to do, shown the way compilers do."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

SHOWN_WIDTH = 110  # of a source line, so that one long line does not push the caret off the screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`line` and `column` count from 1, 0 is the whole file; `excerpt` is the line, `note` stands behind the caret."""

    path: str
    message: str
    code: str = ""  # SIG012, CFG002 …
    line: int = 0
    column: int = 0
    width: int = 1
    note: str = ""
    help: str = ""
    excerpt: str = ""
    is_warning: bool = False  # worth mending, but the file is usable

    @property
    def where(self) -> str:
        """`file:line:column`, as far as it is known."""
        return ":".join([self.path, *(str(number) for number in (self.line, self.column) if number)])

    def render(self) -> str:
        """Heading, source line with caret, and what to do; no trailing newline."""
        lines = [f"{self.where}: {self.code + ' ' if self.code else ''}{self.message}"]
        if self.excerpt:
            lines += self._pointer()
        elif self.note:
            lines.append(f"      {self.note}")
        lines += [f"      {text}" for text in self.help.splitlines()]
        return "\n".join(lines)

    def _pointer(self) -> list[str]:
        gutter = f"{self.line:5} | "
        start = max(0, self.column - 1 - SHOWN_WIDTH // 2) if len(self.excerpt) > SHOWN_WIDTH else 0
        shown = self.excerpt[start : start + SHOWN_WIDTH]
        width = max(1, min(self.width, start + len(shown) - self.column + 1))
        caret = " " * (len(gutter) + self.column - 1 - start) + "^" * width
        return [gutter + shown.rstrip(), f"{caret} {self.note}".rstrip()]


def render_all(faults: Iterable[Fault]) -> str:
    """Every fault, in the order of files and lines."""
    return "\n".join(fault.render() for fault in sorted(faults, key=lambda f: (f.path, f.line, f.column, f.code)))


def nearest(word: str, valid: Iterable[str]) -> str:
    """A sentence that names the nearest valid word, or the valid ones where they are few, or nothing."""
    known = sorted({str(name) for name in valid})
    close = get_close_matches(str(word), known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean `{close[0]}`?"
    return f"Valid here: {', '.join(known)}." if known and len(known) <= 40 else ""
