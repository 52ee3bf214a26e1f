"""A small library and a storyteller: log stories as observations, without scanner and files."""

from collections.abc import Callable

import pytest

from sglang_watchdog.engine.engine import Engine
from sglang_watchdog.engine.settings import EngineSettings
from sglang_watchdog.model.finding import Change, Finding
from sglang_watchdog.model.observation import Batch, Dump, Gap, Hit, Position, Sample, Watermark
from sglang_watchdog.model.signature import Absence, Condition, Library, Milestone, Pattern, Signature, Window
from sglang_watchdog.model.words import Kind, Phase, Severity, Status

T0 = 1_000_000.0
RELEASES = ("0.5.8", "0.5.9", "0.5.10.post1", "0.5.11", "0.5.12.post1")
MILESTONES = (
    "prelude", "dist-begin", "load-begin", "load-end", "capture-begin", "capture-end", "scheduler-ready", "ready", "sigterm",
    "graceful-exit", "shutdown-complete", "exception", "sigquit", "child-died", "retracted",
)  # fmt: skip


def signature(name: str, kind: Kind, topic: str, severity: Severity = Severity.WARNING, **more: object) -> Signature:
    """A signature with everything that the story does not need left plain."""
    return Signature(
        id=name, revision=1, status=Status.TRIAL, kind=kind, topic=topic, severity=severity, releases=str(more.pop("releases", "")),
        title=name, explanation="", remediation="", **more,  # type: ignore[arg-type]
    )  # fmt: skip


def library(*signatures: Signature, patterns: tuple[str, ...] = ()) -> Library:
    """A library with every milestone as a pattern of its own name."""
    names = {name for s in signatures for name in (*s.match, *s.await_, *s.unless, *s.resolve)}
    names |= {name for s in signatures if s.absence for name in (*s.absence.opportunity, *s.absence.witness)}
    names |= {*patterns, *MILESTONES}
    return Library(
        version="test", signatures={s.id: s for s in signatures}, patterns={n: Pattern(id=n, starts=(n,)) for n in names},
        milestones=tuple(Milestone(name=n, patterns=(n,)) for n in MILESTONES),
        models={"Qwen3MoeForCausalLM": {"is_moe": True}}, releases=RELEASES,
    )  # fmt: skip


class Story:
    """Tells an engine what happens, by seconds from the story's beginning."""

    def __init__(self, lib: Library, settings: EngineSettings | None = None) -> None:
        self.engine = Engine(lib, settings=settings)
        self.changes: list[Change] = []
        self._line = 0

    def _position(self) -> Position:
        self._line += 1
        return Position("server.log", self._line, self._line * 100)

    def _tell(self, observation: object) -> "Story":
        self.changes += self.engine.feed(observation)  # type: ignore[arg-type]
        return self

    def dump(
        self, at: float, *, release: tuple[str, str] | None = ("0.5.11", "0.5.11"), digest: str = "d", **args: object
    ) -> "Story":
        low, high = release or (None, None)
        return self._tell(
            Dump(at_s=T0 + at, position=self._position(), args={"log_level": "info", **args}, digest=digest, text="server_args=",
                 release_min=low, release_max=high)  # type: ignore[arg-type]
        )  # fmt: skip

    def says(self, at: float | None, pattern: str, rank: str = "", header: int | None = None, **captures: str) -> "Story":
        position = self._position()
        head = Position("server.log", header, header * 100) if header else None
        return self._tell(
            Hit(at_s=None if at is None else T0 + at, position=position, pattern=pattern, rank=rank, text=pattern, captures=captures,
                header=head)
        )  # fmt: skip

    def decodes(
        self, at: float, running: int = 32, *, rank: str = "", speed: float = 1000.0, graph: bool = True, queue: int = 0
    ) -> "Story":
        return self._tell(
            Batch(at_s=T0 + at, position=self._position(), rank=rank, text="Decode batch", is_decode=True, running_requests=running,
                  queue_requests=queue, tokens_per_s=speed, graph=graph, kv_used_ratio=0.3)
        )  # fmt: skip

    def prefills(self, at: float, new: int = 1, *, running: int = 0, tokens: int = 100) -> "Story":
        return self._tell(
            Batch(at_s=T0 + at, position=self._position(), text="Prefill batch", is_decode=False, running_requests=running,
                  queue_requests=0, new_sequences=new, new_tokens=tokens)
        )  # fmt: skip

    def sample(self, at: float, gpu: int = 0, **values: object) -> "Story":
        return self._tell(Sample(at_s=T0 + at, gpu=gpu, **values))  # type: ignore[arg-type]

    def gap(self, start: float, end: float) -> "Story":
        return self._tell(Gap(source="server.log", from_s=T0 + start, to_s=T0 + end, reason="truncated"))

    def quiet_until(self, at: float) -> "Story":
        return self._tell(Watermark(source="server.log", at_s=T0 + at))

    def serve(self, start: float, end: float, **how: object) -> "Story":
        """Decode lines once a second."""
        at = start
        while at <= end:
            self.decodes(at, **how)  # type: ignore[arg-type]
            at += 1
        return self

    def start(self, at: float = 0.0, **args: object) -> "Story":
        """A run from its dump to readiness, 40 seconds long."""
        self.dump(at, **args)
        for second, name in ((9, "load-begin"), (12, "load-end"), (20, "capture-begin"), (30, "capture-end"), (40, "ready")):
            self.says(at + second, name)
        return self

    def end(self) -> "Story":
        self.changes += self.engine.finish()
        return self

    @property
    def phase(self) -> Phase:
        assert self.engine.run is not None
        return self.engine.run.phase

    def found(self) -> list[Finding]:
        return self.engine.findings.all()

    def verdict(self, name: str) -> tuple[str, str]:
        """The last run's coverage of a signature: (verdict, because)."""
        run = self.engine.run
        entry = next(c for c in self.engine.coverage() if c.signature == name and (run is None or c.run == run.id))
        return entry.verdict.value, entry.because


@pytest.fixture
def story() -> Callable[..., Story]:
    return lambda *signatures, settings=None: Story(library(*signatures), settings)


def silent_moe(**more: object) -> Signature:
    """The seed's silence: a MoE path that does not announce its config."""
    return signature(
        "moe-silent", Kind.MISSING, "moe.triton-inactive", Severity.INFO, releases=">=0.5.8,<=0.5.12.post1",
        await_=("default config", "tuned config"), applies_when=(Condition(expression="args.moe"),),
        absence=Absence(until="ready", grace_s=10.0, witness=("load-end",), opportunity=("capture-end",), **more),  # type: ignore[arg-type]
    )  # fmt: skip


def low_power(**more: object) -> Signature:
    return signature(
        "low-power", Kind.TELEMETRY, "gpu.power-underused", needs=("ready", "steady"),
        windows=(Window(name="power", function="median", series="power_ratio", over_s=15.0),),
        when=(Condition(expression="w.power < 0.45"), Condition(expression="load.running >= 8.0")), **more,
    )  # fmt: skip


__all__ = ["RELEASES", "T0", "Story", "library", "low_power", "signature", "silent_moe"]
