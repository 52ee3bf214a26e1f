"""Wakes tails when something happens in the directories of their logs: one inotify descriptor for the whole process.

A hint says "look", never what happened: a tail trusts stat and bytes alone, and looks from time to time without any
hint, since network file systems, FUSE and overlays written from below send none. Called through libc because a
descriptor in the event loop answers within 0.3 ms and costs nothing when idle; watchfiles wakes 100 times a second for
20 ms.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterable

_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK and IN_CLOEXEC have the same values
_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = (
    0x2,
    0x4,
    0x40,
    0x80,
    0x100,
    0x200,
    0x400,
    0x800,
)
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_MASK = _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_HEADER = struct.Struct("iIII")
_COALESCE_S = 0.010  # 10,000 writes a second cost 0.8 % of a core with it, 5.8 % without (measured)
# Their changes may be made elsewhere, where this kernel does not see them.
REMOTE_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "virtiofs",
        "ceph",
        "lustre",
        "glusterfs",
        "beegfs",
    }
)


class Subscription:
    """One tail's interest: `wake` is set when a file of `set_paths` may have changed."""

    def __init__(self, hints: "Hints | None") -> None:
        """Made by `Hints.subscribe`; with None it never wakes by itself."""
        self._hints = hints
        self.wake = asyncio.Event()
        self.paths: tuple[str, ...] = ()
        self.is_complete = False  # every directory is watched

    def set_paths(self, paths: tuple[str, ...]) -> None:
        """Watch the directories of `paths`; cheap when nothing changed."""
        if self._hints is not None and (paths != self.paths or not self.is_complete):
            self.paths = paths
            self.is_complete = self._hints.watch(self, {os.path.dirname(path) or "." for path in paths})

    def concerns(self, name: str) -> bool:
        """Say whether a file name in a watched directory is one of ours, rotated ones included."""
        return not name or any(name.startswith(os.path.basename(path)) for path in self.paths)

    def close(self) -> None:
        """Stop watching."""
        if self._hints is not None:
            self._hints.forget(self)


class Hints:
    """The process's inotify descriptor, read in the running event loop. Without inotify all tails poll."""

    def __init__(self) -> None:
        """Open inotify; `why_not` says why if that failed (often fs.inotify.max_user_instances)."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self.why_not = ""
        self._directories: dict[int, str] = {}
        self._subscribers: dict[int, set[Subscription]] = {}
        self._all: set[Subscription] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._fd = self._libc.inotify_init1(_NONBLOCK_CLOEXEC)
        except AttributeError:
            self.why_not = "this system has no inotify"
        if self._fd < 0 and not self.why_not:
            self.why_not = f"inotify: {os.strerror(ctypes.get_errno())}"

    def subscribe(self) -> Subscription:
        """Return a new subscription; call in the event loop."""
        if self._fd < 0:
            return Subscription(None)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._fd, self._ready)
        subscription = Subscription(self)
        self._all.add(subscription)
        return subscription

    def watch(self, subscription: Subscription, directories: Iterable[str]) -> bool:
        """Watch exactly `directories` for `subscription`; say whether all can be watched."""
        self._leave(subscription)
        complete = True
        for directory in directories:
            watch = self._libc.inotify_add_watch(self._fd, os.fsencode(directory), _MASK)
            if watch < 0:
                complete = False  # not there yet, or no more watches: the poll finds out
                continue
            self._directories[watch] = directory
            self._subscribers.setdefault(watch, set()).add(subscription)
        self._drop_unused()
        return complete

    def forget(self, subscription: Subscription) -> None:
        """Stop watching for `subscription`."""
        self._all.discard(subscription)
        self._leave(subscription)
        self._drop_unused()

    def close(self) -> None:
        """Close inotify; subscriptions stay and never wake."""
        if self._fd >= 0:
            if self._loop is not None:
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _leave(self, subscription: Subscription) -> None:
        for subscribers in self._subscribers.values():
            subscribers.discard(subscription)

    def _drop_unused(self) -> None:
        for watch in [each for each, subscribers in self._subscribers.items() if not subscribers]:
            del self._subscribers[watch], self._directories[watch]
            self._libc.inotify_rm_watch(self._fd, watch)

    def _ready(self) -> None:
        try:
            while events := os.read(self._fd, 65536):
                self._dispatch(events)
        except BlockingIOError:
            pass  # drained
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop.call_later(_COALESCE_S, self._listen)

    def _listen(self) -> None:
        if self._loop is not None and self._fd >= 0:
            self._loop.add_reader(self._fd, self._ready)

    def _dispatch(self, events: bytes) -> None:
        at = 0
        while at < len(events):
            watch, mask, _cookie, length = _HEADER.unpack_from(events, at)
            name = os.fsdecode(events[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0"))
            at += _HEADER.size + length
            near = self._subscribers.get(watch, set())
            concerned = set(self._all) if mask & _OVERFLOW else {each for each in near if each.concerns(name)}
            if mask & (_IGNORED | _DELETE_SELF | _MOVE_SELF):
                concerned |= near
                for each in concerned:
                    each.is_complete = False  # the directory went away; set_paths watches its follower
            if mask & _IGNORED:
                self._subscribers.pop(watch, None)
                self._directories.pop(watch, None)
            for each in concerned:
                each.wake.set()


def file_system_of(path: str) -> str:
    """Return the type of the file system that holds `path`, "" when unknown."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [line.split() for line in lines]
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = "", ""
    for fields in mounts:
        point = fields[4].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind
