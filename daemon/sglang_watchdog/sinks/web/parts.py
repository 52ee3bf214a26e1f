"""What the HTTP surface is built from, and how it may be reached."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ...model.observation import Command
from ...model.signature import Library
from ..ledger import Ledger
from ..metrics import BoardCollector, Health
from ..state import Board, Reload
from .broadcast import Broadcast
from .limits import Limits
from .tokens import TokenStore


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """`is_loopback`: the sockets are bound to loopback addresses only, so that reading needs no token."""

    is_loopback: bool = True
    external_url: str = ""  # as people reach it: links in notifications, its host is allowed
    root_path: str = ""  # path prefix of a proxy, which may strip it or leave it
    allowed_hosts: tuple[str, ...] = ()  # further names in the Host header
    metrics_need_token: bool = False
    reads_need_token: bool = False  # also on loopback, where several people share the machine
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True, kw_only=True)
class Parts:
    """`settings` is replaced as a whole by a reload, from the daemon's thread: read it anew for each request. The rest stays."""

    board: Board
    ledger: Ledger
    library: Callable[[], Library]
    collector: BoardCollector
    broadcast: Broadcast
    tokens: TokenStore
    reload: Callable[[], Awaitable[Reload]]
    settings: WebSettings = field(default_factory=WebSettings)
    health: Callable[[], Health] = Health
    command: Callable[[Command], None] = lambda _: None  # operators' words, for the engine's record
    now: Callable[[], float] = time.time
