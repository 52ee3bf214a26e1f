"""A real systemd-journald in a name space of its own, real entries, and a journalctl that is killed, stopped and refused.

Where the tests run no systemd manages units, so journald writes no _SYSTEMD_UNIT: entries are matched by identifier. By unit:
tests/deploy/test_systemd_booted.py; with which arguments journalctl is asked for a unit, a boot and a cursor is tested at the end.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from sglang_watchdog.model.observation import Gap, Opened, Watermark
from sglang_watchdog.sources.backoff import Backoff
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.journal import JournalEvent, JournalQuery, JournalSource
from sglang_watchdog.sources.places import journal_query
from sglang_watchdog.sources.position import JournalPosition, position_from_json

JOURNALD = next((path for path in ("/lib/systemd/systemd-journald", "/usr/lib/systemd/systemd-journald") if os.path.exists(path)), "")
needs_journald = pytest.mark.skipif(
    not JOURNALD or shutil.which("journalctl") is None or os.geteuid() != 0, reason="needs root and systemd-journald: apt install systemd"
)
ENTRIES = int(os.environ.get("JOURNAL_ENTRIES", "100000"))


@dataclass
class Journal:
    """A running journald."""

    namespace: str
    process: subprocess.Popen[bytes]
    writer: socket.socket
    written: int = 0

    def write(self, count: int, text: str = "line") -> None:
        for _ in range(count):
            self.writer.send(f"MESSAGE={text} {self.written}\nSYSLOG_IDENTIFIER=sglang-test\nPRIORITY=6\n".encode())
            self.written += 1

    def control(self, *arguments: str) -> None:
        subprocess.run(["journalctl", f"--namespace={self.namespace}", *arguments], check=True, capture_output=True, timeout=60)

    def source(self, resume: JournalPosition | None = None, *, command: str = "journalctl", quiet_s: float = 5.0) -> JournalSource:
        query = JournalQuery(identifier="sglang-test", namespace=self.namespace, command=command)
        return JournalSource("journal", query, resume=resume, quiet_s=quiet_s, backoff=Backoff(first_s=0.02, most_s=0.2))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    namespace = f"watchdog{uuid.uuid4().hex[:8]}"
    run = Path(f"/run/systemd/journal.{namespace}")
    run.parent.mkdir(parents=True, exist_ok=True)
    if not Path("/etc/machine-id").exists():
        subprocess.run(["systemd-machine-id-setup"], check=True, capture_output=True)
    with (tmp_path / "journald.log").open("wb") as log:
        process = subprocess.Popen([JOURNALD, namespace], stdout=log, stderr=log)
    deadline = time.monotonic() + 20
    writer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    while True:
        try:
            writer.connect(str(run / "socket"))
            break
        except OSError:
            assert time.monotonic() < deadline, (tmp_path / "journald.log").read_text()
            time.sleep(0.02)
    yield Journal(namespace, process, writer)
    writer.close()
    process.kill()
    process.wait()
    machine = Path("/etc/machine-id").read_text().strip()
    for left in (run, Path(f"/run/log/journal/{machine}.{namespace}"), Path(f"/var/log/journal/{machine}.{namespace}")):
        shutil.rmtree(left, ignore_errors=True)


def messages(block: Block) -> list[str]:
    return [json.loads(line)["MESSAGE"] for line in block.data.splitlines()]


@dataclass
class Reader:
    """Follows a source and keeps what it said."""

    source: JournalSource
    events: AsyncGenerator[JournalEvent, None]
    seen: list[str]
    said: list[JournalEvent]

    @classmethod
    def of(cls, source: JournalSource) -> "Reader":
        return cls(source, source.events(), [], [])

    async def until(self, done: Callable[["Reader"], bool], within_s: float = 60.0) -> None:
        async with asyncio.timeout(within_s):
            while not done(self):
                event = await anext(self.events)
                if isinstance(event, Block):
                    self.seen += messages(event)
                else:
                    self.said.append(event)

    def gaps(self) -> list[Gap]:
        return [event for event in self.said if isinstance(event, Gap)]


@pytest.mark.slow
@needs_journald
async def test_nothing_is_lost_or_repeated_over_twenty_killed_children_rotations_and_vacuums(journal: Journal) -> None:
    reader = Reader.of(journal.source())
    async with aclosing(reader.events):
        part = ENTRIES // 20
        for number in range(20):
            await asyncio.to_thread(journal.write, part)
            await reader.until(lambda reader: len(reader.seen) > journal.written - part // 2)
            assert reader.source.child_pid is not None
            os.kill(reader.source.child_pid, signal.SIGKILL)
            if number % 4 == 1:
                await asyncio.to_thread(journal.control, "--rotate")
            if number % 4 == 3:
                await reader.until(lambda reader: len(reader.seen) >= journal.written)
                await asyncio.to_thread(journal.control, "--rotate")
                await asyncio.to_thread(journal.control, "--vacuum-files=1")
        await reader.until(lambda reader: len(reader.seen) >= journal.written)

    assert reader.seen == [f"line {number}" for number in range(journal.written)]
    assert reader.source.status().restarts >= 20
    # A vacuum may take the entry that the cursor stands on; what it took before that had been read.
    assert {gap.reason for gap in reader.gaps()} <= {"vacuumed"}
    print(f"entries {journal.written}, children killed 20, lost 0, repeated 0, gaps {len(reader.gaps())}")


@needs_journald
async def test_a_stored_position_is_gone_on_from(journal: Journal) -> None:
    journal.write(100)
    first = Reader.of(journal.source())
    async with aclosing(first.events):
        await first.until(lambda reader: len(reader.seen) >= 100)
    assert first.said[0] == Opened(at_s=None, source="journal", from_start=True, format="journal")
    assert first.source.position is not None
    stored = position_from_json(json.loads(json.dumps(first.source.position.to_json())))
    assert isinstance(stored, JournalPosition)
    journal.write(50)
    second = Reader.of(journal.source(stored))
    async with aclosing(second.events):
        await second.until(lambda reader: len(reader.seen) >= 50)

    assert second.seen == [f"line {number}" for number in range(100, 150)]
    assert second.gaps() == []
    assert second.source.status().line == 151


@needs_journald
async def test_what_was_vacuumed_unread_is_a_gap(journal: Journal) -> None:
    journal.write(10)
    first = Reader.of(journal.source())
    async with aclosing(first.events):
        await first.until(lambda reader: len(reader.seen) >= 10)
    position = first.source.position
    journal.write(10)
    journal.control("--sync")
    journal.control("--rotate")
    journal.control("--vacuum-files=1")
    journal.write(10)
    second = Reader.of(journal.source(position))
    async with aclosing(second.events):
        await second.until(lambda reader: len(reader.seen) >= 10)

    assert second.seen == [f"line {number}" for number in range(20, 30)]
    assert [gap.reason for gap in second.gaps()] == ["vacuumed"]
    gap = second.gaps()[0]
    assert gap.from_s is not None
    assert gap.to_s is not None
    assert gap.from_s < gap.to_s


@needs_journald
async def test_a_child_that_hangs_is_found_and_started_again(journal: Journal) -> None:
    journal.write(1)
    reader = Reader.of(journal.source(quiet_s=0.3))
    async with aclosing(reader.events):
        await reader.until(lambda reader: len(reader.seen) >= 1)
        assert reader.source.child_pid is not None
        os.kill(reader.source.child_pid, signal.SIGSTOP)
        journal.write(5)
        await reader.until(lambda reader: len(reader.seen) >= 6)

    assert reader.seen == [f"line {number}" for number in range(6)]
    assert [gap.reason for gap in reader.gaps()] == ["unreadable: journalctl hangs: it does not deliver what the journal holds; it is started again"]


@needs_journald
async def test_silence_is_told_only_after_it_was_checked(journal: Journal) -> None:
    journal.write(1)
    reader = Reader.of(journal.source(quiet_s=0.6))
    began_s = time.time()
    async with aclosing(reader.events):
        await reader.until(lambda reader: any(isinstance(event, Watermark) and event.at_s > began_s - 1.7 for event in reader.said))

    assert reader.gaps() == []


@needs_journald
async def test_words_of_any_kind_pass(journal: Journal) -> None:
    journal.writer.send(b"MESSAGE\n\x05\x00\x00\x00\x00\x00\x00\x00a\x00b\xffc\nSYSLOG_IDENTIFIER=sglang-test\n")
    reader = Reader.of(journal.source())
    async with aclosing(reader.events):
        await reader.until(lambda reader: len(reader.seen) >= 1)

    assert reader.seen == [[97, 0, 98, 255, 99]]  # type: ignore[comparison-overlap]


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def said_by(command: str) -> tuple[JournalSource, list[JournalEvent]]:
    source = JournalSource("journal", JournalQuery(unit="sglang.service", namespace="n", command=command), backoff=Backoff(first_s=0.01))
    said: list[JournalEvent] = []
    async with asyncio.timeout(20), aclosing(source.events()) as events:
        async for event in events:
            said.append(event)
            if len(said) >= 2:
                break
    return source, said


async def test_a_missing_permission_is_said_and_not_taken_for_silence(tmp_path: Path) -> None:
    """journalctl then prints a hint, no entry, and ends well."""
    hint = "Hint: You are currently not seeing messages from other users and the system."
    source, said = await said_by(script(tmp_path / "journalctl", f"echo '{hint}' >&2"))

    assert isinstance(said[1], Gap)
    assert said[1].reason == "unreadable: no permission to read journal:sglang.service in n; add this user to the group systemd-journal"
    assert source.status().why_not.startswith("no permission")


async def test_a_missing_journalctl_is_said() -> None:
    _, said = await said_by("/nonexistent/journalctl")

    assert isinstance(said[1], Gap)
    assert said[1].reason == "unreadable: /nonexistent/journalctl cannot be started: No such file or directory"


async def test_messages_that_journald_threw_away_are_a_gap(tmp_path: Path) -> None:
    entry = {"__CURSOR": "c1", "__REALTIME_TIMESTAMP": "1771000000000000", "MESSAGE": "Suppressed 12 messages", "N_DROPPED": "12"}
    follows = f"case \"$*\" in *--follow*) echo '{json.dumps(entry)}'; sleep 5;; esac"
    source = JournalSource("journal", JournalQuery(unit="u.service", namespace="n", command=script(tmp_path / "journalctl", follows)))
    reader = Reader.of(source)
    async with aclosing(reader.events):
        await reader.until(lambda reader: bool(reader.gaps()))

    gap = reader.gaps()[0]
    assert gap.reason == "dropped: journald suppressed 12 messages; raise RateLimitBurst="
    assert gap.from_s == 1_771_000_000.0


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("sglang", JournalQuery(unit="sglang.service")),
        ("sglang@tp8.service", JournalQuery(unit="sglang@tp8.service")),
        ("id=sglang", JournalQuery(identifier="sglang")),
        ("ns/sglang.service", JournalQuery(namespace="ns", unit="sglang.service")),
    ],
)
def test_places_in_the_journal(text: str, query: JournalQuery) -> None:
    assert journal_query(text) == query


# --- what journalctl is asked ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "filters"),
    [
        (JournalQuery(), []),
        (JournalQuery(unit="sglang.service"), ["--unit=sglang.service"]),
        (JournalQuery(user_unit="sglang.service"), ["--user-unit=sglang.service"]),
        (JournalQuery(identifier="sglang"), ["--identifier=sglang"]),
        (JournalQuery(unit="sglang@tp8.service", namespace="ml"), ["--namespace=ml", "--unit=sglang@tp8.service"]),
        (JournalQuery(kernel=True), ["_TRANSPORT=kernel"]),
    ],
)
def test_a_query_becomes_arguments(query: JournalQuery, filters: list[str]) -> None:
    command, *arguments = query.arguments()

    assert command == "journalctl"
    assert [each for each in arguments if not each.startswith(("--output", "--no-pager", "--all"))] == filters
    assert "--output=json" in arguments
    assert "_SYSTEMD_UNIT" in next(each for each in arguments if each.startswith("--output-fields="))


async def asked_of(folder: Path, query: JournalQuery, monkeypatch: pytest.MonkeyPatch, *, started: str, resume: JournalPosition | None) -> list[str]:
    """The arguments of the journalctl that follows. Its stand-in writes them down; systemctl's knows one start."""
    script(folder / "systemctl", f"echo '{started}'")
    entry = json.dumps({"__CURSOR": "c7", "__REALTIME_TIMESTAMP": "1771000000000000", "MESSAGE": "a line"})
    follows = f'printf "%s\\n" "$@" > {folder}/asked.new; mv {folder}/asked.new {folder}/asked; echo \'{entry}\'; exec sleep 60'
    script(folder / "journalctl", f'case "$*" in *--follow*) {follows};; esac')
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    source = JournalSource("journal", query, resume=resume)
    async with asyncio.timeout(20), aclosing(source.events()) as events:
        async for _ in events:
            if (folder / "asked").exists():
                return (folder / "asked").read_text().splitlines()
    raise AssertionError("the source ended")


async def test_a_unit_is_read_from_its_last_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = await asked_of(tmp_path, JournalQuery(unit="sglang.service"), monkeypatch, started="@1771000000", resume=None)

    assert asked[-4:] == ["--unit=sglang.service", "--since=@1771000000", "--follow", "--no-tail"]


async def test_a_unit_whose_start_is_not_known_is_read_from_the_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = await asked_of(tmp_path, JournalQuery(unit="sglang.service"), monkeypatch, started="n/a", resume=None)

    assert asked[-4:] == ["--unit=sglang.service", "--boot", "--follow", "--no-tail"]


async def test_a_position_is_read_on_from_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the entry itself, not behind it: whether it is still there shows whether the journal was vacuumed meanwhile."""
    resume = JournalPosition(cursor="s=1;i=2;t=3", line=5, offset=99)
    asked = await asked_of(tmp_path, JournalQuery(unit="sglang.service"), monkeypatch, started="@1771000000", resume=resume)

    assert asked[-4:] == ["--unit=sglang.service", "--cursor=s=1;i=2;t=3", "--follow", "--no-tail"]
