"""Lines of the library's own examples that raise a finding the moment they are read, and a run to say them in."""

import re
import time

from sglang_watchdog.engine.engine import Engine
from sglang_watchdog.library.load import load
from sglang_watchdog.model.finding import FindingChanged
from sglang_watchdog.model.signature import Library
from sglang_watchdog.model.words import State
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.scan.patterns import PatternSet, compile_patterns
from sglang_watchdog.scan.scanner import Scanner

STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def stamp() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())


def dump(seed: int) -> str:
    """The line that begins a run; another seed, another run."""
    return f'[{stamp()}] server_args=ServerArgs(model_path="/models/m", tp_size=1, log_level="info", device="cuda", random_seed={seed})\n'


def stamped(line: str) -> str:
    """The line as it would be written now."""
    return STAMP.sub(f"[{stamp()}", line, count=1) + "\n"


def lines_that_fire(severities: tuple[str, ...] = ("info", "warning", "critical")) -> dict[str, str]:
    """Signature -> a line that raises it in a run of which nothing else is known, the moment it is read."""
    loaded = load()
    patterns = compile_patterns(loaded.library)
    found: dict[str, str] = {}
    for file in loaded.files:
        signature = file.body.id
        for example in file.body.examples if file.signature.severity.value in severities else ():
            line = getattr(example, "line", None)
            if isinstance(line, str) and "\n" not in line and STAMP.match(line) and signature not in found and _fires(loaded.library, patterns, signature, line):
                found[signature] = line
    return found


def _fires(library: Library, patterns: PatternSet, signature: str, line: str) -> bool:
    engine, scanner = Engine(library), Scanner(library, "server.log", zone=Zone.utc(), patterns=patterns)
    engine.announce("server.log")
    changes = [change for one in scanner.feed((dump(1) + stamped(line)).encode(), offset=0, line=1) for change in engine.feed(one)]
    return any(isinstance(one, FindingChanged) and one.finding.signature == signature and one.finding.state is State.FIRING for one in changes)
