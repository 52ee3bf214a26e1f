"""A log written at 20 MB/s and rotated every second by rename, its reader killed with SIGKILL again and again.

Four processes: the writer numbers its lines; the reader follows the file and commits what it saw together with its position, in one
transaction; this one kills the reader; a last one counts the numbers in what was committed. Prints lost and repeated lines; fails if
there is one.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from sglang_watchdog.model.observation import Gap
from sglang_watchdog.sources.block import Block, Moved
from sglang_watchdog.sources.follow import TailSource
from sglang_watchdog.sources.hints import Hints
from sglang_watchdog.sources.position import TailPosition, position_from_json

LINE = b"%010d [2026-02-19 08:10:03 TP0] Decode batch, #running-req: 64, #token: 70144, token usage: 0.09, gen throughput (token/s): 2043.21\n"
LINES_A_WRITE = 500
KEPT_FILES = 60
NUMBER = re.compile(rb"^(\d{10}) ", re.MULTILINE)


def write(log: Path, seconds: float, bytes_per_s: float) -> None:
    """Write numbered lines; rotate as logrotate does: .1 to .2 and so on, then the log to .1."""
    number = written = rotations = 0
    began = rotated = time.monotonic()
    file = log.open("ab", buffering=0)
    while (now := time.monotonic()) - began < seconds:
        if now - rotated >= 1.0:
            for age in range(KEPT_FILES, 0, -1):
                older = log.with_name(f"{log.name}.{age}")
                if older.exists():
                    older.rename(log.with_name(f"{log.name}.{age + 1}"))
            log.with_name(f"{log.name}.{KEPT_FILES + 1}").unlink(missing_ok=True)
            log.rename(log.with_name(f"{log.name}.1"))
            file.close()
            file = log.open("ab", buffering=0)
            rotated, rotations = now, rotations + 1
        if written > (now - began) * bytes_per_s:
            time.sleep(0.002)
            continue
        data = b"".join(LINE % each for each in range(number, number + LINES_A_WRITE))
        written += file.write(data)
        number += LINES_A_WRITE
    print(json.dumps({"lines": number, "bytes": written, "rotations": rotations, "seconds": time.monotonic() - began}))


def connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, timeout=30)
    database.execute("pragma journal_mode=wal")
    database.execute("pragma synchronous=off")  # SIGKILL leaves the page cache alone
    database.execute("create table if not exists seen (first integer, last integer)")
    database.execute("create table if not exists gaps (reason text, low integer, high integer)")
    database.execute("create table if not exists place (id integer primary key, position text)")
    return database


async def read(log: Path, state: Path) -> None:
    """Follow the log from the committed position on; every block and its position in one transaction."""
    database = connect(state)
    row = database.execute("select position from place").fetchone()
    resume = position_from_json(json.loads(row[0])) if row else None
    assert resume is None or isinstance(resume, TailPosition)
    async with aclosing(TailSource("log", str(log), resume=resume, hints=Hints()).events()) as events:
        async for event in events:
            if not isinstance(event, Block | Moved | Gap):
                continue
            database.execute("begin")
            if isinstance(event, Block):
                database.executemany("insert into seen values (?, ?)", runs([int(each) for each in NUMBER.findall(event.data)]))
            if isinstance(event, Gap):
                database.execute("insert into gaps values (?, ?, ?)", (event.reason, event.from_offset, event.to_offset))
            elif event.after is not None:
                database.execute("replace into place values (1, ?)", (json.dumps(event.after.to_json()),))
            database.execute("commit")


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return unbroken stretches of rising numbers."""
    found: list[tuple[int, int]] = []
    first = last = numbers[0] if numbers else -1
    for number in numbers[1:]:
        if number != last + 1:
            found.append((first, last))
            first = number
        last = number
    return [*found, (first, last)] if numbers else []


def count(state: Path, lines: int) -> None:
    """Count every number in what was committed."""
    seen = bytearray(lines)
    repeated = out_of_order = 0
    before = -1
    for first, last in connect(state).execute("select first, last from seen order by rowid"):
        out_of_order += first != before + 1
        before = last
        for number in range(first, last + 1):
            repeated += seen[number]
            seen[number] = 1
    gaps = dict(connect(state).execute("select reason, count(*) from gaps group by reason"))
    print(json.dumps({"lost": seen.count(0), "repeated": repeated, "out_of_order": out_of_order, "gaps": gaps}))


def committed_lines(state: Path) -> int:
    total = connect(state).execute("select sum(last - first + 1) from seen").fetchone()[0]
    return int(total or 0)


def torture(seconds: float, megabytes_per_s: float, kills: int) -> int:
    """Run everything; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="tail-torture-") as directory:
        log, state = Path(directory, "server.log"), Path(directory, "state.sqlite")
        connect(state).close()
        own = [sys.executable, __file__, "--log", str(log), "--state", str(state)]
        log.touch()
        reader = subprocess.Popen([*own, "read"])
        # Rotated files from before the first attach are none of the reader's business.
        while connect(state).execute("select count(*) from place").fetchone()[0] == 0:
            time.sleep(0.01)
        writer = subprocess.Popen([*own, "write", str(seconds), str(megabytes_per_s * 1e6)], stdout=subprocess.PIPE)
        killed = 0
        while writer.poll() is None:
            time.sleep(seconds / (kills + 1))
            if killed < kills:
                reader.send_signal(signal.SIGKILL)
                reader.wait()
                reader = subprocess.Popen([*own, "read"])
                killed += 1
        told = json.loads(writer.communicate()[0])
        waited = time.monotonic()
        while committed_lines(state) < told["lines"] and time.monotonic() - waited < 120:
            time.sleep(0.1)
        behind_s = time.monotonic() - waited
        time.sleep(0.5)  # anything repeated would come now
        reader.kill()
        reader.wait()
        counted = json.loads(subprocess.run([*own, "count", str(told["lines"])], check=True, stdout=subprocess.PIPE).stdout)
    rate = told["bytes"] / told["seconds"] / 1e6
    print(
        f"tail torture: {told['seconds']:.0f} s, {told['bytes'] / 1e6:.0f} MB at {rate:.1f} MB/s, {told['lines']} lines, "
        f"{told['rotations']} rotations, {killed} kills -9, caught up {behind_s:.1f} s after the last line: "
        f"lost {counted['lost']}, repeated {counted['repeated']}, out of order {counted['out_of_order']}, gaps {counted['gaps'] or 0}"
    )
    return 1 if counted["lost"] or counted["repeated"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("TORTURE_SECONDS", "60")))
    parser.add_argument("--rate", type=float, default=20.0, help="MB/s")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--state", type=Path)
    parser.add_argument("part", nargs="*", help="for the processes of the bench itself")
    options = parser.parse_args()
    match options.part:
        case ["write", seconds, rate]:
            write(options.log, float(seconds), float(rate))
        case ["read"]:
            asyncio.run(read(options.log, options.state))
        case ["count", lines]:
            count(options.state, int(lines))
        case _:
            return torture(options.seconds, options.rate, options.kills)
    return 0


if __name__ == "__main__":
    sys.exit(main())
