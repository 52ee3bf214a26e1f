"""The daemon: sources into one queue, one consumer that scans and judges, one writer; the only place with tasks and signals."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from watchfiles import awatch

from ..engine.settings import FlagJudge
from ..library.load import Loaded, load
from ..model.finding import Change
from ..model.observation import Gap, GpuEvent, Opened, Sample, Watermark
from ..model.signature import Library
from ..scan.patterns import PatternSet, compile_patterns
from ..sinks.ledger import Ledger
from ..sinks.ledger_writes import Recorded
from ..sinks.metrics import BoardCollector, Health
from ..sinks.notify.build import notifier, outbox_channels
from ..sinks.notify.notifier import Notifier as TellsPeople
from ..sinks.state import Board, RankLoad, Reload
from ..sinks.web.app import create
from ..sinks.web.broadcast import Broadcast
from ..sinks.web.parts import Parts, WebSettings
from ..sinks.web.security import is_loopback
from ..sinks.web.serving import ListenInvalid, PortTaken, ServerThread, bind
from ..sinks.web.tokens import TokenStore
from ..sources.block import Block
from ..sources.hints import Hints
from ..sources.machine import machine_zone
from ..sources.telemetry_writer import RecordingWriter
from . import logging
from .clock import ClockSteps, LogClock, WallClock
from .feeds import Feed, GpuFeed, gpu_feed, log_feeds, metrics_feed, model_feed, process_feed
from .plan import Plan, ServerPlan
from .pulse import Pulse
from .readers import Item, Readers
from .reload import Configured, Fresh, ReloadRefused, read
from .sight import Sight, unready
from .supervise import supervised
from .systemd import Notifier
from .view import source_statuses
from .watch import ResumeAt, ServerWatch, resume_from_json

QUEUE: Final = 512  # events; when it is full the sources wait, and the log is the buffer
_TOGETHER: Final = 64  # events judged before one commit
_HOUSEKEEPING_S: Final = 1.0
_FIRST_LOOK_S: Final = 0.2
_COVERAGE_EVERY: Final = 5
_UPDATES_EVERY: Final = 10
_FORGET_AFTER: Final = 600  # longer than the longest hold and window of the library: what still holds has been found again
_SETTLE_S: Final = 5.0  # --clock log: quiet for this long, then the newest second is judged too
_BACKLOG: Final = 2_000

log = structlog.get_logger()


class Daemon:
    """Built from a plan, run once."""

    def __init__(
        self,
        plan: Plan,
        version: str,
        *,
        tokens: TokenStore,
        configured: Configured | None = None,
        say: Callable[[str], None] = lambda _: None,
        on_news: Callable[[Sequence[Recorded]], None] | None = None,
        flags: Callable[[Library], FlagJudge] | None = None,
    ) -> None:
        self.plan = plan
        self._version = version
        self._tokens = tokens
        self._configured = configured  # None: a reload reads the signatures only
        self._settings = configured.started_with if configured is not None else None
        self._say = say
        self._on_news = on_news  # called from the ledger's thread
        self._flags = flags
        self._loaded: Loaded = self._load()
        self.library: Library = self._loaded.library
        self._patterns: PatternSet = compile_patterns(self.library, "auto")
        self._inbox: asyncio.Queue[Item] = asyncio.Queue(QUEUE)
        self.watches: dict[str, ServerWatch] = {}
        self._feeds: dict[str, Feed] = {}
        self._gpu_feed: GpuFeed | None = None
        self._recorder = _recording(plan.record)
        self._broadcast = Broadcast()
        self.board = Board(
            version=version, started_at_s=time.time(), servers=[server.name for server in plan.servers], topics=self.library.topics,
            library_version=self.library.version, clock=plan.clock,
        )  # fmt: skip
        self.ledger = Ledger(
            _ledger_path(plan), retention=plan.retention, channels=outbox_channels(plan.notify), on_committed=self._committed,
            on_state=self._ledger_state,
        )  # fmt: skip
        self._notifier = self._new_notifier(plan)
        self._collector = BoardCollector(self.board, health=self._health, signature_verdicts=plan.verdict_metrics)
        self._parts: Parts | None = None
        self._server: ServerThread | None = None
        self._reloading = asyncio.Lock()
        self._folders_changed = asyncio.Event()  # other folders of signatures are to be watched
        self._stop = asyncio.Event()
        self._taken = 0
        self._last_item_s = time.monotonic()
        self._is_settled = True
        self._behind_until_s = 0.0  # the clock was set back: where it stood
        self._loop: asyncio.AbstractEventLoop | None = None
        self._positions: dict[str, Any] = {}
        self._pulse = Pulse()
        self._sight = Sight()
        self._tasks = 0
        self.port = plan.port
        self._say_left_out(self._loaded)

    def _load(self) -> Loaded:
        wanted = self.plan.signatures
        return load(wanted.folders, disable=wanted.disable, override=wanted.override)

    def _say_left_out(self, loaded: Loaded) -> None:
        """At a start a faulty signature is left out; a reload with one would be refused."""
        for fault in loaded.errors:
            log.error("signature left out", part=fault.where, fault=fault.render())
        if loaded.errors:
            first = loaded.errors[0].render().splitlines()[0]
            self.board.set_reload(Reload(was_successful=False, at_s=time.time(), error=f"{len(loaded.errors)} faults, left out at the start; {first}"))

    # --- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until SIGTERM or SIGINT (or `stop`)."""
        self._loop = asyncio.get_running_loop()
        systemd = Notifier()
        self._pulse = Pulse(systemd.watchdog_s)
        with self._signals(systemd):
            server = self._server = self._http_server()
            self._open_watches()
            readers = Readers(self._inbox, self._pulse)
            tasks = [
                asyncio.create_task(self._pump(), name="pump"),
                asyncio.create_task(self._housekeeping(systemd), name="housekeeping"),
                *(asyncio.create_task(readers.log(feed), name=f"source {feed.name}") for feed in self._feeds.values()),
            ]
            if self.plan.clock == "wall":
                is_only = len(self.plan.servers) == 1
                for one in self.plan.servers:
                    processes = process_feed(one, is_only=is_only)
                    tasks.append(asyncio.create_task(readers.processes(one, processes), name="processes"))
                    if one.metrics:
                        tasks.append(asyncio.create_task(readers.asked(one, metrics_feed(one, processes)), name="server metrics"))
                    if one.model_files:
                        tasks.append(asyncio.create_task(readers.asked(one, model_feed(one, partial(self._model_path, one.name))), name="model"))
            tasks.append(asyncio.create_task(self._watch_folders(systemd), name="signatures"))
            if self._gpu_feed is not None:
                tasks.append(asyncio.create_task(readers.gpus(self._gpu_feed), name="gpus"))
            self._look()
            server.start()
            self._say(f"{'https' if self.plan.tls else 'http'}://{self.plan.host}:{self.port}/")
            if self._notifier is not None:
                self._notifier.start()
            systemd.ready(f"watching {len(self.watches)} servers, {len(self._feeds)} logs")
            await self._stop.wait()
            systemd.stopping()
            await self._shut_down(server, tasks)

    def stop(self) -> None:
        self._stop.set()
        self._folders_changed.set()

    async def _shut_down(self, server: ServerThread, tasks: list[asyncio.Task[Any]]) -> None:
        self._broadcast.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not await asyncio.to_thread(server.stop):
            log.error("the HTTP server did not end in time", part="http")
        self._drain()
        if self._notifier is not None:
            await asyncio.to_thread(self._notifier.stop)
        await asyncio.to_thread(self.ledger.close)
        if self._recorder is not None:
            self._recorder.close()

    def _drain(self) -> None:
        """What had been read when the end came is still judged and recorded."""
        while not self._inbox.empty():
            self._record(self._take(self._inbox.get_nowait()))
        self._commit_positions()

    @contextlib.contextmanager
    def _signals(self, notifier: Notifier) -> Any:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self._hang_up(notifier)))
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    async def _watch_folders(self, systemd: Notifier) -> None:
        """The operator's own signatures are read again when one changes; a bad one leaves what holds in force."""

        async def once() -> None:
            while not self._stop.is_set():
                self._folders_changed.clear()
                folders = [folder for folder in self.plan.signatures.folders if folder.is_dir()]
                if not folders:
                    await self._folders_changed.wait()
                    continue
                async for _ in awatch(*folders, stop_event=self._folders_changed, debounce=500):
                    await self._hang_up(systemd)

        await supervised("signatures", once, lambda _: None)

    async def _hang_up(self, notifier: Notifier) -> None:
        notifier.reloading()
        outcome = await self.reload()
        notifier.ready("reloaded" if outcome.was_successful else f"reload refused: {outcome.error}")

    # --- HTTP ------------------------------------------------------------------------------------------------------

    def _http_server(self) -> ServerThread:
        """Bound, not yet started; a taken port moves to the next free one only where the plan allows."""
        try:
            sockets = bind(self.plan.listen, self._tokens, tries=50 if self.plan.port_may_move else 1)
        except (PortTaken, ListenInvalid, OSError) as error:
            raise PortTakenError(str(error)) from error
        self.port = sockets[0].getsockname()[1]
        return ServerThread(self._application(), sockets, lambda: self.plan.limits, self.plan.tls)

    async def _reload_asked(self) -> Reload:
        """`reload` for the server's thread: runs in the daemon's loop, where all else changes too."""
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.reload(), self._loop))

    def _application(self) -> Any:
        self._parts = Parts(
            board=self.board, ledger=self.ledger, library=lambda: self.library, collector=self._collector, broadcast=self._broadcast,
            tokens=self._tokens, reload=self._reload_asked, settings=web_settings(self.plan), health=self._health,
        )  # fmt: skip
        return create(self._parts)

    def _health(self) -> Health:
        told = self._notifier.health() if self._notifier is not None else {}
        size = _size(_ledger_path(self.plan))
        return Health(
            ledger_bytes=size, ledger_durable=self.ledger.state.is_durable, ledger_backlog=self.ledger.backlog, notifications=told,
            tasks=self._tasks,
        )  # fmt: skip

    # --- sources ---------------------------------------------------------------------------------------------------

    def _open_watches(self) -> None:
        known = {name: resume_from_json(value) for name, value in self.ledger.positions().items()}
        hints = Hints() if self.plan.wake == "inotify" else None
        for server in self.plan.servers:
            feeds = log_feeds(server, known, hints)
            self._feeds |= {feed.name: feed for feed in feeds}
            self.watches[server.name] = self._watch(server, {feed.name: feed.resume for feed in feeds if feed.kind != "files"})
        self._gpu_feed = gpu_feed(self.plan)

    def _watch(self, server: ServerPlan, sources: dict[str, ResumeAt]) -> ServerWatch:
        judge = self._flags(self.library) if self._flags is not None else None
        started = replace(
            server.engine, daemon_started_s=self.ledger.first_started_s, flag_judge=judge, awaits_launch=self.plan.clock == "wall"
        )  # processes are watched then, and tell the launch command or that there is none
        zone = server.zone or machine_zone()
        clock = LogClock() if self.plan.clock == "log" else WallClock()
        return ServerWatch(
            replace(server, engine=started), self.library, self._patterns, clock, zone, sources=sources,
            telemetry=self.plan.telemetry.startswith("replay:"),
        )  # fmt: skip

    def _model_path(self, server: str) -> str | None:
        """--model-path of the server's current run."""
        run = self.watches[server].engine.run
        path = run.args.get("model_path") if run is not None else None
        return path if isinstance(path, str) else None

    # --- the consumer ------------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        while True:
            item = await self._inbox.get()
            changes = self._take(item)
            for _ in range(_TOGETHER):
                if self._inbox.empty():
                    break
                changes += self._take(self._inbox.get_nowait())
            self._record(changes)
            while self.ledger.backlog > _BACKLOG:  # noqa: ASYNC110 - the writer is a thread
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)

    def _take(self, item: Item) -> list[Change]:
        """Scan and judge one event. An exception here is our bug: counted, said, and the engine goes on."""
        self._taken += 1
        if not isinstance(item.event, Watermark):
            self._last_item_s, self._is_settled = time.monotonic(), False
        watches = self.watches.values() if item.server is None else [self.watches[item.server]]
        changes: list[Change] = []
        if isinstance(item.event, Sample):
            self.board.add_sample(item.event)
        if self._recorder is not None and item.source == "gpus" and isinstance(item.event, Sample | GpuEvent | Gap):
            self._keep(item.event)
        for watch in watches:
            try:
                changes += _feed(watch, item.event, time.time())
            except Exception:
                self.board.count_engine_error()
                log.exception("engine error", server=watch.plan.name, source=item.source, event_type=type(item.event).__name__)
        return changes

    def _keep(self, event: Sample | GpuEvent | Gap) -> None:
        """Write to the recording; a full disk ends the recording and nothing else."""
        assert self._recorder is not None
        try:
            self._recorder.write(event)
        except OSError as error:
            log.error("recording ended", part="record", error=str(error))
            self._recorder = None

    def _record(self, changes: list[Change]) -> None:
        for change in changes:
            self.board.apply(change)
        positions = {name: value for watch in self.watches.values() for name, value in watch.positions().items()}
        moved = {name: value for name, value in positions.items() if self._positions.get(name) != value}
        if changes or moved:
            self._positions |= moved
            self.ledger.commit(changes, moved)

    def _record_updates(self) -> None:
        """Counts and evidence of findings that go on firing, and the load: not each second's, or a long finding would fill the ledger."""
        self._record([change for watch in self.watches.values() for change in [*watch.engine.findings.updates(), *watch.run_news()]])

    def _commit_positions(self) -> None:
        self._record([])

    def _committed(self, recorded: Any) -> None:
        if not recorded:
            return
        if self._on_news is not None:
            self._on_news(recorded)
        if self._notifier is not None:
            self._notifier.wake()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._broadcast.notify)

    def _new_notifier(self, plan: Plan) -> TellsPeople | None:
        if not plan.notify and not self.plan.notify:
            return None
        return notifier(
            plan.notify, self.ledger, external_url=plan.external_url, on_fault=_notifier_fault, on_failed=_notification_failed
        )

    def _ledger_state(self, state: Any) -> None:
        log.warning("ledger", durable=state.is_durable, because=state.because, do=state.do)

    # --- housekeeping ------------------------------------------------------------------------------------------------

    async def _housekeeping(self, notifier: Notifier) -> None:
        beats, taken = 0, -1
        steps = ClockSteps(time.time() - time.monotonic())
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S if beats else _FIRST_LOOK_S)
            beats += 1
            if self.plan.clock == "wall":
                self._mind_step(steps.look(time.time() - time.monotonic()))
            self._settle()
            if beats % _UPDATES_EVERY == 0:
                self._record_updates()
            if beats == _FORGET_AFTER and self.plan.clock == "wall":
                self._expire_what_was_before()
            if self.plan.clock == "wall":
                unseen = self._sight.unseen
                self._record([change for watch in self.watches.values() for change in watch.unstick(time.monotonic(), unseen)])
            for name, watch in self.watches.items():
                run = watch.engine.run
                ranks = run.load.by_rank() if run is not None else {}
                self.board.set_load(name, {rank: RankLoad(**values) for rank, values in ranks.items()})
                if beats % _COVERAGE_EVERY == 1:
                    self.board.set_coverage(name, watch.engine.coverage_of_newest())
                await asyncio.sleep(0)
            self._look()
            # A stuck consumer leaves events waiting and the count still: then no ping. While the queue is full the sources wait for it.
            hanging = self._pulse.hanging() if not self._inbox.full() else []
            if hanging:
                log.error("part hangs", part=hanging[0], parts=hanging, do="the service manager starts the daemon again if WatchdogSec= is set")
            elif notifier.watchdog_s is not None and (self._taken != taken or self._inbox.empty()):
                notifier.alive(f"{self._taken} events judged, {self._inbox.qsize()} waiting")
            taken = self._taken

    def _look(self) -> None:
        """Show how sources and GPUs are doing, and whether all that should be read is."""
        sources = source_statuses(self.watches, self._feeds, self._gpu_feed)
        self.board.set_sources(sources)
        self.board.set_ready(unready(sources))
        self.board.set_nvml(is_up=self._gpu_feed.is_up if self._gpu_feed is not None else None)
        self._sight.look(sources)
        self._tasks = len(asyncio.all_tasks())

    def _mind_step(self, step_s: float) -> None:
        """After a step back the engines' time stands still until the clock is where it was: what waits for more lines is judged
        without them meanwhile."""
        if step_s:
            self._behind_until_s = time.time() - step_s if step_s < 0 else 0.0
            do = "" if step_s > 0 else "to have windows and silences judged before the clock is where it was, restart the daemon"
            log.warning("the clock was set", by_s=round(step_s), do=do)
        if time.time() < self._behind_until_s:
            self._record([change for watch in self.watches.values() for change in watch.settle()])

    def _settle(self) -> None:
        if self.plan.clock == "log" and not self._is_settled and self._inbox.empty():
            if time.monotonic() - self._last_item_s < _SETTLE_S:
                return
            self._is_settled = True
            self._record([change for watch in self.watches.values() for change in [*watch.settle(), *watch.run_news(at_once=True)]])
            self._record_updates()

    def _expire_what_was_before(self) -> None:
        """Open findings of an earlier life of the daemon that this one has not found again ended while nobody watched."""
        for name, watch in self.watches.items():
            self.ledger.expire_unseen(name, [finding.id for finding in watch.engine.findings.all()], at_s=time.time())

    async def reload(self) -> Reload:
        """Read configuration and signatures again; refused whole if anything is wrong, so that a typo never blinds a running watchdog."""
        async with self._reloading:
            try:
                fresh = await asyncio.to_thread(read, self.plan, self._settings, self._configured)
            except ReloadRefused as fault:
                waiting = self.board.view().reload.needs_restart
                outcome = Reload(was_successful=False, at_s=time.time(), error=str(fault), needs_restart=waiting)
                log.error("reload refused", error=str(fault), do="mend it and reload again; the old one stays in force")
            else:
                await self._take_up(fresh)
                outcome = Reload(at_s=time.time(), changed=fresh.changed, needs_restart=fresh.needs_restart)
                log.info("reloaded", signatures=len(self.library.signatures), changed=list(fresh.changed))
                if fresh.needs_restart:
                    log.warning("changed, needs a restart", settings=list(fresh.needs_restart))
            self.board.set_reload(outcome)
            return outcome

    async def _take_up(self, fresh: Fresh) -> None:
        """Put in force what was read and checked: nothing here is refused any more."""
        old, plan = self.plan, fresh.plan
        self.plan, self._settings = plan, fresh.settings
        if self._configured is not None:
            self._tokens.replace(fresh.tokens, plan.token_file)
            logging.configure("debug" if self._configured.is_verbose else plan.log_level)
        if self._parts is not None and self._server is not None:
            self._parts.settings = web_settings(plan)
            self._server.renew_certificate()
        self._collector.tell_verdicts(plan.verdict_metrics)
        self.ledger.change(retention=plan.retention, channels=outbox_channels(plan.notify))
        self._loaded, self.library, self._patterns = fresh.library, fresh.library.library, fresh.patterns
        changes = []
        for server in plan.servers:
            changes += self.watches[server.name].reload(self.library, self._patterns, server)
        self.board.set_library(self.library.topics, self.library.version)
        self._record(changes)
        if plan.signatures.folders != old.signatures.folders:
            self._folders_changed.set()
        if (plan.notify, plan.external_url) != (old.notify, old.external_url):
            await asyncio.to_thread(self._replace_notifier, plan)

    def _replace_notifier(self, plan: Plan) -> None:
        """The old threads end first, or one message would be told twice; what is under way may take its deadline."""
        old = self._notifier
        if old is not None:
            old.stop()
        new = self._new_notifier(plan)
        if new is not None and old is not None:
            new.count_on(old)
        self._notifier = new
        if new is not None:
            new.start()


