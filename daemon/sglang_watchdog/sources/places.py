"""Opens the source for a place as the configuration names it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, Protocol, TypeAlias

from ..model.observation import Gap, Opened, Watermark
from .block import Block, Moved
from .container import ContainerUnknown, docker_log, pod_log_pattern
from .follow import TailSource
from .globs import GlobSource, has_pattern
from .hints import Hints
from .journal import JournalQuery, JournalSource
from .kernel import KernelSource
from .position import JournalPosition, KernelPosition, SourcePosition, TailPosition
from .status import SourceStatus
from .stdin import StdinSource

ByteEvent: TypeAlias = Block | Moved | Gap | Opened | Watermark

SCHEMES: Final = ("journal", "docker", "cri", "kmsg")


class ByteSource(Protocol):
    """Anything that delivers the bytes of a log. `format` is what the scanner is to take them for."""

    name: str
    format: str

    @property
    def turned_s(self) -> float:
        """When its loop last turned, monotonic clock: also when there was nothing to read."""
        ...

    def events(self) -> AsyncGenerator[ByteEvent, None]:
        """Yield for ever, or until a stream ends; the consumer's pace is the source's."""
        ...

    def status(self) -> SourceStatus:
        """Return what is read, from where, and why not."""
        ...


class BadPlace(ValueError):
    """A place that is none of PATH, GLOB, journal:UNIT, docker:NAME, cri:NAMESPACE/POD/CONTAINER, cri:GLOB, kmsg: and `-`."""


def open_place(name: str, where: str, *, known: Mapping[str, SourcePosition] | None = None, hints: Hints | None = None) -> ByteSource:
    """Return the source for a place, to be read on from its position in `known` (by source name); one of another kind is passed over.

    Nothing is opened yet: what is missing or unreadable shows in the source's status.

    Raises:
        BadPlace: with the forms that are understood.
    """
    scheme, colon, rest = where.partition(":")
    known = known or {}
    resume = known.get(name)
    if where == "-":
        return StdinSource(name)
    if not colon or scheme not in SCHEMES:
        return _files(name, where, known, hints)
    if scheme == "kmsg":
        return KernelSource(name, resume=resume if isinstance(resume, KernelPosition | JournalPosition) else None)
    if not rest:
        raise BadPlace(f"{where!r}: nothing stands behind {scheme}:")
    if scheme == "journal":
        return JournalSource(name, journal_query(rest), resume=resume if isinstance(resume, JournalPosition) else None)
    tail_resume = resume if isinstance(resume, TailPosition) else None
    if scheme == "docker":
        return TailSource(name, _locate_docker(rest), resume=tail_resume, hints=hints)
    return _files(name, rest if rest.startswith("/") else _pods(where, rest), known, hints)


def journal_query(text: str) -> JournalQuery:
    """Return the query for what stands behind "journal:": UNIT, NAMESPACE/UNIT, or id=IDENTIFIER in the place of a unit."""
    namespace, _, unit = text.rpartition("/")
    if unit.startswith("id="):
        return JournalQuery(namespace=namespace, identifier=unit.removeprefix("id="))
    return JournalQuery(namespace=namespace, unit=unit if "." in unit else f"{unit}.service")


def _pods(where: str, rest: str) -> str:
    try:
        return pod_log_pattern(rest)
    except ContainerUnknown as error:
        raise BadPlace(f"{where!r}: {error.strerror}") from error


def _files(name: str, path: str, known: Mapping[str, SourcePosition], hints: Hints | None) -> ByteSource:
    if has_pattern(path):
        return GlobSource(name, path, resume={each: at for each, at in known.items() if isinstance(at, TailPosition)}, hints=hints)
    resume = known.get(name)
    return TailSource(name, path, resume=resume if isinstance(resume, TailPosition) else None, hints=hints)


def _locate_docker(name: str) -> Callable[[], str]:
    """A container that is made anew gets another id and another file: asked again at each look."""
    return lambda: docker_log(name)
