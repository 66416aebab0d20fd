"""Source files: where the bytes of a file range come from.

Rules of this file: only `Cord.from_file` makes sources; files are opened for reading only, by
descriptor; a mapping is made only when a caller asks for a view. A source remembers what the file
was when it was planned (device, inode, size, modification time) and refuses to be another one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
import stat
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeAlias

from cordbundle.errors import FormatError, SourceChangedError

__all__ = ["SourceFile", "StrPath", "kind_of_file"]

StrPath: TypeAlias = "str | os.PathLike[str]"
"""A path of a file, as `os.fsdecode` takes it."""

_MAX_OPEN = 128  # descriptors kept open; far below the usual limit of 1024
_OPEN_FLAGS = os.O_RDONLY
for _name in ("O_CLOEXEC", "O_BINARY", "O_NONBLOCK"):  # a FIFO put in its place must not block
    _OPEN_FLAGS |= getattr(os, _name, 0)


class SourceFile:
    """A regular file that chunks point into, opened when first read.

    At most `_MAX_OPEN` sources hold a descriptor at a time; the one unused longest is closed and,
    when needed again, reopened and compared with what was planned. Safe for use by several threads.

    Attributes:
        path: The path as the caller gave it.
        size: Size in bytes when planned.
        identity: `(st_dev, st_ino)` when planned.
        mtime_ns: Modification time in nanoseconds when planned.
    """

    __slots__ = (
        "__weakref__",
        "_absolute",
        "_key",
        "_map",
        "identity",
        "mtime_ns",
        "path",
        "size",
    )

    def __init__(self, path: str, status: os.stat_result) -> None:
        self.path = path
        self._absolute = os.path.abspath(path)  # the working folder may change before it is read
        self._key = next(_serial)  # not id(), which a later source may get again
        self.size = status.st_size
        self.identity = (status.st_dev, status.st_ino)
        self.mtime_ns = status.st_mtime_ns
        self._map: weakref.ref[mmap.mmap] | None = None

    @staticmethod
    def of(path: StrPath) -> SourceFile:
        """Return the source for `path`, the same one for the same unchanged file.

        Raises:
            OSError: The file cannot be opened.
            FormatError: It is no regular file.
        """
        text = os.fsdecode(path)
        status = os.stat(text)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(
                "cannot be a source",
                source=text,
                expected="a regular file",
                actual=kind_of_file(status.st_mode),
                cause="read it into memory first",
            )
        key = (
            os.path.abspath(text),
            status.st_dev,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
        )
        with _lock:
            source = _known.get(key)
            if source is None:
                source = _known[key] = SourceFile(text, status)
        with source.descriptor():  # a file that may not be read is refused now, not when written
            return source

    @contextlib.contextmanager
    def descriptor(self) -> Iterator[int]:
        """Lend an open descriptor for reading; its file position is nobody's to use."""
        handle = _open_files.borrow(self)
        try:
            yield handle.descriptor
        finally:
            _open_files.give_back(handle)

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` with the bytes from `offset` on.

        Raises:
            SourceChangedError: The file ends before the view is full.
            OSError: The system cannot read it; names the file.
        """
        with self.descriptor() as descriptor:
            done = 0
            while done < view.nbytes:
                try:
                    count = _read_at(descriptor, view[done:], offset + done)
                except OSError as error:
                    error.filename = error.filename or self.path  # a descriptor has no name
                    raise
                if count == 0:
                    raise self._changed("size", self.size, os.fstat(descriptor).st_size)
                done += count

    def view(self, offset: int, size: int) -> memoryview:
        """Return a read-only view of a range through a mapping of the file.

        The mapping lives as long as a view of it. A file that is truncated later kills the process
        at the next touch; that is why only callers who ask for views get one. Before Python 3.13
        each living mapping holds a descriptor of its own, which counts against the system's limit.
        """
        with self.descriptor() as descriptor:
            status = os.fstat(descriptor)
            if status.st_size < self.size:
                raise self._changed("size", self.size, status.st_size)
            mapping = self._map() if self._map is not None else None
            if mapping is None:
                mapping = _mapped(descriptor, self.size)
                self._map = weakref.ref(mapping)
        return memoryview(mapping)[offset : offset + size]

    def check_unchanged(self) -> None:
        """Compare the file at `path` with what was planned.

        Raises:
            SourceChangedError: Another size, inode or modification time, or no file at all.
        """
        try:
            status = os.stat(self._absolute)
        except _GONE:
            raise self._changed("file", "present", "deleted") from None
        self._compare(status)

    def _compare(self, status: os.stat_result) -> None:
        found = (status.st_dev, status.st_ino)
        for what, expected, actual in (
            ("size", self.size, status.st_size),
            ("inode", self.identity, found),
            ("modification time", self.mtime_ns, status.st_mtime_ns),
        ):
            if expected != actual:
                raise self._changed(what, expected, actual)

    def _changed(self, what: str, expected: object, actual: object) -> SourceChangedError:
        return SourceChangedError(
            f"the {what} changed after planning",
            source=self.path,
            expected=expected,
            actual=actual,
            cause="open it again and plan anew",
        )

    def __repr__(self) -> str:
        return f"SourceFile({self.path!r}, {self.size} bytes)"


class _Handle:
    """An open descriptor, the source it belongs to, and the number of those who use it now."""

    __slots__ = ("descriptor", "key", "owner", "users")

    def __init__(self, key: int, descriptor: int, owner: weakref.ref[SourceFile]) -> None:
        self.key = key
        self.descriptor = descriptor
        self.owner = owner
        self.users = 0


class _OpenFiles:
    """The open descriptors of all sources, the one used longest ago first.

    A source that dies closes its descriptor by a weak reference's callback. A `__del__` would not
    do: until it returns, another thread can get the source out of `_known` and borrow from it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._handles: OrderedDict[int, _Handle] = OrderedDict()

    def borrow(self, source: SourceFile) -> _Handle:
        key = source._key
        with _lock:
            handle = self._handles.get(key)
            if handle is None:
                self._close_idle(self._limit - 1)
                owner = weakref.ref(source, lambda _: self._forget(key))
                handle = self._handles[key] = _Handle(key, self._open(source), owner)
            self._handles.move_to_end(key)
            handle.users += 1
            return handle

    def give_back(self, handle: _Handle) -> None:
        with _lock:
            handle.users -= 1

    def _forget(self, key: int) -> None:
        with _lock:
            handle = self._handles.pop(key, None)
            if handle is not None:
                os.close(handle.descriptor)

    def _open(self, source: SourceFile) -> int:
        try:
            descriptor = os.open(source._absolute, _OPEN_FLAGS)
        except _GONE:
            raise source._changed("file", "present", "deleted") from None
        except OSError as error:  # the rest of the process may hold nearly all that are allowed
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._close_idle(0):
                raise
            return self._open(source)
        try:
            source._compare(os.fstat(descriptor))
        except SourceChangedError:
            os.close(descriptor)
            raise
        return descriptor

    def _close_idle(self, keep: int) -> int:
        """Close those unused longest until `keep` are open; return how many were closed."""
        # list() first, at one go: a source that is collected meanwhile changes the dict.
        idle = [handle.key for handle in list(self._handles.values()) if handle.users == 0]
        surplus = idle[: max(0, len(self._handles) - keep)]
        for key in surplus:
            self._forget(key)
        return len(surplus)


_GONE = (FileNotFoundError, NotADirectoryError)
_serial = itertools.count()
_lock = threading.RLock()  # reentrant: a collected source closes its descriptor at any moment
_known: weakref.WeakValueDictionary[tuple[str, int, int, int, int], SourceFile] = (
    weakref.WeakValueDictionary()
)
_open_files = _OpenFiles(_MAX_OPEN)
if hasattr(os, "register_at_fork"):  # a child must not inherit the lock from another thread
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


if sys.version_info >= (3, 13):

    def _mapped(descriptor: int, size: int) -> mmap.mmap:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False)

else:

    def _mapped(descriptor: int, size: int) -> mmap.mmap:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)


if hasattr(os, "preadv"):

    def _read_at(descriptor: int, view: memoryview, offset: int) -> int:
        return os.preadv(descriptor, [view], offset)

else:  # Windows: one file position, so one reader at a time

    def _read_at(descriptor: int, view: memoryview, offset: int) -> int:
        with _lock:
            os.lseek(descriptor, offset, os.SEEK_SET)
            data = os.read(descriptor, view.nbytes)
        view[: len(data)] = data
        return len(data)


def kind_of_file(mode: int) -> str:
    """Return the word for a type of file, given as `st_mode`; a regular one has none."""
    for test, word in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    ):
        if test(mode):
            return word
    return "a special file"