class PortTakenError(Exception):
    """The address cannot be bound."""


def web_settings(plan: Plan) -> WebSettings:
    """How the HTTP surface of this plan may be reached."""
    is_here = plan.host == "localhost" or is_loopback(plan.host)
    return WebSettings(
        is_loopback=is_here, external_url=plan.external_url, root_path=plan.root_path, allowed_hosts=plan.allowed_hosts,
        metrics_need_token=(not is_here or plan.reads_need_token) and not plan.metrics_open, reads_need_token=plan.reads_need_token,
        limits=plan.limits,
    )  # fmt: skip


def _notifier_fault(channel: str, fault: BaseException) -> None:
    log.error("fault of ours in a notification", part=channel, error=f"{type(fault).__name__}: {fault}")


def _notification_failed(channel: str, why: str) -> None:
    log.warning("notification failed", part=channel, error=why)


def _feed(watch: ServerWatch, event: Any, wall_s: float) -> list[Change]:
    if isinstance(event, Block):
        return watch.on_block(event, wall_s)
    if isinstance(event, Gap | Opened | Watermark) and event.source != "gpus":
        return watch.on_event(event)
    return watch.on_observation(event, wall_s) if not hasattr(event, "after") else []


def _recording(path: Path | None) -> RecordingWriter | None:
    """A place that cannot be written to costs the recording, not the watching."""
    try:
        return RecordingWriter(path) if path is not None else None
    except OSError as error:
        log.error("not recording", part="record", path=str(path), error=str(error), do="name a file in a folder that this user may write to")
        return None


def _size(ledger: Path | None) -> int:
    """Bytes on disk, the write-ahead log with it."""
    if ledger is None:
        return 0
    return sum(part.stat().st_size for part in (ledger, ledger.with_name(ledger.name + "-wal")) if part.exists())


def _ledger_path(plan: Plan) -> Path | None:
    return plan.state_dir / "ledger.sqlite3" if plan.state_dir is not None else None

