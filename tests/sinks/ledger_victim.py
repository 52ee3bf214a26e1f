"""Writes changes to a ledger as fast as it can and says each one once it is durable. Made to be killed.

Usage: ledger_victim.py PATH FIRST
"""

import sys
from pathlib import Path

from sglang_watchdog.model.words import State
from sglang_watchdog.sinks.ledger import Ledger
from sinks import material


def main(path: str, first: int) -> None:
    ledger = Ledger(Path(path))
    print("ready", ledger.positions().get("server.log", 0), flush=True)
    n = first
    while True:
        offset = n * 100
        was = None if n % 3 == 0 else State.FIRING
        ledger.commit([material.fired(f"f{n // 3}", at_s=material.T0 + n, was=was, count=n % 3 + 1)], {"server.log": offset}).result()
        print(n, flush=True)
        n += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
