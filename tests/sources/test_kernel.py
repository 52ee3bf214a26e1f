"""Kernel messages: what /dev/kmsg hands out record by record, over a socket pair that does the same."""

import json
import os
import socket
from collections.abc import Iterator

import pytest

from sglang_watchdog.model.observation import Gap, Watermark
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.kernel import KernelEvent, KernelSource, KmsgSource, parse_kmsg
from sglang_watchdog.sources.pci import pci_address
from sglang_watchdog.sources.position import KernelPosition, position_from_json

XID = b"3,%d,5000000,-;NVRM: Xid (PCI:0000:41:00): 79, pid=1234, GPU has fallen off the bus.\n SUBSYSTEM=pci\n DEVICE=+pci:0000:41:00.0\n"


@pytest.fixture
def device() -> Iterator[tuple[socket.socket, int]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setblocking(False)
    yield ours, theirs.fileno()
    ours.close()
    theirs.close()


def source(resume: KernelPosition | None = None) -> KmsgSource:
    return KmsgSource(resume=resume, clock=lambda: 1_771_000_010.0, boot_s=lambda: 1_771_000_000.0, boot_id="b1")


def messages(events: list[KernelEvent]) -> list[str]:
    blocks = [event for event in events if isinstance(event, Block)]
    return [json.loads(line)["MESSAGE"] for block in blocks for line in block.data.splitlines()]


def test_a_record_becomes_a_journal_line_with_its_time(device: tuple[socket.socket, int]) -> None:
    kernel, descriptor = device
    kernel.send(XID % 17)
    events = source().read(descriptor)

    assert isinstance(events[0], Block)
    entry = json.loads(events[0].data)
    assert entry["MESSAGE"].startswith("NVRM: Xid (PCI:0000:41:00): 79")
    assert (entry["__REALTIME_TIMESTAMP"], entry["_TRANSPORT"], entry["PRIORITY"]) == ("1771000005000000", "kernel", "3")
    assert events[-1] == Watermark(source="kernel", at_s=1_771_000_008.0)


def test_records_that_were_overwritten_unread_are_a_gap(device: tuple[socket.socket, int]) -> None:
    kernel, descriptor = device
    for sequence in (1, 2, 6):
        kernel.send(b"6,%d,1000,-;message %d" % (sequence, sequence))
    events = source().read(descriptor)

    assert messages(events) == ["message 1", "message 2", "message 6"]
    assert [event.reason for event in events if isinstance(event, Gap)] == ["dropped: 3 kernel messages overwritten unread"]


def test_what_was_read_before_a_restart_is_not_repeated_in_the_same_boot(device: tuple[socket.socket, int]) -> None:
    kernel, descriptor = device
    for sequence in (1, 2, 3):
        kernel.send(b"6,%d,1000,-;message %d" % (sequence, sequence))
    known = KernelPosition(boot="b1", sequence=2, line=3, offset=200)
    stored = position_from_json(known.to_json())
    assert stored == known
    events = source(known).read(descriptor)

    assert messages(events) == ["message 3"]
    block = next(event for event in events if isinstance(event, Block))
    assert (block.line, block.offset) == (3, 200)


def test_another_boot_begins_anew(device: tuple[socket.socket, int]) -> None:
    kernel, descriptor = device
    kernel.send(b"6,1,1000,-;message 1")

    assert messages(source(KernelPosition(boot="b0", sequence=900)).read(descriptor)) == ["message 1"]


@pytest.mark.parametrize("record", [b"", b"no semicolon", b"a,b,c,-;x", b"6,1;x"])
def test_other_forms_are_no_records(record: bytes) -> None:
    assert parse_kmsg(record) is None


async def test_without_kmsg_the_journal_is_read_and_said() -> None:
    kernel = KernelSource(path="/nonexistent/kmsg")
    events = kernel.events()
    await anext(events)
    await events.aclose()

    assert kernel.status().notes == ("/nonexistent/kmsg: No such file or directory; the journal is read instead",)


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="needs a readable /dev/kmsg: run as root, or set kernel.dmesg_restrict=0")
async def test_the_real_device_can_be_read() -> None:
    kernel = KernelSource()
    events = kernel.events()
    opened, first = await anext(events), await anext(events)
    await events.aclose()

    assert not isinstance(opened, Block)
    assert isinstance(first, Block | Watermark)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("NVRM: Xid (PCI:0000:41:00): 79, pid=1234", "0000:41:00.0"),
        ("pcieport 0000:40:01.1: AER: Corrected error received: 0000:C1:00.0", "0000:40:01.1"),
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("NVRM: GPU at PCI:0001:01:00: GPU-6a8f", "0001:01:00.0"),
        ("at 12:34:56 nothing", None),
    ],
)
def test_pci_addresses_have_one_form(text: str, address: str | None) -> None:
    assert pci_address(text) == address
