"""Recordings: the contract's JSON lines to observations and back; what is absent is not read, and never 0."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_watchdog.model.observation import Gap, GpuEvent, GpuProcess, Sample
from sglang_watchdog.sources.telemetry_recording import MalformedSample, Recording, decode_line, encode
from sglang_watchdog.sources.telemetry_writer import RecordingWriter

LINE = (
    b'{"ts":1796053638.204,"gpu":1,"name":"NVIDIA H200","power_w":121.1,"power_instant_w":121.2,"energy_j":null,'
    b'"sm_util":0,"pcie_replay":4,"pstate":"P2","throttle_reasons":["GpuIdle"],"sm_active":0.1381,"remap_pending":1,"note":"text",'
    b'"processes":[{"pid":4684,"mem_mib":130600,"name":"sglang::scheduler","ppid":4372},{"pid":5}]}\n'
)


def test_a_sample_holds_what_its_line_holds() -> None:
    sample = decode_line(LINE)

    assert isinstance(sample, Sample)
    assert (sample.at_s, sample.gpu, sample.power_w, sample.sm_util) == (1796053638.204, 1, 121.1, 0.0)
    assert sample.energy_j is None  # null
    assert sample.dram_active is None  # absent
    assert sample.pstate == 2
    assert sample.throttle_reasons == ("GpuIdle",)
    assert sample.processes == (
        GpuProcess(pid=4684, ppid=4372, mem_mib=130600.0, name="sglang::scheduler"),
        GpuProcess(pid=5),
    )
    assert sample.extra == {"remap_pending": 1.0}


def test_events_gaps_and_lost_gpus_are_told_apart() -> None:
    assert decode_line(b'{"ts":5,"event":"xid","gpu":0,"xid":79}') == GpuEvent(at_s=5.0, gpu=0, event="xid", xid=79)
    assert decode_line(b'{"ts":5,"gap":"nvml","reason":"no driver"}') == Gap(
        source="gpus", from_s=5.0, to_s=None, reason="no driver"
    )
    lost = decode_line(b'{"ts":5,"gpu":3,"uuid":"GPU-2a","error":"NVML_ERROR_GPU_IS_LOST"}')
    assert isinstance(lost, Sample)
    assert (lost.error, lost.power_w, lost.processes) == ("NVML_ERROR_GPU_IS_LOST", None, None)
    assert decode_line(b"  \n") is None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"[1, 2]", "a JSON list where an object"),
        (b'{"ts": 1', "not JSON"),
        (b'{"gpu": 1}', 'no "ts"'),
        (b'{"ts": 1}', 'no "gpu"'),
        (b'{"ts": 1, "gpu": 0, "power_w": "250 W"}', "power_w is '250 W', not a number"),
        (b'{"ts": 1, "gpu": 0, "sm_util": true}', "sm_util is True, not a number"),
        (b'{"ts": 1, "gpu": 0.5}', "gpu is 0.5, not a whole number"),
        (b'{"ts": 1, "gpu": 0, "processes": [7]}', "processes holds 7"),
        (b'{"ts": 1, "gpu": 0, "throttle_reasons": "GpuIdle"}', "not a list of names"),
    ],
)
def test_a_bad_line_says_where_and_what(line: bytes, says: str) -> None:
    with pytest.raises(MalformedSample) as caught:
        decode_line(line, where="nvml.jsonl:7")

    assert str(caught.value).startswith("nvml.jsonl:7: ")
    assert says in str(caught.value)


def test_a_number_that_is_none_is_not_read() -> None:
    sample = decode_line(b'{"ts": 1, "gpu": 0, "power_w": NaN, "dram_active": Infinity}')

    assert isinstance(sample, Sample)
    assert (sample.power_w, sample.dram_active) == (None, None)


def test_a_reason_mask_is_named() -> None:
    sample = decode_line(b'{"ts": 1, "gpu": 0, "throttle_reasons": 132}')

    assert isinstance(sample, Sample)
    assert sample.throttle_reasons == ("SwPowerCap", "HwPowerBrakeSlowdown")


@pytest.mark.parametrize("name", ["nvml.jsonl", "nvml.jsonl.gz", "misnamed"])
def test_a_file_is_read_in_order_and_bad_lines_are_skipped_and_counted(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    content = b'{"ts":1,"gpu":0}\nnonsense\n\n{"ts":2,"gpu":0}\n{"ts":2,"gpu":1}'
    path.write_bytes(content if name == "nvml.jsonl" else gzip.compress(content))
    recording = Recording(path)

    read = list(recording)

    assert [(each.at_s, each.gpu) for each in read if isinstance(each, Sample)] == [(1.0, 0), (2.0, 0), (2.0, 1)]
    assert (recording.bad_lines, recording.lines) == (1, 5)
    assert recording.errors[0].startswith(f"{path}:2: not JSON")


def test_a_recording_cut_in_its_compressed_stream_ends_in_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "nvml.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(b'{"ts":%d,"gpu":0}\n' % second for second in range(5000)))[:-2000])

    *read, last = Recording(path)

    assert read
    assert isinstance(last, Gap)
    assert last.reason.startswith("unreadable")


numbers = st.none() | st.floats(0, 1e6).map(lambda value: round(value, 3))
samples = st.builds(
    Sample,
    at_s=st.floats(1.7e9, 1.9e9).map(lambda value: round(value, 3)),
    gpu=st.integers(0, 15),
    uuid=st.none() | st.just("GPU-1"),
    power_w=numbers,
    sm_active=numbers,
    pstate=st.none() | st.integers(0, 15),
    throttle_reasons=st.none() | st.lists(st.sampled_from(["GpuIdle", "SwPowerCap"]), unique=True).map(tuple),
    processes=st.none()
    | st.lists(st.builds(GpuProcess, pid=st.integers(1, 9), ppid=st.none() | st.integers(1, 9))).map(tuple),
    extra=st.dictionaries(
        st.sampled_from(["remap_pending", "fan_percent"]), st.floats(0, 100).map(lambda value: round(value, 3))
    ),
)
events = st.builds(
    GpuEvent,
    at_s=st.integers(1, 9).map(float),
    gpu=st.integers(0, 7),
    event=st.sampled_from(["xid", "lost", "unresponsive"]),
    xid=st.none() | st.integers(1, 200),
    reason=st.sampled_from(["", "nvmlDeviceGetPowerUsage"]),
)
gaps = st.builds(
    Gap,
    source=st.just("gpus"),
    from_s=st.integers(1, 9).map(float),
    to_s=st.none() | st.integers(9, 12).map(float),
    reason=st.sampled_from(["no driver", "late"]),
)


@given(samples | events | gaps)
def test_what_is_recorded_reads_back_the_same(observation: Sample | GpuEvent | Gap) -> None:
    assert decode_line(encode(observation)) == observation


@pytest.mark.parametrize("name", ["rec.jsonl", "rec.jsonl.gz"])
def test_a_recording_is_bounded_and_its_older_parts_stay_readable(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    writer = RecordingWriter(path, max_bytes=4000, keep=2)
    for second in range(3000):
        writer.write(Sample(at_s=1.8e9 + second, gpu=0, power_w=second * 1.37, energy_j=second * 977.13))
    writer.close()

    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == [name, f"{name}.1", f"{name}.2"]
    read = [
        each.at_s for part in (2, 1) for each in Recording(path.with_name(f"{name}.{part}")) if isinstance(each, Sample)
    ]
    read += [each.at_s for each in Recording(path) if isinstance(each, Sample)]
    assert read == [1.8e9 + second for second in range(3000 - len(read), 3000)]


def test_a_second_start_appends(tmp_path: Path) -> None:
    path = tmp_path / "rec.jsonl.gz"
    for second in (1.0, 2.0):
        writer = RecordingWriter(path)
        writer.write(Sample(at_s=second, gpu=0))
        writer.close()

    assert [each.at_s for each in Recording(path) if isinstance(each, Sample)] == [1.0, 2.0]
