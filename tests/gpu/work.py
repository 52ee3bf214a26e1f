"""One process with real work on one GPU, told what to do line by line. Needs PyTorch.

Commands on standard input, one answer (a JSON line) each on standard output:

    context            create the CUDA context                      -> {"free_gib": 139.1}
    take GIB           allocate memory and keep it                  -> {"free_gib": 130.0}
    leave GIB          allocate all but so much                     -> {"free_gib": 20.0}
    WORK SECONDS       matmul, spin, h2d, d2h, d2d, peer or idle    -> {"seconds": .., "bytes_per_s": ..}
    exit
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch


class Worker:
    """The GPU, the memory held on it, and the kinds of work."""

    def __init__(self, gpu: int) -> None:
        self.device = torch.device("cuda", gpu)
        self.held: list[torch.Tensor] = []

    def free(self) -> dict[str, float]:
        """What the driver calls free, as SGLang's `avail mem=` does."""
        return {"free_gib": torch.cuda.mem_get_info(self.device)[0] / (1 << 30)}

    def context(self) -> dict[str, float]:
        """Create the context, as the first thing that an SGLang scheduler does on its GPU."""
        torch.cuda.set_device(self.device)
        torch.zeros(1, device=self.device)
        torch.cuda.synchronize()
        return self.free()

    def take(self, gib: float) -> dict[str, float]:
        """Allocate and keep."""
        self.held.append(torch.empty(int(gib * (1 << 30)), dtype=torch.uint8, device=self.device))
        return self.free()

    def leave(self, gib: float) -> dict[str, float]:
        """Allocate until so much is left."""
        return self.take(self.free()["free_gib"] - gib)

    def work(self, kind: str, seconds: float) -> dict[str, float]:
        """Repeat one kind of work for so long and tell its rates."""
        if kind == "idle":
            time.sleep(seconds)
            return {"seconds": seconds}
        step, amount, unit = getattr(self, f"_{kind}")()
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            step()
            steps += 1
            torch.cuda.synchronize()
        took = time.perf_counter() - began
        return {"seconds": took, unit: steps * amount / took}

    def _matmul(self) -> tuple[Callable[[], Any], float, str]:
        """Dense bf16 products: all SMs, all tensor pipes, the power limit."""
        size = 8192
        a, b = (torch.randn(size, size, device=self.device, dtype=torch.bfloat16) for _ in range(2))

        def step() -> None:
            for _ in range(8):
                torch.matmul(a, b)

        return step, 8 * 2.0 * size**3, "flop_per_s"

    def _spin(self) -> tuple[Callable[[], Any], float, str]:
        """One thread that counts: utilisation 100, nothing done. What a rank that waits for another looks like."""
        return (lambda: torch.cuda._sleep(50_000_000)), 1.0, "kernels_per_s"  # type: ignore[attr-defined]

    def _h2d(self) -> tuple[Callable[[], Any], float, str]:
        return self._copy(torch.empty(1 << 28, dtype=torch.uint8).pin_memory(), self._buffer())

    def _d2h(self) -> tuple[Callable[[], Any], float, str]:
        return self._copy(self._buffer(), torch.empty(1 << 28, dtype=torch.uint8).pin_memory())

    def _d2d(self) -> tuple[Callable[[], Any], float, str]:
        """Bytes copied; DRAM reads and writes each of them once."""
        return self._copy(self._buffer(1 << 32), self._buffer(1 << 32))

    def _peer(self) -> tuple[Callable[[], Any], float, str]:
        """To the next GPU, over NVLink where there is one."""
        other = torch.device("cuda", (self.device.index + 1) % torch.cuda.device_count())
        return self._copy(self._buffer(), torch.empty(1 << 28, dtype=torch.uint8, device=other))

    def _buffer(self, size: int = 1 << 28) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=self.device)

    @staticmethod
    def _copy(source: torch.Tensor, target: torch.Tensor) -> tuple[Callable[[], Any], float, str]:
        def step() -> None:
            for _ in range(8):
                target.copy_(source, non_blocking=True)

        return step, 8.0 * source.numel(), "bytes_per_s"


def main() -> None:
    """Answer commands until `exit` or the end of input."""
    worker = Worker(int(sys.argv[1]))
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "exit":
            break
        if command == "context":
            answer = worker.context()
        elif command in ("take", "leave"):
            answer = getattr(worker, command)(float(rest[0]))
        else:
            answer = worker.work(command, float(rest[0]))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
