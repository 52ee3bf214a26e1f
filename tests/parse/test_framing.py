"""What containers and the journal put around lines."""

import json
from collections.abc import Iterable

import pytest

from sglang_watchdog.parse.framing import LONGEST_LINE, Unwrapped, detect, unframer

NOON_S = 1767355200.0


def unwrap(form: str, physical: Iterable[bytes]) -> list[tuple[str, int, int, float | None]]:
    """Text, line number, offset and time of each line."""
    out, one, offset = Unwrapped(), unframer(form), 0
    for number, line in enumerate(physical, 1):
        one.line(line, offset, number, out)
        offset += len(line) + 1
    one.finish(out)
    texts = bytes(out.text).decode().split("\n")[:-1]
    return list(zip(texts, out.numbers, out.offsets, out.times, strict=True))


def docker(log: str, stream: str = "stderr", time: str = "2026-01-02T12:00:00.5Z") -> bytes:
    return json.dumps({"log": log, "stream": stream, "time": time}, separators=(",", ":")).encode()


def test_docker_parts_are_joined_where_the_first_stands() -> None:
    physical = [
        docker("ab"),
        docker("other\n", "stdout"),
        docker("cd", time="2026-01-02T12:00:01Z"),
        docker("ef\n"),
        docker("next\n"),
    ]

    lines = unwrap("docker", physical)

    assert [(text, number, at_s) for text, number, _, at_s in lines] == [
        ("other", 2, NOON_S + 0.5),
        ("abcdef", 1, NOON_S + 0.5),
        ("next", 5, NOON_S + 0.5),
    ]
    assert lines[1][2] == 0


def test_a_dump_that_docker_split_at_16_kib_is_whole_again() -> None:
    dump = "[2026-01-02 12:00:00] server_args=ServerArgs(" + "a='x', " * 8000 + "b=1)"
    parts = [dump[at : at + 16384] for at in range(0, len(dump), 16384)]

    ((text, number, _, _),) = unwrap("docker", [docker(part) for part in parts[:-1]] + [docker(parts[-1] + "\n")])

    assert (text, number) == (dump, 1)


def test_cri_parts_are_joined() -> None:
    lines = unwrap(
        "cri",
        [
            b"2026-01-02T12:00:00.123456789Z stderr P ab",
            b"2026-01-02T12:00:00.2Z stdout F x",
            b"2026-01-02T12:00:01Z stderr F cd",
            b"2026-01-02T14:00:00.5+02:00 stderr F e",
            b"2026-01-02T12:00:03Z stderr F ",
            b"not framed",
        ],
    )

    assert [(text, number) for text, number, _, _ in lines] == [("x", 2), ("abcd", 1), ("e", 4), ("", 5), ("not framed", 6)]
    assert [at_s for _, _, _, at_s in lines] == [
        NOON_S + 0.2,
        pytest.approx(NOON_S + 0.123456789),
        NOON_S + 0.5,
        NOON_S + 3,
        None,
    ]


def journal(message: object, **fields: str) -> bytes:
    return json.dumps({"__REALTIME_TIMESTAMP": "1767355200250000", "_PID": "7", "MESSAGE": message, **fields}).encode()


def test_a_journal_message_may_be_a_list_of_bytes_or_null() -> None:
    lines = unwrap("journal", [journal("a"), journal([104, 195, 188, 13, 98]), journal(None), journal("x\ny"), b'{"no": 1}', b"{cut"])

    assert [text for text, _, _, _ in lines] == ["a", "hü\rb", "", "x", "y", "", ""]
    assert lines[0][3] == NOON_S + 0.25


def test_lines_that_journald_broke_are_joined() -> None:
    lines = unwrap("journal", [journal("ab", _LINE_BREAK="line-max"), journal("zz", _PID="8"), journal("cd")])

    assert [(text, number) for text, number, _, _ in lines] == [("zz", 2), ("abcd", 1)]


def test_the_export_form_with_a_binary_field() -> None:
    binary = b"one\ntwo\n\n"
    entry = (
        b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1767355200250000\n_PID=7\nMESSAGE\n"
        + len(binary).to_bytes(8, "little")
        + binary
        + b"\nPRIORITY=6\n\n"
        b"__CURSOR=s=2\n__REALTIME_TIMESTAMP=1767355201250000\nMESSAGE=plain\n\n"
    )

    lines = unwrap("export", entry.split(b"\n")[:-1])

    assert [(text, number) for text, number, _, _ in lines] == [("one", 4), ("two", 4), ("", 4), ("", 4), ("plain", 13)]
    assert lines[-1][3] == NOON_S + 1.25


