"""Follows one log through every way a file can change: the synchronous core, driven step by step.

The files of a log form a chain from old to new. Each is read to its end before its successor is opened, and stays open
for late lines until it has been quiet for a while. Every byte is delivered once, or lies in a gap that is said.
"""

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..model.observation import Gap, Opened, Watermark
from .block import Block, Moved
from .logfile import Changed, LeftOut, Limits, Lines, LogFile, matches
from .position import FileMark, TailPosition
from .siblings import Candidate, rotated_and_current
from .status import SourceStatus

TailEvent: TypeAlias = Block | Moved | Gap | Opened | Watermark

# A file that was created and deleted between two looks at the path leaves no trace. Looks are at most a second apart
# while the tail keeps up; after a longer pause a vanished file means that others may have vanished with it.
_UNSEEN_S = 5.0
_REMEMBERED_FILES = 64


@dataclass(slots=True)
class _Counts:
    bytes_read: int = 0
    lines_read: int = 0
    cut_lines: int = 0
    rotations: int = 0
    truncations: int = 0
    gaps: int = 0
    last_read_s: float | None = None


@dataclass(slots=True)
class _Search:
    """What a look into the directory found: `files` oldest first, `at` the index of our file in it."""

    files: list[Candidate]
    at: int | None = None
    newer: list[Candidate] = field(default_factory=list)


