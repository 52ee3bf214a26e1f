"""`--telemetry replay:FILE`: the same decoding, followed while it grows, held back while the log is behind."""

import asyncio
import gzip
from pathlib import Path

import pytest

from sglang_watchdog.model.observation import Gap, Observation, Sample, Watermark
from sglang_watchdog.sources.telemetry_replay import TelemetryReplay


class Inbox:
    """Collects what a source delivers; `until` waits for a number of observations."""

    def __init__(self) -> None:
        self.got: list[Observation] = []
        self._arrived = asyncio.Condition()

    async def put(self, observation: Observation) -> None:
        async with self._arrived:
            self.got.append(observation)
            self._arrived.notify_all()

    async def until(self, count: int) -> list[Observation]:
        async with asyncio.timeout(10), self._arrived:
            await self._arrived.wait_for(lambda: len(self.got) >= count)
        return self.got[:count]


def line(second: float, gpu: int = 0) -> bytes:
    return b'{"ts":%g,"gpu":%d,"power_w":100}\n' % (second, gpu)


@pytest.mark.parametrize("packed", [False, True])
async def test_a_finished_recording_is_delivered_with_a_watermark_per_tick(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "nvml.jsonl"
    content = line(1) + line(1, 1) + line(2) + line(2, 1)
    path.write_bytes(gzip.compress(content) if packed else content)
    inbox = Inbox()

    await TelemetryReplay(path, inbox.put, follow=False).run()

    assert [type(each).__name__ for each in inbox.got] == [
        "Sample",
        "Sample",
        "Watermark",
        "Sample",
        "Sample",
        "Watermark",
    ]
    assert [each.at_s for each in inbox.got if isinstance(each, Watermark)] == [1.0, 2.0]


async def test_a_growing_recording_is_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "nvml.jsonl"
    path.write_bytes(line(1) + b'{"ts":2,"gp')
    inbox = Inbox()
    task = asyncio.create_task(TelemetryReplay(path, inbox.put, poll_s=0.005).run())
    await inbox.until(1)
    with path.open("ab") as stream:
        stream.write(b'u":0}\n')

    got = await inbox.until(3)

    task.cancel()
    assert [getattr(each, "at_s", None) for each in got] == [1.0, 1.0, 2.0]
    assert isinstance(got[1], Watermark)


async def test_a_recording_that_begins_anew_is_a_gap_and_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "nvml.jsonl"
    path.write_bytes(line(1) + line(2) + line(3))
    inbox = Inbox()
    task = asyncio.create_task(TelemetryReplay(path, inbox.put, poll_s=0.005).run())
    await inbox.until(5)
    path.write_bytes(line(9))

    got = await inbox.until(8)

    task.cancel()
    assert [each.reason for each in got if isinstance(each, Gap)] == ["truncated"]
    assert isinstance(got[-1], Sample)
    assert got[-1].at_s == 9.0


async def test_a_missing_recording_is_said_once_and_awaited(tmp_path: Path) -> None:
    path = tmp_path / "nvml.jsonl"
    inbox = Inbox()
    task = asyncio.create_task(TelemetryReplay(path, inbox.put, poll_s=0.005).run())
    first = (await inbox.until(1))[0]
    assert isinstance(first, Gap)
    assert "No such file" in first.reason
    path.write_bytes(line(1))

    got = await inbox.until(2)

    task.cancel()
    assert isinstance(got[1], Sample)


async def test_a_missing_finished_recording_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await TelemetryReplay(tmp_path / "nvml.jsonl", Inbox().put, follow=False).run()


async def test_samples_wait_until_the_log_has_come_as_far(tmp_path: Path) -> None:
    """Otherwise a finished recording is through before the log being replayed has said its first line."""
    path = tmp_path / "nvml.jsonl"
    path.write_bytes(line(1) + line(2) + line(3))
    inbox = Inbox()
    log_at_s = 2.0

    def limit() -> float | None:
        return log_at_s

    task = asyncio.create_task(TelemetryReplay(path, inbox.put, follow=False, limit=limit, poll_s=0.005).run())
    got = await inbox.until(3)
    assert [each.at_s for each in got if isinstance(each, Sample)] == [1.0, 2.0]
    log_at_s = 3.0
    async with asyncio.timeout(10):
        await task

    assert [each.at_s for each in inbox.got if isinstance(each, Sample)] == [1.0, 2.0, 3.0]
