"""The zone of a log that nobody named, from when its file was written: at the start, and when a clock is put forward."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.runtime.zones import ZoneWatch
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.tail import Tail

MIDNIGHT_S = datetime(2026, 3, 29, 0, 59, 58, tzinfo=UTC).timestamp()  # Berlin puts its clocks forward two seconds later


def shanghai() -> ZoneWatch:
    """A guess: the machine's own."""
    return ZoneWatch(Zone("+08:00", Zone.named("+08:00").info, certain=False), how="machine")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, float], Block]:
    """Append a line to a log that is read as it grows; the block that came of it."""
    path = tmp_path / "server.log"
    path.touch()
    tail = Tail("log", str(path))
    tail.step(0.0)

    def written(text: str, at_s: float) -> Block:
        with path.open("a") as out:
            out.write(text + "\n")
        os.utime(path, (at_s, at_s))
        while True:
            for event in tail.step(at_s):
                if isinstance(event, Block):
                    return event

    return written


def test_a_file_that_is_there_tells_its_zone(tmp_path: Path):
    path = tmp_path / "server.log"
    path.write_text("[2026-03-29 00:59:57 TP0] Load weight begin. avail mem=90.00 GB\nno stamp\n")
    os.utime(path, (MIDNIGHT_S, MIDNIGHT_S))
    zone = shanghai()
    zone.look(str(path))

    assert (zone.zone.name, zone.text) == ("UTC", "UTC (file time)")


def test_a_copied_file_tells_nothing(tmp_path: Path):
    path = tmp_path / "server.log"
    path.write_text("[2026-03-29 00:52:11 TP0] Load weight begin. avail mem=90.00 GB\n")
    os.utime(path, (MIDNIGHT_S, MIDNIGHT_S))
    zone = shanghai()
    zone.look(str(path))

    assert zone.text == "+08:00 (machine)"


def test_an_empty_file_tells_with_its_first_line(write: Callable[[str, float], Block]):
    zone = shanghai()

    assert zone.see(write("[2026-03-29 02:59:57] server_args=ServerArgs(tp_size=1)", MIDNIGHT_S + 7200))
    assert zone.text == "UTC (file time)"
    assert not zone.see(write("[2026-03-29 02:59:58 TP0] Load weight begin. avail mem=90.00 GB", MIDNIGHT_S + 7201))


def test_clocks_that_are_put_forward_are_followed_and_shown(write: Callable[[str, float], Block]):
    zone = ZoneWatch(Zone("+01:00", Zone.named("+01:00").info, certain=False), how="machine")

    assert not zone.see(write("[2026-03-29 01:59:57 TP0] Load weight begin. avail mem=90.00 GB", MIDNIGHT_S))
    assert zone.see(write("[2026-03-29 03:00:00 TP0] Load weight begin. avail mem=90.00 GB", MIDNIGHT_S + 2))
    assert zone.zone.name == "+02:00"
    assert zone.text == "+02:00 (file time since 2026-03-29T01:00:00Z, +01:00 before)"


def test_a_clock_that_is_stepped_moves_stamp_and_file_alike(write: Callable[[str, float], Block]):
    """One clock makes both: the stamps go back, the zone stays."""
    zone = ZoneWatch(Zone.utc(certain=False), how="machine")
    zone.see(write("[2026-03-29 00:59:58 TP0] Load weight begin. avail mem=90.00 GB", MIDNIGHT_S))

    assert not zone.see(write("[2026-03-28 23:59:58 TP0] Load weight begin. avail mem=90.00 GB", MIDNIGHT_S - 3600))
    assert zone.text == "UTC (file time)"


def test_a_zone_that_was_given_stays_and_what_speaks_against_it_is_shown(write: Callable[[str, float], Block]):
    zone = ZoneWatch(Zone.named("Europe/Berlin"), how="configured")

    assert not zone.see(write("[2026-03-29 00:59:58] server_args=ServerArgs(tp_size=1)", MIDNIGHT_S))
    assert zone.text == "Europe/Berlin (configured; the file's time says UTC)"
    assert not zone.see(write("[2026-03-29 03:00:01 TP0] Load weight begin. avail mem=90.00 GB", MIDNIGHT_S + 3))
    assert zone.text == "Europe/Berlin (configured)"


def test_a_line_that_was_held_back_is_no_new_zone(write: Callable[[str, float], Block]):
    """Output that is buffered comes minutes late, which is no quarter of an hour to the second."""
    zone = ZoneWatch(Zone.utc(certain=False), how="machine")
    zone.see(write("[2026-03-29 00:59:58 TP0] Load weight begin. avail mem=90.00 GB", MIDNIGHT_S))

    assert not zone.see(write("[2026-03-29 01:00:00 TP0] Load weight begin. avail mem=90.00 GB", MIDNIGHT_S + 640))


def writings(write: Callable[[str, float], Block], zone: ZoneWatch, off_s: float, *, lags: tuple[float, ...]) -> str | None:
    """New lines, each stamped in UTC `off_s` and its lag before it is in the file; the zone that they speak for."""
    for second, lag_s in enumerate(lags):
        at_s = MIDNIGHT_S + 60 * second
        stamp = datetime.fromtimestamp(at_s - off_s - lag_s, UTC)
        zone.see(write(f"[{stamp:%Y-%m-%d %H:%M:%S} TP0] Load weight begin. avail mem=90.00 GB", at_s), is_new=True)
    return zone.arrival


def test_three_writings_in_a_row_speak_against_a_zone_that_was_given(write: Callable[[str, float], Block]):
    zone = ZoneWatch(Zone.named("+08:00"), how="configured")

    assert writings(write, zone, 0, lags=(1, 1)) is None
    assert writings(write, zone, 0, lags=(1, 1, 2)) == "UTC"
    assert zone.zone.name == "+08:00"


@pytest.mark.parametrize("lags", [(1, 1, 640), (1, 900, 1), (310, 220, 640, 90)])
def test_lines_that_were_held_back_speak_against_nothing(write: Callable[[str, float], Block], lags: tuple[float, ...]):
    assert writings(write, ZoneWatch(Zone.named("UTC"), how="configured"), 0, lags=lags) in (None, "UTC")


def test_the_right_zone_is_agreed_with_by_its_name(write: Callable[[str, float], Block]):
    assert writings(write, ZoneWatch(Zone.named("Europe/London"), how="configured"), 0, lags=(1, 1)) is None
    assert writings(write, ZoneWatch(Zone.utc(), how="configured"), 0, lags=(1, 1, 1)) == "UTC"
