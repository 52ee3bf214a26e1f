"""A server that is none: real processes with real work on real GPUs, and a log in the words of SGLang 0.5.11.

The log claims a steady load of 64 requests; what the GPUs really do is given by --works. So the same claim can be set
beside a GPU at its power limit and beside one whose single busy thread does nothing.

    python claimed_server.py --log server.log --gpus 0,1 --works matmul,spin --seconds 45
"""

import argparse
import json
import os
import site
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GRAPH_SIZES = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64]


class Scheduler:
    """A child process with the title of an SGLang scheduler."""

    def __init__(self, gpu: int, title: str) -> None:
        # the title stands where Python looks for its own path, so it is told where its home and packages are
        packages = [sysconfig.get_paths()["purelib"], *site.getsitepackages(), *filter(None, sys.path)]
        environment = os.environ | {
            "PYTHONHOME": sys.base_prefix,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(packages)),
        }
        self.process = subprocess.Popen(
            [title, str(HERE / "work.py"), str(gpu)],
            executable=sys.executable,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, command: str) -> dict[str, float]:
        """Send one command and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the worker of {self.process.args!r} ended with {self.process.wait()}, asked to {command}"
            )
        answer: dict[str, float] = json.loads(line)
        return answer

    def end(self) -> None:
        """Let it go."""
        assert self.process.stdin is not None
        self.process.stdin.write("exit\n")
        self.process.stdin.close()
        self.process.wait(timeout=30)


class Log:
    """SGLang's log file: `[time rank] message`, whole seconds, UTC."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("w", buffering=1)

    def say(self, message: str, rank: str = "") -> None:
        """Write one line."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        self._stream.write(f"[{stamp}{' ' + rank if rank else ''}] {message}\n")


def together(schedulers: list[Scheduler], commands: list[str]) -> list[dict[str, float]]:
    """Ask all schedulers at the same time."""
    answers: list[Any] = [None] * len(schedulers)

    def ask(place: int) -> None:
        answers[place] = schedulers[place].ask(commands[place])

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(schedulers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def start(log: Log, schedulers: list[Scheduler], ranks: list[str]) -> None:
    """The start of a server, with the memory figures of this machine."""
    count = len(ranks)
    for rank in ranks:
        log.say("Init torch distributed begin.", rank)
    together(schedulers, ["context"] * count)
    for rank in ranks:
        log.say("Init torch distributed ends. elapsed=0.29 s, mem usage=0.09 GB", rank)
    time.sleep(1.5)
    for rank, answer in zip(ranks, together(schedulers, ["take 0.01"] * count), strict=True):
        log.say(f"Load weight begin. avail mem={answer['free_gib']:.2f} GB", rank)
    before = together(schedulers, ["take 0.01"] * count)
    after = together(schedulers, ["take 9"] * count)
    for rank, old, new in zip(ranks, before, after, strict=True):
        used = old["free_gib"] - new["free_gib"]
        log.say(
            f"Load weight end. elapsed=0.17 s, type=Qwen3ForCausalLM, avail mem={new['free_gib']:.2f} GB, "
            f"mem usage={used:.2f} GB.",
            rank,
        )
        log.say("Using KV cache dtype: torch.bfloat16", rank)
    time.sleep(1.5)
    pool = together(schedulers, ["leave 20"] * count)
    for rank, answer in zip(ranks, pool, strict=True):
        log.say("KV Cache is allocated. #tokens: 1272410, K size: 58.25 GB, V size: 58.25 GB", rank)
        log.say(f"Memory pool end. avail mem={answer['free_gib']:.2f} GB", rank)
        log.say(
            f"Capture cuda graph begin. This can take up to several minutes. avail mem={answer['free_gib']:.2f} GB",
            rank,
        )
        log.say(f"Capture cuda graph bs {GRAPH_SIZES}", rank)
    time.sleep(3)
    for rank, answer in zip(ranks, together(schedulers, ["take 0.25"] * count), strict=True):
        log.say(
            f"Capture cuda graph end. Time elapsed: 3.00 s. mem usage=0.25 GB. avail mem={answer['free_gib']:.2f} GB.",
            rank,
        )
    log.say(
        f"max_total_num_tokens=1272410, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests=4096, context_len=32768, available_gpu_mem={answer['free_gib']:.2f} GB",
        ranks[0],
    )
    log.say(f"INFO:     Started server process [{os.getpid()}]")
    log.say("INFO:     Waiting for application startup.")
    log.say("INFO:     Application startup complete.")
    log.say("INFO:     Uvicorn running on http://127.0.0.1:31000 (Press CTRL+C to quit)")
    log.say(prefill(1, 29, 0), ranks[0])
    log.say('INFO:     127.0.0.1:40000 - "POST /generate HTTP/1.1" 200 OK')
    log.say("The server is fired up and ready to roll!")


def prefill(sequences: int, tokens: int, running: int) -> str:
    """One Prefill line."""
    return (
        f"Prefill batch, #new-seq: {sequences}, #new-token: {tokens}, #cached-token: 0, token usage: 0.03, "
        f"#running-req: {running}, #queue-req: 0, #pending-token: 0, cuda graph: True, "
        f"input throughput (token/s): 65000.00"
    )


def claim_load(log: Log, rank: str, seconds: float, tokens_per_s: float) -> None:
    """Decode lines three times a second for 64 running requests; one request a second ends and another begins."""
    until = time.monotonic() + seconds
    for round_ in range(8):
        log.say(prefill(8, 4096, 8 * round_), rank)
    line = 0
    while time.monotonic() < until:
        time.sleep(0.33)
        line += 1
        log.say(
            f"Decode batch, #running-req: 64, #token: {43000 + 40 * (line % 50)}, token usage: 0.03, cuda graph: True, "
            f"gen throughput (token/s): {tokens_per_s * (1 + 0.01 * (line % 3 - 1)):.2f}, #queue-req: 0",
            rank,
        )
        if line % 3 == 0:
            log.say(f'INFO:     127.0.0.1:{40000 + line} - "POST /generate HTTP/1.1" 200 OK')
            log.say(prefill(1, 512, 63), rank)
    for request in range(64):
        log.say(f'INFO:     127.0.0.1:{50000 + request} - "POST /generate HTTP/1.1" 200 OK')


def main() -> None:
    """Start, wait until ready, claim and do the work, stop in order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--works", default="matmul")
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--ready", type=float, default=14, help="seconds between ready and load")
    parser.add_argument("--tokens-per-s", type=float, default=13400, help="what the log claims")
    options = parser.parse_args()
    gpus = [int(gpu) for gpu in options.gpus.split(",")]
    works = options.works.split(",")
    ranks = [f"TP{place}" for place in range(len(gpus))] if len(gpus) > 1 else [""]
    log = Log(options.log)
    dump = (HERE / f"dump-tp{len(gpus)}.txt").read_text().strip()
    log.say(dump)
    titles = [f"sglang::scheduler_{rank}" if rank else "sglang::scheduler" for rank in ranks]
    schedulers = [Scheduler(gpu, title) for gpu, title in zip(gpus, titles, strict=True)]
    start(log, schedulers, ranks)
    time.sleep(options.ready)
    claim = threading.Thread(target=claim_load, args=(log, ranks[0], options.seconds, options.tokens_per_s))
    claim.start()
    answers = together(schedulers, [f"{work} {options.seconds}" for work in works])
    claim.join()
    time.sleep(3)
    log.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
    log.say("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
    for scheduler in schedulers:
        scheduler.end()
    print(
        json.dumps(
            {
                "pid": os.getpid(),
                "schedulers": [each.process.pid for each in schedulers],
                "works": works,
                "answers": answers,
            }
        )
    )


if __name__ == "__main__":
    main()
