"""What CEL conditions and a finding's words see of a run: the roots args, model, gpu, run and load."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from ..model.finding import Evidence
from ..model.observation import Json
from ..model.signature import Signature
from ..model.words import Severity
from .compiled import CompiledSignature
from .conditions import Context
from .gpus import GpuState, pairs_of
from .load import Steady
from .runs import RunState
from .state import EngineState
from .windows import Scene
from .words import fill

_APART_S = 120.0  # a recording may begin before the first line and end after the last
_BLOCKED = ("unreadable", "failed", "permission")  # reasons of gaps that say that nothing could be read, not that bytes were lost
_LOOP = 3  # starts from which on it is asked what they have in common


class Roots:
    """Conditions and summaries see a run through these: args, model, gpu, run, load. Filled once a moment, not once a signature."""

    def __init__(self, state: EngineState) -> None:
        self.state = state
        self._contexts: dict[str, Context] = {}
        self._versions: dict[str, int] = {}
        self._filled_for: tuple[str, float | None, int] | None = None
        self._steady: Steady | None = None
        self._steady_at: float | None = None
        self._load_root: dict[str, Json] = {}

    def stale(self) -> None:
        """Something happened: what was filled for this moment may no longer hold."""
        self._filled_for = None

    def forget(self, run: str | None = None) -> None:
        """Drop what is kept for a run, or for all after a reload."""
        for key in [run] if run is not None else list(self._contexts):
            self._contexts.pop(key, None)
            self._versions.pop(key, None)

    def context(self, run: RunState | None, at_s: float | None) -> Context:
        """The roots as they are at `at_s`."""
        key = run.id if run is not None else ""
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = Context(self.state.compiled.wanted)
        filled_for = (key, at_s, run.version if run is not None else 0)
        if self._filled_for == filled_for:  # a tick asks for the same moment once for each signature
            return context
        now = at_s if at_s is not None else 0.0
        if run is not None:
            if self._versions.get(key) != run.version:
                context.put("args", run.args)
                context.put("model", run.root("model"))
                self._versions[key] = run.version
            context.put("run", {**self._source_facts(run, now), **run.run_root(now)})
            load = self._load_root if self._steady_at == at_s else self.root_of_load(run, now)
            context.put("load", load)
        else:
            context.put("run", self._source_facts(None, now))
        context.put("gpu", self.gpu_root(run))
        self._filled_for = filled_for if self._steady_at == at_s else None
        return context

    def _source_facts(self, run: RunState | None, now_s: float) -> dict[str, Json]:
        """What the sources as a whole show, for the source.* signatures."""
        out: dict[str, Json] = {name: sum(_count(source, name) for source in self.state.sources.values())
                                for name in ("lines", "sglang_lines", "odd_lines")}  # fmt: skip
        lost = [gap for name, source in self.state.sources.items() if name != "gpus" for gap in _list(source["gaps"])]
        reasons = [str(gap["reason"]) for gap in lost if isinstance(gap, dict)]
        blocked = [reason for reason in reasons if reason.startswith(_BLOCKED)]
        out["gaps"] = len(reasons) - len(blocked)
        out["unreadable_sources"] = len(blocked)
        if reasons:
            out["gap_reason"] = reasons[-1]
        if self.state.log_s is not None and self.state.sample_s is not None:
            late, early = max(self.state.log_s[0], self.state.sample_s[0]), min(self.state.log_s[1], self.state.sample_s[1])
            out["clock_overlap"] = late <= early + _APART_S
        zones = {name: zone for name, source in self.state.sources.items() if isinstance(zone := source.get("zone"), dict)}
        if zones:
            name = next((name for name, zone in zones.items() if zone["given"] != zone["arrival"]), next(iter(zones)))
            zone = zones[name]
            out |= {"zone_contradicted": zone["given"] != zone["arrival"], "zone_log": name, "zone_given": zone["given"], "zone_arrival": zone["arrival"]}
        failed = self.state.failed_starts(run, now_s)
        out["starts_30m"] = len(failed) + 1  # this one too
        if len(failed) + 1 >= _LOOP and run is not None:
            out |= self._loop_facts([*failed, run])
        if run is not None:
            out["access_log"] = run.load.answered_ever > 0
            silent_s = self.state.silent_before_watch_s(run, now_s)
            if silent_s is not None:
                out["silent_before_watch_s"] = float(silent_s)
            if run.last_line_s is not None:
                out["log_silence_s"] = float(max(0.0, now_s - run.last_line_s))
            if run.release.min is not None:
                out["release_verified"] = self.state.releases.knows(run.release)
        return out

    def _loop_facts(self, starts: Sequence[RunState]) -> dict[str, Json]:
        """How far apart starts lie, and what most of them ended in."""
        out: dict[str, Json] = {}
        times = [each.started_at_s for each in starts if each.started_at_s is not None]
        if len(times) > 1:
            out["starts_every_s"] = float(median(later - earlier for earlier, later in pairwise(times)))
        ids = {each.id for each in starts}
        failures = [one for one in self.state.findings.all() if one.run in ids and one.severity is Severity.CRITICAL]
        own = {one.id for one in failures}
        causes = [one for one in failures if one.explained_by not in own]
        if causes:
            common, _ = Counter(one.signature for one in causes).most_common(1)[0]
            out["starts_cause"] = next(one.summary for one in reversed(causes) if one.signature == common).rstrip(".")
        return out

    def gpu_root(self, run: RunState | None) -> dict[str, Json]:
        """gpu.*: what telemetry, the log and the settings say of the server's GPUs."""
        out = run.root("gpu") if run is not None else {}
        gpus = self.state.server_gpus() if run is not None else list(self.state.gpus.values())
        if gpus:
            out["count"] = len(gpus)
            out |= pairs_of(gpus)
            name = next((gpu.name for gpu in gpus if gpu.name), None)
            if name is not None:
                out["name"] = name
                out |= {path.removeprefix("gpu."): value for path, value in self.state.products.facts_of("gpu.name", name).items()}
            limits = [gpu.last.power_limit_w for gpu in gpus if gpu.last and gpu.last.power_limit_w is not None]
            if limits:
                out["power_limit_w"] = float(min(limits))
        if self.state.settings.expected_power_limit_w is not None:
            out["expected_power_limit_w"] = float(self.state.settings.expected_power_limit_w)
        return out

    def words(self, signature: Signature, context: Context, values: Mapping[str, object], w: Mapping[str, float]) -> str:
        """A finding's summary with this run's own values."""
        template = signature.summary or signature.title
        roots: dict[str, Mapping[str, Json]] = {root: context.values(root) for root in ("args", "model", "gpu", "run", "load")}
        roots["w"] = dict(w)
        return fill(template, roots, values)

    def fact_evidence(self, item: CompiledSignature, run: RunState | None) -> tuple[Evidence, ...]:
        """At most eight facts that the conditions of `item` read."""
        if run is None:
            return ()
        found = [run.fact_evidence(path) for path in item.fact_paths]
        return tuple(fact for fact in found if fact is not None)[:8]

    def tick_steady(self, run: RunState | None, at_s: float) -> None:
        """Fill load and its steady window for one second."""
        self._steady_at = at_s
        self._steady = run.load.steady(at_s) if run is not None and not run.closed else None
        if run is not None and self._steady is not None:
            run.yardstick.judge(self.state.known_of(run), self._steady)
        self._load_root = self.root_of_load(run, at_s)

    def root_of_load(self, run: RunState | None, at_s: float) -> dict[str, Json]:
        """load.*, under steady load with the ceiling and the run's own best."""
        if run is None:
            return {}
        steady = self._steady if self._steady_at == at_s else None
        return run.load.root(at_s) | (run.yardstick.root(steady) if steady is not None else {})

    def scene(self, item: CompiledSignature, run: RunState | None, at_s: float, gpus: Sequence[GpuState]) -> Scene:
        """What a window function may look at."""
        if self._steady_at != at_s:
            self.tick_steady(run, at_s)
        matches = self.state.matches.get((run.id if run else "", item.signature.id), {})
        return Scene(at_s, run.load if run else None, self._steady, self._load_root, gpus, matches, self.state.silent_before_watch_s(run, at_s))


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _count(source: Mapping[str, Json], name: str) -> int:
    value = source.get(name)
    return value if isinstance(value, int) else 0