class Tail:
    """Reads a log by its path, or by what a function says the path is; call `step` when something may have changed."""

    def __init__(
        self,
        source: str,
        path: str | Callable[[], str],
        *,
        resume: TailPosition | None = None,
        limits: Limits | None = None,
        with_history: bool = False,
    ) -> None:
        """Follow `path`. `with_history`: without a position, begin in the oldest rotated file instead of the newest."""
        self._source = source
        self._locate: Callable[[], str] = path if callable(path) else lambda: path
        self._limits = limits or Limits()
        self._with_history = with_history
        self._pending = resume.files if resume is not None else ()
        self._chain: list[LogFile] = []
        self._finished: dict[tuple[int, int], FileMark] = {}
        self._generation = max((mark.generation for mark in self._pending), default=-1)
        self._counts = _Counts()
        self._why_not = ""
        self._error_number: int | None = None
        self._said = ""
        self._looked_s: float | None = None  # when the path was last seen to be the file at the chain's end
        self._watermark_s = float("-inf")
        self._path = ""
        self.idle = False

    # --- what callers use -------------------------------------------------------------------------------------------

    def step(self, now_s: float) -> list[TailEvent]:
        """Read at most one block and return what came of it; with `idle` set when there is nothing more to read now.

        `now_s` is the wall clock, Unix seconds. Never raises for what a file or directory does: see `status().why_not`.
        """
        is_new_look = self.idle or not self._path
        self.idle = False
        self._why_not = ""
        try:
            if is_new_look:
                self._path = self._locate()
            events = self._start(now_s) if not self._chain else self._read_chain(now_s)
        except OSError as error:
            place = f"{error.filename or self._path}: " if error.filename or self._path else ""
            self._why_not = f"{place}{error.strerror}" if error.strerror else str(error)
            self._error_number = error.errno
            events = self._refused(error, now_s)
        else:
            self._said = "" if not self._why_not else self._said
        if events:
            return events
        self.idle = True
        return self._watermark(now_s)

    @property
    def position(self) -> TailPosition:
        """Where to resume: behind everything that `step` has returned."""
        return TailPosition(files=tuple(log.mark for log in self._chain) or self._pending)

    def status(self) -> SourceStatus:
        """Return what is read, from where to where, and why not."""
        last = self._chain[-1] if self._chain else None
        mark = last.mark if last else None
        size = last.size if last else None
        lag = max(0, size - mark.offset) if mark is not None and size is not None else None
        counts = self._counts
        return SourceStatus(
            name=self._source,
            kind="file",
            path=mark.path if mark else self._path,
            readable=bool(self._chain) and not self._why_not,
            why_not=self._why_not,
            do=_advice(self._error_number) if self._why_not else "",
            is_late=bool(self._why_not) and self._error_number == errno.ENOENT,
            device=mark.device if mark else None,
            inode=mark.inode if mark else None,
            offset=mark.offset if mark else None,
            line=mark.line if mark else None,
            size_bytes=size,
            lag_bytes=lag,
            generation=mark.generation if mark else 0,
            bytes_read=counts.bytes_read,
            lines_read=counts.lines_read,
            cut_lines=counts.cut_lines,
            rotations=counts.rotations,
            truncations=counts.truncations,
            gaps=counts.gaps,
            last_read_s=counts.last_read_s,
        )

    def unpacks(self) -> bool:
        """Say whether the next step may have to unpack a file up to where we were, which takes as long as it is large: at a start from a
        position, in a packed file, and where the path is no longer the file that is read.
        """
        if not self._chain:
            return bool(self._pending)
        if any(log.is_packed for log in self._chain):
            return True
        mark = self._chain[-1].mark
        try:
            found = os.stat(self._path)
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != mark.identity or found.st_size < mark.offset

    def watched(self) -> tuple[str, ...]:
        """Return the paths whose directories tell of changes: the log, and what it resolves to."""
        if not self._path:
            return ()
        open_now = [self._chain[-1].mark.path] if self._chain else []
        return tuple(dict.fromkeys([self._path, os.path.realpath(self._path), *open_now]))

    def close(self) -> None:
        """Let go of all files. The position stays."""
        self._pending = self.position.files
        for log in self._chain:
            log.close()
        self._chain.clear()

    # --- starting ---------------------------------------------------------------------------------------------------

    def _start(self, now_s: float) -> list[TailEvent]:
        files = rotated_and_current(self._path, self._pending[-1].path if self._pending else "")
        if files is None:
            return []
        if not self._pending:
            return self._start_anew(files)
        gaps_before = self._counts.gaps
        try:
            return self._resume(files, now_s)
        except OSError:
            self._counts.gaps = gaps_before  # nothing was started: all of it is said again at the next attempt
            for log in self._chain:
                log.close()
            self._chain.clear()
            raise

    def _resume(self, files: list[Candidate], now_s: float) -> list[TailEvent]:
        events: list[TailEvent] = []
        *older, last = self._pending
        for mark in older:
            found = self._find_marked(files, mark)
            if found is None:
                events.append(self._gap("rotated-away", now_s, mark.offset))
            else:
                self._chain.append(self._open(found, mark=mark))
        return events + self._start_at(files, last, now_s)

    def _start_anew(self, files: list[Candidate]) -> list[TailEvent]:
        first = self._choose_first(files)
        if first is None:
            raise self._not_there()
        self._chain.append(self._open(first))
        return [self._opened(self._chain[-1], from_start=first is files[0]), self._moved()]

    def _choose_first(self, files: list[Candidate]) -> Candidate | None:
        if self._with_history and files:
            return files[0]
        return files[-1] if files and files[-1].is_current else None

    def _start_at(self, files: list[Candidate], mark: FileMark, now_s: float) -> list[TailEvent]:
        found = self._find_marked(files, mark)
        if found is not None:
            is_copy = mark.is_copy or _is_copy(found, mark, files)
            self._chain.append(self._open(found, mark=replace(mark, is_copy=is_copy)))
            return [self._opened(self._chain[-1]), self._moved()]
        was_truncated = any(each.identity == mark.identity for each in files)
        if was_truncated:
            self._counts.truncations += 1
        newer = [each for each in _newer_by_time(files, mark) if not self._is_known(each)]
        if not newer:
            raise self._not_there()
        events: list[TailEvent] = [self._gap("truncated" if was_truncated else "rotated-away", now_s, mark.offset)]
        self._chain.append(self._open(newer[0]))
        return [*events, self._opened(self._chain[-1]), self._moved()]

    def _find_marked(self, files: list[Candidate], mark: FileMark) -> Candidate | None:
        """Return the file that was read up to `mark`: by inode and content, else by content among those not older."""
        for each in files:
            if each.identity == mark.identity and (matches(each, mark, self._limits) or _is_untouched(each, mark)):
                return each
        whole_s = mark.modified_ns // 10**9 * 10**9  # packers keep the time of the last write, some to the second
        fitting = [each for each in files if each.modified_ns >= whole_s and each.identity != mark.identity]
        return next((each for each in fitting if matches(each, mark, self._limits)), None)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read_chain(self, now_s: float) -> list[TailEvent]:
        for log in list(self._chain):
            is_last = log is self._chain[-1]
            try:
                events = self._read(log, now_s)
                if not events and is_last:
                    events = self._follow(log, now_s)
            except Changed:
                return self._after_change(log, now_s)
            if not events and not is_last and log.is_finite:
                events = self._finish(log, now_s)
            if events:
                return events
        return self._let_go(now_s)

    def _read(self, log: LogFile, now_s: float) -> list[TailEvent]:
        got = log.read(now_s, to_the_end=log.is_finite)
        if got is None:
            if log.quiet_since_s is None or now_s < log.quiet_since_s:
                log.quiet_since_s = now_s
            return []
        self._counts.last_read_s = now_s
        if isinstance(got, LeftOut):
            self._counts.cut_lines += got.reason == "line-cut"
            return [self._gap(got.reason, now_s, got.from_offset, got.to_offset), self._moved()]
        return [self._block(log, got, now_s)]

    def _block(self, log: LogFile, lines: Lines, now_s: float) -> Block:
        self._counts.bytes_read += len(lines.data)
        self._counts.lines_read += lines.after.line - lines.before.line
        marks = [each.mark for each in self._chain]
        at = self._chain.index(log)
        return Block(
            source=self._source,
            data=lines.data,
            offset=lines.before.offset,
            line=lines.before.line,
            arrived_s=now_s,
            generation=lines.before.generation,
            continues=lines.before.inside == "piece",
            was_cut=lines.was_cut,
            before=TailPosition(files=(*marks[:at], lines.before, *marks[at + 1 :])),
            after=TailPosition(files=(*marks[:at], lines.after, *marks[at + 1 :])),
        )

    # --- one file after another -------------------------------------------------------------------------------------

    def _follow(self, log: LogFile, now_s: float) -> list[TailEvent]:
        """At the end of the newest file: open its successor if there is one."""
        if not log.is_finite:
            found = os.stat(self._path)  # gone: raises, and we wait for the path to come back
            if stat.S_ISDIR(found.st_mode):
                raise OSError(errno.EISDIR, "a folder stands where the log was", self._path)
            if (found.st_dev, found.st_ino) == log.mark.identity:
                self._looked_s = now_s
                return []
        files = rotated_and_current(self._path, log.mark.path)
        if files is None or self._came_back(files):
            return []
        search = self._search(files, log)
        successor = next((each for each in search.newer if not self._is_known(each)), None)
        if successor is None:
            return []
        # Lines written between our read and the rename come before what the successor holds.
        return self._read(log, now_s) or self._succeed(log, successor, search, now_s)

    def _succeed(self, log: LogFile, successor: Candidate, search: _Search, now_s: float) -> list[TailEvent]:
        opened = self._open(successor, is_copy=log.mark.is_copy and not successor.is_current)
        self._counts.rotations += not log.mark.is_copy
        self._chain.append(opened)
        if log.is_finite:
            events = self._finish(log, now_s)
        elif search.at is None and (len(search.files) > 1 or self._was_long_unseen(now_s)):
            events = [self._gap("rotated-away", now_s, None), self._opened(opened), self._moved()]
        else:
            events = [self._opened(opened), self._moved()]
        self._looked_s = now_s
        return events

    def _finish(self, log: LogFile, now_s: float) -> list[TailEvent]:
        """Close a file to which nothing can be added; the next in the chain begins."""
        following = self._chain[self._chain.index(log) + 1]
        self._close(log)
        gaps: list[TailEvent] = []
        if log.damaged:
            gaps.append(self._gap(f"rotated-away: {log.damaged}", now_s, log.mark.offset))
        elif log.mark.is_copy:
            # What was written between the copy and the truncation is in neither.
            gaps.append(self._gap("truncated", now_s, log.mark.offset))
        return [*gaps, self._opened(following), self._moved()]

    def _was_long_unseen(self, now_s: float) -> bool:
        return self._looked_s is None or now_s - self._looked_s > _UNSEEN_S

    def _search(self, files: list[Candidate], log: LogFile) -> _Search:
        """Find our file among `files`, also when it was packed in the meantime, and those written after it."""
        mark = log.mark
        at = next((index for index, each in enumerate(files) if each.identity == mark.identity), None)
        if at is None:
            packed = (index for index, each in enumerate(files) if each.is_packed)
            at = next((index for index in packed if matches(files[index], mark, self._limits)), None)
        newer = files[at + 1 :] if at is not None else _newer_by_time(files, mark)
        return _Search(files, at, newer)

    def _came_back(self, files: list[Candidate]) -> bool:
        """A rotated file that we still read was moved back to the path: it is the newest again."""
        current = files[-1].identity if files and files[-1].is_current else None
        back = next((log for log in self._chain[:-1] if log.mark.identity == current), None)
        if back is not None:
            self._chain.remove(back)
            self._chain.append(back)
        return back is not None

    def _after_change(self, log: LogFile, now_s: float) -> list[TailEvent]:
        """The file was truncated: go on in the copy that was made of it, else say what is lost and begin it anew."""
        mark = log.mark
        files = rotated_and_current(self._path, mark.path)
        if files is None:
            return []
        if log is not self._chain[-1]:  # a rotated file that was emptied; the newer ones are open already
            self._close(log)
            return [self._gap("truncated", now_s, mark.offset), self._moved()]
        opened = self._open_copies(files, mark, log.mark_anew(0))
        self._generation += 1
        log.begin_anew(self._generation)  # the opened file, not the path: it may be deleted by now
        self._counts.truncations += 1
        has_copy = bool(opened) and opened[0].mark.generation == mark.generation
        self._chain[-1:] = [*opened, log]
        if has_copy:
            return [self._moved()]
        begun = self._chain[-1 - len(opened)]
        return [self._gap("truncated", now_s, mark.offset), self._opened(begun), self._moved()]

    def _open_copies(self, files: list[Candidate], mark: FileMark, now: FileMark) -> list[LogFile]:
        """Open the copy of what was read up to `mark`, and the copies of what came and went since, oldest first."""
        own = next((index for index, each in enumerate(files) if each.identity == mark.identity), None)
        others = [each for each in files[:own] if not each.is_current and not self._is_known(each)]
        copy = next((each for each in reversed(others) if matches(each, mark, self._limits)), None)
        since = others[others.index(copy) + 1 :] if copy is not None else _newer_by_time(others, mark)
        if own is None:
            # Deleted: what was written to last after it came after it, and a packed file may be itself.
            since = [each for each in since if each.modified_ns <= now.modified_ns]
            since = [each for each in since if not (each.is_packed and matches(each, now, self._limits))]
        opened: list[LogFile] = []
        try:
            if copy is not None:
                opened.append(self._open(copy, mark=mark, is_copy=True))
            for each in since:
                opened.append(self._open(each, is_copy=True))
        except OSError:
            for each_opened in opened:
                each_opened.close()
            raise
        return opened

    def _is_known(self, candidate: Candidate) -> bool:
        """Say whether it is one of the open files, or the packed form of one that was deleted since."""
        if any(log.mark.identity == candidate.identity for log in self._chain):
            return True
        older = self._chain[:-1] if candidate.is_packed else []
        return any(matches(candidate, log.mark, self._limits) for log in older)

    def _let_go(self, now_s: float) -> list[TailEvent]:
        """Close rotated files that have been quiet for long, once what came after them holds something."""
        is_crowded = len(self._chain) > self._limits.open_files
        # A writer that was not told of the rotation goes on in the old file while the new one stays empty.
        newer_has_data = self._chain[-1].mark.offset > 0
        for log in self._chain[:-1]:
            quiet_s = now_s - log.quiet_since_s if log.quiet_since_s is not None else 0.0
            if not log.holds_half_line and (is_crowded or (newer_has_data and quiet_s >= self._limits.linger_s)):
                self._close(log)
                return [self._moved()]
        return []

    # --- small parts ------------------------------------------------------------------------------------------------

    def _open(self, candidate: Candidate, *, mark: FileMark | None = None, is_copy: bool = False) -> LogFile:
        if mark is None:
            mark = self._finished.get(candidate.identity)
            if mark is not None and not matches(candidate, mark, self._limits):
                mark = None  # the inode was used again
        if mark is None:
            self._generation += 1
            mark = FileMark(
                path=candidate.path,
                device=candidate.device,
                inode=candidate.inode,
                generation=self._generation,
            )
        try:
            return LogFile.open(candidate, self._limits, mark=replace(mark, is_copy=mark.is_copy or is_copy))
        except Changed as error:
            raise OSError(f"{candidate.path} changed while it was opened: {error}") from error

    def _close(self, log: LogFile) -> None:
        self._chain.remove(log)
        for other in self._chain:
            until_ns = max(other.mark.read_until_ns, log.mark.read_until_ns, log.mark.modified_ns)
            other.mark = replace(other.mark, read_until_ns=until_ns)
        self._finished[log.mark.identity] = log.mark
        while len(self._finished) > _REMEMBERED_FILES:
            del self._finished[next(iter(self._finished))]
        log.close()

    def _not_there(self) -> OSError:
        try:
            os.stat(self._path)
        except OSError as error:
            return error
        return OSError(f"{self._path}: not a regular file, or being replaced")

    def _gap(self, reason: str, now_s: float, from_offset: int | None, to_offset: int | None = None) -> Gap:
        self._counts.gaps += 1
        return Gap(
            source=self._source,
            from_s=self._counts.last_read_s,
            to_s=now_s,
            reason=reason,
            from_offset=from_offset,
            to_offset=to_offset,
        )

    def _opened(self, log: LogFile, *, from_start: bool | None = None) -> Opened:
        kind = "gzip" if log.is_packed else "plain"
        starts = log.mark.offset == 0 if from_start is None else from_start
        return Opened(at_s=None, source=self._source, from_start=starts, format=kind)

    def _moved(self) -> Moved:
        return Moved(source=self._source, after=self.position)

    def _refused(self, error: OSError, now_s: float) -> list[TailEvent]:
        """Say once that nothing can be read. A file that is not there yet is no failure, and nothing is lost by either."""
        if error.errno in (None, errno.ENOENT) or self._said == self._why_not:
            return []
        self._said = self._why_not
        return [Gap(source=self._source, from_s=self._counts.last_read_s, to_s=now_s, reason=f"unreadable: {self._why_not}")]

    def _watermark(self, now_s: float) -> list[TailEvent]:
        """All is delivered up to now, less the time a line may take from its stamp to the file."""
        if self._why_not or not self._chain or now_s - self._watermark_s < self._limits.watermark_every_s:
            return []
        held = [log.held_since_s for log in self._chain if log.held_since_s is not None]
        self._watermark_s = now_s
        return [Watermark(source=self._source, at_s=min([now_s, *held]) - self._limits.settle_s)]


