"""Builds scanners for the tests: a library from a few patterns, a log from text, observations from both."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from sglang_watchdog.model.observation import Access, Hit, LogObservation, Opened, Tally
from sglang_watchdog.model.signature import Library, Pattern
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.scan.scanner import Scanner

Seen = LogObservation | Opened

# One pattern of each sort, worded as the signatures are.
PATTERNS = (
    Pattern(id="exception", starts=("Scheduler hit an exception",), level="error"),
    Pattern(id="moe-default", starts=("Using default MoE kernel config.", "Using default MoE config."), level="warning"),
    Pattern(id="retract", starts=("KV cache pool is full. Retract requests.",), regex=r"#retracted_reqs: (?P<retracted>\d+)"),
    Pattern(
        id="oom",
        regex=r"^torch\.(?:cuda\.)?OutOfMemoryError: CUDA out of memory\. Tried to allocate (?P<asked>\S+ \w+)",
        undated=True,
    ),
    Pattern(
        id="xid",
        contains=("NVRM: Xid (PCI:",),
        regex=r"NVRM: Xid \(PCI:[0-9a-f:.]+\): (?P<xid>\d+)",
        undated=True,
        anywhere="kernel",
    ),
    Pattern(id="nccl-timeout", contains=("Watchdog caught collective operation timeout",), undated=True, anywhere="torch"),
    Pattern(id="nan", regex=r"^Detected errors during sampling! (?:NaN|nan) in the logits", ignore_case=True),
    Pattern(id="load-end", starts=("Load weight end.",), regex=r"mem usage=(?P<mem>[\d.]+) GB"),
    Pattern(id="ready", starts=("The server is fired up and ready to roll!",)),
    Pattern(id="started", starts=("Started server process",)),
    Pattern(id="first-prefill", starts=("Prefill batch",)),
    Pattern(
        id="argparse",
        regex=r": error: unrecognized arguments: (?P<flags>.+)$",
        undated=True,
        anywhere="argparse prints the program first",
    ),
)

EXAMPLES = (
    "Scheduler hit an exception: Traceback (most recent call last):",
    "Using default MoE kernel config. Performance might be sub-optimal!",
    "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_tokens_gained: 5",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0",
    "NVRM: Xid (PCI:0000:44:00): 79, pid=1, GPU has fallen off the bus.",
    "[rank4]:[E210 02:06:33.643248754 ProcessGroupNCCL.cpp:616] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL",
    "Detected errors during sampling! NaN in the logits.",
    "Load weight end. type=Qwen2ForCausalLM, avail mem=18.60 GB, mem usage=4.60 GB.",
    "The server is fired up and ready to roll!",
    "INFO:     Started server process [1501]",
    "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, ",
    "Decode batch, #running-req: 38, #token: 61000, token usage: 0.07, gen throughput (token/s): 641.32, #queue-req: 0, ",
    "sglang serve: error: unrecognized arguments: --enable-moe-turbo",
    "server_args=ServerArgs(model_path='/m', tp_size=2, api_key=None)",
    "Traceback (most recent call last):",
    'INFO:     10.0.0.7:41870 - "POST /generate HTTP/1.1" 500 Internal Server Error',
    "[2026-01-02 03:04:05 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    "[2026-01-02 03:04:05 TP0] Decode batch. #running-req: 9999, #token: 1, token usage: 0.99, gen throughput (token/s): 1.00, #queue-req: 0",
)


def library(patterns: Iterable[Pattern] = PATTERNS) -> Library:
    return Library(version="test", signatures={}, patterns={pattern.id: pattern for pattern in patterns})


def scan(
    log: str | bytes,
    *,
    patterns: Iterable[Pattern] = PATTERNS,
    cuts: Sequence[int] = (),
    format: str = "auto",
    engine: str = "auto",
    zone: Zone | None = None,
) -> list[Seen]:
    """Scan a log handed over in blocks cut at the given bytes."""
    data = log if isinstance(log, bytes) else log.encode()
    scanner = Scanner(library(patterns), "server.log", zone=zone or Zone.utc(), format=format, engine=engine)
    seen: list[Seen] = []
    places = sorted({0, len(data), *(cut for cut in cuts if 0 < cut < len(data))})
    for begin, end in pairwise(places):
        seen += scanner.feed(data[begin:end], offset=begin, line=1 + data.count(b"\n", 0, begin))
    return seen + scanner.finish()


def hits(seen: Iterable[Seen]) -> list[Hit]:
    return [one for one in seen if isinstance(one, Hit)]


def settled(seen: Iterable[Seen]) -> tuple[list[Seen], dict[tuple[float | None, int, str], int], tuple[int, ...]]:
    """What must not depend on the cuts: all in order, but counts that are additive over blocks summed up."""
    order: list[Seen] = []
    answers: dict[tuple[float | None, int, str], int] = {}
    totals = [0, 0, 0, 0]
    for one in seen:
        if isinstance(one, Access):
            key = (one.at_s, one.status, one.kind)
            answers[key] = answers.get(key, 0) + one.count
        elif isinstance(one, Tally):
            totals = [a + b for a, b in zip(totals, (one.lines, one.bytes, one.sglang_lines, one.odd_lines), strict=True)]
        elif isinstance(one, Opened):
            order.append(replace(one, at_s=None, format=""))
        else:
            order.append(one)
    return order, answers, tuple(totals)
