"""One thread for each channel, so that a dead one keeps nobody else waiting. Everything it must not forget is in the
ledger."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..ledger import Ledger, LedgerClosed
from ..state import ChannelHealth
from . import alertmanager, outbox
from .http import DeliveryFailed
from .outbox import Drop, PutOff, Tell, Waiting
from .settings import AlertmanagerSettings, Pace, Wanted
from .webhook import Channel

_SLEEP_MOST_S: Final = 60.0
_GATHER_S: Final = 1.0  # after news, so that what belongs together goes together


OnFailed = Callable[[str, str], None]  # channel, reason


@dataclass(slots=True)
class Tally:
    """What a channel did since the start."""

    sent: int = 0
    failed: int = 0
    error: str = ""  # of the newest attempt; "" after a success
    sent_s: float | None = None  # the newest success


class Post:
    """Brings the outbox of one channel to its people."""

    def __init__(
        self,
        name: str,
        channel: Channel,
        ledger: Ledger,
        *,
        wanted: Wanted,
        pace: Pace,
        now: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
        on_failed: OnFailed = lambda *_: None,
    ) -> None:
        self.name, self.tally = name, Tally()
        self._channel, self._ledger, self._wanted, self._pace = channel, ledger, wanted, pace
        self._now, self._jitter, self._on_failed = now, jitter, on_failed

    def turn(self) -> float:
        """Handle everything that is due. Returns the seconds until something is due again."""
        self._ledger.write(lambda connection: outbox.bound(connection, self.name, self._pace.queue, self._now())).result()
        for waiting in self._ledger.read(lambda connection: outbox.due(connection, self.name, self._now())):
            self._handle(waiting)
        following_s = self._ledger.read(lambda connection: outbox.next_due(connection, self.name))
        return _SLEEP_MOST_S if following_s is None else min(max(0.0, following_s - self._now()), _SLEEP_MOST_S)

    def _handle(self, waiting: Waiting) -> None:
        decision = outbox.decide(waiting, self._wanted, self._pace, self._now())
        if isinstance(decision, Drop):
            self._ledger.write(lambda connection: outbox.drop(connection, self.name, waiting)).result()
        elif isinstance(decision, PutOff):
            until_s = decision.until_s
            self._ledger.write(lambda connection: outbox.put_off(connection, self.name, waiting, until_s)).result()
        else:
            self._tell(waiting, decision)

    def _tell(self, waiting: Waiting, decision: Tell) -> None:
        assert waiting.finding is not None
        try:
            self._channel.tell(waiting.finding, waiting.change_id, told_before=waiting.told_state is not None, now_s=self._now())
        except DeliveryFailed as fault:
            self._failed(waiting, fault)
            return
        self.tally.sent += 1
        self.tally.error, self.tally.sent_s = "", self._now()
        self._ledger.write(lambda connection: outbox.told(connection, self.name, waiting, decision.state, self._now())).result()

    def _failed(self, waiting: Waiting, fault: DeliveryFailed) -> None:
        self.tally.failed += 1
        self.tally.error = str(fault)
        self._on_failed(self.name, str(fault))
        now_s, pace = self._now(), self._pace
        if fault.is_final or now_s - waiting.queued_s > pace.deadline_s:
            self._ledger.write(lambda connection: outbox.bury(connection, self.name, waiting, str(fault), now_s)).result()
            return
        pause_s = min(pace.backoff_s * 2 ** min(waiting.attempts, 20), pace.backoff_most_s) * (0.5 + self._jitter())
        self._ledger.write(lambda connection: outbox.failed(connection, self.name, waiting, now_s + pause_s, str(fault))).result()


class AlertPeer:
    """Keeps one Alertmanager informed."""

    def __init__(
        self,
        settings: AlertmanagerSettings,
        url: str,
        ledger: Ledger,
        *,
        pace: Pace,
        external_url: str = "",
        now: Callable[[], float] = time.time,
        on_failed: OnFailed = lambda *_: None,
    ) -> None:
        self.name, self.tally = alertmanager.channel(settings, url), Tally()
        self._settings, self._url, self._ledger, self._pace = settings, url, ledger, pace
        self._external_url, self._now, self._on_failed = external_url, now, on_failed

    def turn(self) -> float:
        """Send everything once. Returns the seconds until the next sending, sooner after a failure."""
        now_s = self._now()
        batch = self._ledger.read(
            lambda connection: alertmanager.alerts(connection, self._settings, self._url, now_s=now_s, external_url=self._external_url)
        )
        try:
            alertmanager.push(self._settings, self._url, batch, timeout_s=self._settings.timeout_s)
        except DeliveryFailed as fault:
            self.tally.failed += 1
            self.tally.error = str(fault)
            self._on_failed(self.name, str(fault))
            return min(self._pace.backoff_s, self._settings.resend_s)
        self.tally.sent += len(batch)
        self.tally.error, self.tally.sent_s = "", now_s
        self._ledger.write(lambda connection: alertmanager.remember(connection, self._settings, self._url, batch, now_s)).result()
        return self._settings.resend_s


Worker = Post | AlertPeer


class Notifier:
    """Runs the workers. `wake` is for the ledger's `on_committed`; `on_fault` hears of faults that are ours, not the
    channel's."""

    def __init__(
        self,
        workers: Sequence[Worker],
        ledger: Ledger,
        *,
        on_fault: Callable[[str, BaseException], None] = lambda *_: None,
        gather_s: float = _GATHER_S,
    ) -> None:
        self._workers, self._ledger, self._on_fault, self._gather_s = tuple(workers), ledger, on_fault, gather_s
        self._wakes = {worker.name: threading.Event() for worker in workers}
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(worker,), name=f"notify {worker.name}", daemon=True) for worker in workers]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Something changed. Callable from any thread."""
        for event in self._wakes.values():
            event.set()

    def stop(self, timeout_s: float = 15.0) -> None:
        """End the threads; what was not told stays in the ledger."""
        self._stopping.set()
        self.wake()
        ends_at = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, ends_at - time.monotonic()))

    def health(self) -> dict[str, ChannelHealth]:
        """How each channel is doing."""
        names = [worker.name for worker in self._workers]
        counted = self._ledger.read(lambda connection: [outbox.counts(connection, name) for name in names])
        return {
            worker.name: ChannelHealth(
                sent=worker.tally.sent, failed=worker.tally.failed, waiting=waiting, dead=dead, error=worker.tally.error,
                sent_s=worker.tally.sent_s,
            )
            for worker, (waiting, dead) in zip(self._workers, counted, strict=True)
        }  # fmt: skip

    def count_on(self, earlier: "Notifier") -> None:
        """Go on with the tallies of the notifier that this one takes the place of: counters do not fall at a reload."""
        known = {worker.name: worker.tally for worker in earlier._workers}
        for worker in self._workers:
            worker.tally = known.get(worker.name, worker.tally)

    def _run(self, worker: Worker) -> None:
        wake = self._wakes[worker.name]
        while not self._stopping.is_set():
            wake.clear()
            try:
                pause_s = worker.turn()
            except LedgerClosed:
                return
            except Exception as fault:  # a fault of ours must not end the telling for good
                self._on_fault(worker.name, fault)
                pause_s = _SLEEP_MOST_S
            if wake.wait(pause_s) and not self._stopping.is_set():
                self._stopping.wait(self._gather_s)
