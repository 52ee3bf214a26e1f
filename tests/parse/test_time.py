"""Stamps become Unix seconds."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_watchdog.parse.stamp import StampReader
from sglang_watchdog.parse.zone import UnknownZone, Zone, measured

NOON_S = 1767355200.0  # 2026-01-02 12:00:00 UTC


@pytest.mark.parametrize(
    ("raw", "at_s"),
    [
        (b"2026-01-02 12:00:00", NOON_S),
        (b"2026-01-02 12:00:00.250", NOON_S + 0.25),
        (b"2026-01-02 12:00:00,5", NOON_S + 0.5),
        (b"2026-01-02T12:00:00Z", NOON_S),
        (b"2026-01-02T12:00:00+0200", NOON_S - 7200),
        (b"2026-01-02T12:00:00.5-05:30", NOON_S + 19800.5),
        (b"2026-02-31 12:00:00", None),
        (b"nonsense", None),
        (b"12:00:00", None),
        (b"0102 12:00:00.5", None),
    ],
)
def test_a_stamp_is_read(raw: bytes, at_s: float | None) -> None:
    assert StampReader(Zone.utc()).read(raw) == at_s


@given(st.datetimes(datetime(2023, 1, 1), datetime(2030, 1, 1)), st.datetimes(datetime(2023, 1, 1), datetime(2030, 1, 1)))
def test_reading_another_stamp_before_changes_nothing(first: datetime, second: datetime) -> None:
    reader = StampReader(Zone.utc())
    for moment in (first, second, first):
        assert reader.read(f"{moment:%Y-%m-%d %H:%M:%S}".encode()) == moment.replace(microsecond=0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("name", "offset_s"),
    [
        ("UTC", 0),
        ("utc", 0),
        ("Z", 0),
        ("+08:00", 28800),
        ("-0530", -19800),
        ("UTC+8", 28800),
        ("Asia/Shanghai", 28800),
        ("America/New_York", -18000),
    ],
)
def test_a_zone_is_named_by_offset_or_place(name: str, offset_s: int) -> None:
    assert StampReader(Zone.named(name)).read(b"2026-01-02 12:00:00") == NOON_S - offset_s


@pytest.mark.parametrize("name", ["Mars/Olympus", "+25:00", "", "../etc/passwd", "CET+1x"])
def test_an_unknown_zone_is_refused_with_what_may_be_written(name: str) -> None:
    with pytest.raises(UnknownZone, match=r"\+08:00"):
        Zone.named(name)


def test_the_hour_that_passes_twice_goes_on_where_it_was() -> None:
    """Berlin, 2026-10-25: after 02:59:59 summer time comes 02:00:00 winter time."""
    reader = StampReader(Zone.named("Europe/Berlin"))

    times = [reader.read(raw) for raw in (b"2026-10-25 02:59:59", b"2026-10-25 02:00:01", b"2026-10-25 03:00:00")]

    assert [later - times[0] for later in times if later is not None and times[0] is not None] == [0, 2, 3601]  # type: ignore[operator]


def test_a_yearless_stamp_takes_the_nearest_year() -> None:
    reader = StampReader(Zone.utc())
    reader.read(b"2025-12-31 23:59:59")

    assert reader.read(b"0101 00:00:01.000000") == datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC).timestamp()
    assert reader.read(b"Dec 31 23:59:58") == datetime(2025, 12, 31, 23, 59, 58, tzinfo=UTC).timestamp()
    assert reader.read(b"210 02:06:33.500000000") == datetime(2026, 2, 10, 2, 6, 33, 500000, tzinfo=UTC).timestamp()


def test_a_time_of_day_goes_past_midnight() -> None:
    reader = StampReader(Zone.utc().dated(date(2026, 1, 2)))

    assert reader.read(b"23:59:59") == NOON_S + 43199
    assert reader.read(b"00:00:01") == NOON_S + 43201


def test_the_zone_is_measured_from_a_time_that_is_known() -> None:
    assert (found := measured(NOON_S + 8 * 3600 + 3, NOON_S)) is not None
    assert (found.name, found.certain) == ("+08:00", False)
    assert (found := measured(NOON_S - 5 * 3600 - 1800 + 2, NOON_S)) is not None
    assert found.name == "-05:30"
    assert (found := measured(NOON_S - 4, NOON_S)) is not None
    assert found.name == "UTC"


@pytest.mark.parametrize("off_s", [400, 15 * 3600, 90 * 86400])
def test_times_that_have_nothing_to_do_with_each_other_measure_nothing(off_s: int) -> None:
    assert measured(NOON_S + off_s, NOON_S) is None