def test_an_endless_part_is_cut() -> None:
    ((text, _, _, _),) = unwrap("docker", [docker("x" * 60_000)] * 50)

    assert len(text) == LONGEST_LINE


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (b'{"log":"a\\n","stream":"stdout","time":"2026-01-02T12:00:00Z"}', "docker"),
        (b' tail of a cut entry","stream":"stderr","time":"2026-01-02T12:00:00.1Z"}', "docker"),
        (b"2026-01-02T12:00:00.1Z stderr F a", "cri"),
        (b"2026-01-02T12:00:00+01:00 stdout P a", "cri"),
        (journal("a"), "journal"),
        (b"__CURSOR=s=1", "export"),
        (b"[2026-01-02 12:00:00 TP0] a", "plain"),
        (b"", None),
        (b"plain text", None),
        (b"2026-01-02T12:00:00.1Z a", None),
        (b'{"timestamp": "x", "event": "request.received"}', None),
    ],
)
def test_the_format_shows_in_a_line(line: bytes, form: str | None) -> None:
    assert detect(line) == form


@pytest.mark.parametrize(
    ("head", "form", "at_s"),
    [
        (b"Jan 02 13:00:00 host python3[123]: ", "syslog", None),
        (b"2026-01-02T12:00:00+0100 host sglang[1]: ", "syslog", None),
        (b"sglang-1  | ", "compose", None),
        (b"\x1b[36msglang-1  |\x1b[0m ", "compose", None),
        (b"[sglang]     | ", "compose", None),
        (b"0|sglang  | ", "compose", None),
        (b"Jan 02 13:00:00 ", "stamped", None),
        (b"sglang-0 server ", "prefixed", None),
        (b"(SGLangEngine pid=23901) ", "labelled", None),
        (b"\x1b[36m(pid=23901, ip=10.0.0.4)\x1b[0m ", "labelled", None),
        (b" 3: ", "labelled", None),
        (b"[default0]:", "labelled", None),
        (b"[rank3]: ", "labelled", None),
        (b"[1,0]<stdout>:", "labelled", None),
        (b"2026-01-02T12:00:00.250000000Z ", "stamped", NOON_S + 0.25),
        (b"[pod/sglang-0/server] ", "prefixed", None),
        (b"[pod/sglang-0/server] 2026-01-02T12:00:00.250000000Z ", "prefixed", NOON_S + 0.25),
    ],
)
def test_heads_that_tools_print_are_taken_off(head: bytes, form: str, at_s: float | None) -> None:
    record = b"[2026-01-02 12:00:00 TP0] Load"

    assert detect(head + record) == form
    assert detect(head + b"hello") is None
    assert unwrap(form, [head + record, head + b"  File x", b"bare"]) == [
        (record.decode(), 1, 0, at_s),
        ("  File x", 2, len(head + record) + 1, at_s),
        ("bare", 3, len(head) * 2 + len(record) + 10, None),
    ]


def test_a_head_inside_a_container_or_the_journal_is_taken_off() -> None:
    """Ray in Kubernetes: the container's time dates what Ray's head says nothing of."""
    record, other = "[2026-01-02 12:00:00 TP0] Load", "(raylet) starting"
    texts = [other, f"(Engine pid=7) {record}", "(Engine pid=7)   File x", record]

    assert [(text, at_s) for text, _, _, at_s in unwrap("docker", [docker(text + "\n") for text in texts])] == [
        (other, NOON_S + 0.5), (record, NOON_S + 0.5), ("  File x", NOON_S + 0.5), (record, NOON_S + 0.5)
    ]  # fmt: skip


def test_a_head_after_a_bare_record_is_text() -> None:
    texts = ["[2026-01-02 12:00:00 TP0] Load", "(Engine pid=7) [2026-01-02 12:00:00 TP0] Load"]

    assert [text for text, _, _, _ in unwrap("docker", [docker(text + "\n") for text in texts])] == texts


def test_the_kernels_lines_in_a_journal_keep_their_head() -> None:
    line = b"Jan 02 13:00:00 host kernel: NVRM: Xid (PCI:0000:44:00): 79"

    assert [text for text, _, _, _ in unwrap("syslog", [line])] == [line.decode()]


def test_an_entry_that_was_cut_gives_nothing_of_its_text() -> None:
    """Its rest may be anything, the text of users included."""
    assert unwrap("docker", [b'{"log":"Receive: obj=secret', b'prompt","stream":"stderr","time":"2026-01-02T12:00:00Z"}']) == [
        ("", 1, 0, None),
        ("", 2, 28, None),
    ]
