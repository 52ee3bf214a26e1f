"""A first file for a new signature: valid from the start, with the places to fill in marked."""

from pathlib import Path
from typing import Final

from ..model.words import Kind

LINE: Final = "The text it looks for"
EXPLANATION: Final = "What it means and why it costs, in two or three sentences."
REMEDY: Final = "1. The most likely remedy."
INVENTED: Final = "replace it by a line of a real log, or one filled from SGLang's own format string"

SAID: Final = """match:
  any_of:
    # The beginning of the message, behind SGLang's `[time ranks] `; for lines without it: undated: true.
    - {{starts: "{line}", level: warning}}
"""
SILENT: Final = """await:                             # every wording of the line that should come
  any_of:
    - {{starts: "{line}", level: info}}
absence_valid_only_if:
  until: ready                     # overdue after this milestone
  grace: 10s
  witness: {{starts: "Load weight end", level: info}}      # proves that such lines reach this log
  opportunity: {{starts: "Prefill batch", level: info}}    # proves that the code ran
"""
WINDOWED: Final = """let:
  power: "median(power_ratio, 15s)"
when:
  - "w.power < 0.45"
needs: [ready, steady]
"""
HEAD: Final = f"""id: {{id}}
revision: 1
status: draft                      # draft, trial, stable, retired
kind: {{kind}}
topic: {{topic}}
# severity: warning                # default: the topic's
releases: ">={{first}},<={{last}}"     # releases whose sources you read; elsewhere the verdict is unknown
title: {{title}}
explanation: |
  {EXPLANATION}
remediation: |
  {REMEDY}
references: []
"""
TAIL: Final = f"""examples:
  - name: {{fires}}
    from: {{{{synthetic: "{INVENTED}"}}}}
    replay: |
      0s   server_args=ServerArgs(model_path='m', tp_size=2)
      9s   [TP0] {{line}}
    then: firing
  - name: the most similar line that means something else
    from: {{{{synthetic: "as above"}}}}
    replay: |
      0s   server_args=ServerArgs(model_path='m', tp_size=2)
      9s   [TP0] Something else
    then: nothing
"""
UNKNOWN: Final = """  - name: we joined the log too late
    from: {synthetic: cut}
    replay: |
      (joined-late)
      9s   [TP0] Load weight end.
      40s  The server is fired up and ready to roll!
      90s  (watermark)
    then: {unknown: read_since}
"""


def new_signature(name: str, kind: Kind, topic: str, releases: tuple[str, ...], *, line: str = LINE) -> str:
    """The text of a new file."""
    silent = kind in (Kind.EXPECTED, Kind.MISSING)
    body = SILENT if silent else SAID if kind in (Kind.FORBIDDEN, Kind.RATE, Kind.CORRELATION) else WINDOWED
    title = name.replace("-", " ").capitalize()
    text = HEAD + body + TAIL + (UNKNOWN.replace("{", "{{").replace("}", "}}") if silent else "")
    return text.format(id=name, kind=kind, topic=topic, title=title, line=line, first=releases[0], last=releases[-1], fires="it happens")


def write_new(root: Path, area: str, name: str, text: str) -> Path:
    """Write a new file; an existing one is never overwritten.

    Raises:
        FileExistsError: there is a signature of this name.
    """
    existing = next((path for path in root.rglob(f"{name}.yaml")), None)
    if existing is not None:
        raise FileExistsError(f"{existing} exists; choose another id, or edit that file")
    path = root / area / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path
