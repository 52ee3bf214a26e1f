"""From settings to the threads that tell people."""

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..ledger import Ledger
from . import outbox
from .notifier import AlertPeer, Notifier, OnFailed, Post, Worker
from .settings import AlertmanagerSettings, ChatSettings, Pace, WebhookSettings
from .webhook import Chat, Webhook

Settings: TypeAlias = WebhookSettings | ChatSettings | AlertmanagerSettings


def outbox_channels(settings: Sequence[Settings]) -> tuple[str, ...]:
    """The channels for which the ledger must keep an outbox: give them to it when it is opened."""
    return tuple(each.name for each in settings if not isinstance(each, AlertmanagerSettings))


def notifier(
    settings: Sequence[Settings],
    ledger: Ledger,
    *,
    pace: Pace = Pace(),  # noqa: B008 - frozen
    external_url: str = "",
    now: Callable[[], float] = time.time,
    jitter: Callable[[], float] = random.random,
    on_fault: Callable[[str, BaseException], None] = lambda *_: None,
    on_failed: OnFailed = lambda *_: None,
) -> Notifier:
    """Everything that tells people, not yet started. Call its `wake` whenever the ledger has committed. `on_failed` hears of
    each delivery that failed, with the reason."""
    workers: list[Worker] = []
    for each in settings:
        if isinstance(each, AlertmanagerSettings):
            workers += [AlertPeer(each, url, ledger, pace=pace, external_url=external_url, now=now, on_failed=on_failed) for url in each.urls]
        else:
            channel = Webhook(each, external_url) if isinstance(each, WebhookSettings) else Chat(each, external_url)
            workers.append(Post(each.name, channel, ledger, wanted=each.wanted, pace=pace, now=now, jitter=jitter, on_failed=on_failed))
    ledger.write(lambda connection: outbox.close_others(connection, outbox_channels(settings), now())).result()
    return Notifier(workers, ledger, on_fault=on_fault)