def _advice(error_number: int | None) -> str:
    """What helps against an error of the operating system."""
    if error_number == errno.ENOENT:
        return "it is read from its first line as soon as it is there; if it should be there, look at the spelling"
    if error_number in (errno.EACCES, errno.EPERM):
        return "let this user read the file and enter its folders (setfacl, a group, SupplementaryGroups= in the unit)"
    return "" if error_number == errno.ENXIO else "name a regular file, or a pattern for several"


def _newer_by_time(files: list[Candidate], mark: FileMark) -> list[Candidate]:
    """Without our file in the list: those written to after our last read, and whatever stands at the path."""
    return [each for each in files if each.is_current or each.modified_ns > max(mark.modified_ns, mark.read_until_ns)]


def _is_copy(found: Candidate, mark: FileMark, files: list[Candidate]) -> bool:
    """Say whether a copytruncate made `found`, which holds what was read up to `mark`.

    A rename keeps the inode. Packing does not: a packed file is a copy only while the marked inode lives on with other
    content. At the path itself it is the log, under another number after a remount or a restore.
    """
    if found.is_current or found.inode == mark.inode:
        return False
    return not found.is_packed or any(each.identity == mark.identity for each in files)


def _is_untouched(candidate: Candidate, mark: FileMark) -> bool:
    """Nothing of it was delivered yet, so there is nothing to compare: the inode is all we know."""
    return mark.offset == 0 and mark.head_length == 0 and candidate.identity == mark.identity
