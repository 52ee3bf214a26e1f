"""Prints how fast logs are scanned: `python scan_bench.py LOG... [--rules rules.json] [--engine E] [--block BYTES] [--rounds N]`.

The figure includes reading the blocks from memory, the search, checking and quoting of hits, and every batch line parsed. Without
`--rules` (a JSON file `{"rules": [{"id", "pattern"}]}`) only batch and access lines, bars, dumps and tracebacks are read.
"""

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sglang_watchdog.model.observation import Access, Batch, Hit, LogObservation, Opened
from sglang_watchdog.model.signature import Library, Pattern
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.scan.patterns import compile_patterns
from sglang_watchdog.scan.scanner import Scanner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--rules", type=Path)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--block", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    library = _library(asked.rules)
    began_s = time.perf_counter()
    patterns = compile_patterns(library, asked.engine)
    print(f"{len(library.patterns)} patterns, {patterns.search.name}, compiled in {time.perf_counter() - began_s:.3f} s")
    for log in asked.logs:
        blocks = list(_blocks(log.read_bytes(), asked.block))
        spent = []
        for _ in range(asked.rounds):
            scanner = Scanner(library, log.name, zone=Zone.utc(), patterns=patterns)
            began_s = time.process_time()
            counted = _scan(scanner, blocks)
            spent.append(time.process_time() - began_s)
        size = sum(len(block) for block, _, _ in blocks)
        median_s = statistics.median(spent)
        print(f"{log.name}: {size / median_s / 1e6:.1f} MB/s of CPU time ({median_s:.2f} s), {dict(counted)}")


def _library(rules: Path | None) -> Library:
    patterns: dict[str, Pattern] = {}
    for rule in json.loads(rules.read_text())["rules"] if rules else ():
        patterns[rule["id"]] = Pattern(id=rule["id"], regex=rule["pattern"], anywhere="bench")
    return Library(version="bench", signatures={}, patterns=patterns)


def _blocks(data: bytes, size: int) -> Iterator[tuple[bytes, int, int]]:
    at, line = 0, 1
    while at < len(data):
        end = data.rfind(b"\n", at, at + size) + 1 or len(data)
        yield data[at:end], at, line
        line += data.count(b"\n", at, end)
        at = end


def _scan(scanner: Scanner, blocks: list[tuple[bytes, int, int]]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for block, offset, line in blocks:
        _count(scanner.feed(block, offset=offset, line=line), counted)
    _count(scanner.finish(), counted)
    return counted


def _count(seen: list[LogObservation | Opened], counted: Counter[str]) -> None:
    for one in seen:
        if isinstance(one, Batch):
            counted["decode" if one.is_decode else "prefill"] += 1
        elif isinstance(one, Access):
            counted["access"] += one.count
        elif isinstance(one, Hit):
            counted["hits"] += 1


if __name__ == "__main__":
    main()
