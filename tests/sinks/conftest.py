"""A daemon's sinks without its sources: board, ledger and the HTTP surface, filled with one server's story."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from sglang_watchdog.model.observation import Command
from sglang_watchdog.sinks.ledger import Ledger
from sglang_watchdog.sinks.metrics import BoardCollector
from sglang_watchdog.sinks.state import Board, Reload
from sglang_watchdog.sinks.web import app
from sglang_watchdog.sinks.web.broadcast import Broadcast
from sglang_watchdog.sinks.web.parts import Parts, WebSettings
from sglang_watchdog.sinks.web.tokens import Token, TokenScope, TokenStore, make
from sinks import material

HOST = "http://127.0.0.1:17853"


@dataclass
class Daemon:
    """The wired sinks, a client without token, and one token of each scope."""

    board: Board
    ledger: Ledger
    broadcast: Broadcast
    tokens: dict[TokenScope, str]
    known: tuple[Token, ...]
    commands: list[Command] = field(default_factory=list)
    outcome: Reload = field(default_factory=lambda: Reload(at_s=material.T0))
    now_s: float = material.T0 + 100

    def parts(self, **settings: object) -> Parts:
        async def reload() -> Reload:
            return self.outcome

        return Parts(
            board=self.board,
            ledger=self.ledger,
            library=lambda: material.LIBRARY,
            collector=BoardCollector(self.board),
            broadcast=self.broadcast,
            tokens=TokenStore(self.known),
            reload=reload,
            settings=WebSettings(**settings),
            command=self.commands.append,
            now=lambda: self.now_s,
        )

    def client(self, scope: TokenScope | None = None, **settings: object) -> TestClient:
        headers = {} if scope is None else {"authorization": f"Bearer {self.tokens[scope]}"}
        return TestClient(app.create(self.parts(**settings)), base_url=HOST, headers=headers)

    def tell(self, *changes: object) -> None:
        """Hand changes to board and ledger, as the runtime does, and wait until they are recorded."""
        for change in changes:
            self.board.apply(change)
        self.ledger.commit(changes).result(10)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = {scope: make(f"{scope}-token", [scope]) for scope in TokenScope}
    board = Board(version="0.1.0", started_at_s=material.T0, servers=["chat"], topics=material.TOPICS, library_version="1.0.0")
    broadcast = Broadcast()
    holder: list[Daemon] = []
    ledger = Ledger(
        tmp_path / "state" / "ledger.db",
        now=lambda: holder[0].now_s if holder else material.T0,
        on_committed=lambda _: broadcast.notify(),
    )
    daemon = Daemon(
        board,
        ledger,
        broadcast,
        {scope: text for scope, (text, _) in made.items()},
        tuple(token for _, token in made.values()),
    )
    holder.append(daemon)
    board.set_ready()
    yield daemon
    ledger.close()


@pytest.fixture
def story(daemon: Daemon) -> Daemon:
    """One serving run with a firing finding, one folded under it, a resolved one, two GPUs and a source with a gap."""
    daemon.tell(
        material.moved(),
        material.fired("cause", explains=("effect",)),
        material.fired("effect", explained_by="cause"),
        material.fired("over"),
        material.resolved("over"),
    )
    for gpu in (0, 1):
        daemon.board.add_sample(material.sample(gpu, material.T0))
        daemon.board.add_sample(material.sample(gpu, material.T0 + 1, power_w=200.0))
    daemon.board.set_sources([material.source()])
    daemon.board.set_coverage("chat", material.VERDICTS)
    daemon.board.set_load("chat", material.LOAD)
    daemon.board.set_nvml(is_up=True)
    return daemon
