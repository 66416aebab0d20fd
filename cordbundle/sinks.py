"""Sinks: where bytes go.

Rules of this file: it knows open descriptors and objects, of chunks only ranges of files, no paths
and no commit; every call may be short and is resumed inside the view; a call that makes no progress
is an error, not a loop; an `OSError` of a call on the target becomes a `WriteError`, what a user's
own `write()` or `progress` raises passes as it is. What a sink cannot do (share, reserve, skip) it
declines, and the bytes are written.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from operator import index
from typing import Protocol

from cordbundle.chunks import STEP, FileRange
from cordbundle.errors import WriteError
from cordbundle.failures import is_of_system, reason, turned_into
from cordbundle.progress import Meter

__all__ = [
    "DescriptorSink",
    "FileSink",
    "ObjectSink",
    "Sink",
    "Writable",
]

OBJECT_STEP = 8 << 20
"""Most bytes that are handed to a `write()` object at a time."""

_MAX_VIEWS = 1024  # IOV_MAX on Linux
_LARGE = 1 << 20  # from here on a range is worth a system call of preparation
_CLONE = 0x4020940D  # FICLONERANGE of linux/fs.h, _IOW(0x94, 13, struct file_clone_range)
_CLONE_RANGE = struct.Struct("=qQQQ")  # source descriptor, source offset, size, target offset
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h


class Writable(Protocol):
    """An object that takes bytes and returns how many it took."""

    def write(self, data: memoryview, /) -> int | None:
        """Take bytes."""


class Sink:
    """Where bytes go, one after the other.

    Attributes:
        name: The target's name in errors.
        total: Bytes that it is to take.
        done: Bytes that it took.
        step: Most bytes worth handing over at a time.
    """

    step = STEP

    def __init__(self, name: str, total: int, meter: Meter) -> None:
        self.name = name
        self.total = total
        self.done = 0
        self._meter = meter

    def write(self, views: Sequence[bytes | memoryview], size: int) -> None:
        """Write all of `views`, `size` bytes together, in order.

        Raises:
            WriteError: The target fails or takes no bytes.
        """
        raise NotImplementedError

    def skip(self, size: int) -> bool:
        """Leave a hole of `size` zero bytes, if the target can."""
        return False

    def reserve(self, size: int) -> None:
        """Prepare for `size` bytes that come next."""

    def shareable(self, chunk: FileRange, position: int) -> tuple[int, int]:
        """Return the part [start, stop) of `chunk` that could be shared, if written there."""
        return 0, 0

    def share(self, descriptor: int, offset: int, size: int) -> bool:
        """Share `size` bytes with another file, or do nothing and return False."""
        return False

    def delegate(self, descriptor: int, offset: int, size: int) -> int:
        """Let the kernel copy; return how many bytes it did, which may be none."""
        return 0

    def advance(self, count: int) -> None:
        """Count bytes that were written."""
        self.done += count
        self._meter.advance(count)

    def failure(self, what: str, number: int | None = None) -> WriteError:
        """Make the error that says what went wrong, and how far it came."""
        return WriteError(
            what,
            errno=number,
            source=self.name,
            expected=f"{self.total} bytes",
            actual=f"{self.done} bytes written",
        )

    def system_call(self) -> AbstractContextManager[None]:
        """Turn an `OSError` of a system call into the error that says how far it came."""
        return turned_into(lambda error: self.failure(reason(error), error.errno))


class ObjectSink(Sink):
    """An object with `write()`, used through nothing else."""

    step = OBJECT_STEP

    def __init__(self, name: str, total: int, meter: Meter, target: Writable) -> None:
        super().__init__(name, total, meter)
        self._target = target

    def write(self, views: Sequence[bytes | memoryview], size: int) -> None:
        """Hand over `views` one after the other, in steps of at most 8 MiB."""
        for memory in views:
            view = memoryview(memory)
            done = 0
            while done < view.nbytes:
                done += self._take(view[done : done + OBJECT_STEP])

    def _take(self, view: memoryview) -> int:
        answer: object = self._target.write(view)
        if answer is None:
            raise self.failure("took no bytes: write() returned None")
        if isinstance(answer, bool) or not hasattr(answer, "__index__"):
            raise self.failure(f"write() returned {answer!r} in place of a number of bytes")
        count = index(answer)
        if not 0 < count <= view.nbytes:
            raise self.failure(
                "took no bytes"
                if count == 0
                else f"write() of {view.nbytes} bytes returned {count}"
            )
        self.advance(count)
        return count


class DescriptorSink(Sink):
    """A descriptor, written at its current position: a file, pipe, socket or terminal.

    Args:
        timeout: Longest wait in seconds for one that does not block; forever if None.
    """

    def __init__(
        self,
        name: str,
        total: int,
        meter: Meter,
        descriptor: int,
        timeout: float | None = None,
    ) -> None:
        super().__init__(name, total, meter)
        self.descriptor = descriptor
        self._timeout = timeout

    def write(self, views: Sequence[bytes | memoryview], size: int) -> None:
        """Write `views` in batches; where a call ends inside one, go on there."""
        if not size:
            return
        count = self._take(views[:_MAX_VIEWS])
        if count == size:
            return
        rest = [memoryview(view) for view in views]  # cut where a call ends inside one
        at = 0
        while True:
            while at < len(rest) and count >= rest[at].nbytes:
                count -= rest[at].nbytes
                at += 1
            if at == len(rest):
                return
            rest[at] = rest[at][count:]
            count = self._take(rest[at : at + _MAX_VIEWS])

    def _take(self, views: Sequence[bytes | memoryview]) -> int:
        """Write some bytes of `views`; return how many, never 0."""
        with self.system_call():
            count = self._write_some(views)
        if count <= 0:
            raise self.failure("took no bytes")
        self.advance(count)
        return count

    def _write_some(self, views: Sequence[bytes | memoryview]) -> int:
        while True:
            try:
                if len(views) > 1 and hasattr(os, "writev"):
                    return os.writev(self.descriptor, views)
                return os.write(self.descriptor, views[0])
            except BlockingIOError as error:
                if not is_of_system(error) or stat.S_ISREG(os.fstat(self.descriptor).st_mode):
                    raise  # a file is always ready: waiting for it would be a loop
                self._wait()

    def _wait(self) -> None:
        """Wait until a descriptor that does not block takes bytes again."""
        if not _wait_writable(self.descriptor, self._timeout):
            raise self.failure(f"took no bytes for {self._timeout} seconds", errno.ETIMEDOUT)


class FileSink(DescriptorSink):
    """A new, empty regular file that nobody else writes: it may have holes and shared extents.

    Attributes:
        device: The filesystem's number.
        can_put: Whether the system writes at an offset in one call.
    """

    can_put = hasattr(os, "pwrite")

    def __init__(self, name: str, total: int, meter: Meter, descriptor: int) -> None:
        super().__init__(name, total, meter, descriptor)
        self.device = os.fstat(descriptor).st_dev
        self._block = os.fstatvfs(descriptor).f_bsize if hasattr(os, "fstatvfs") else 0
        self._has_block_device = hasattr(os, "major") and os.major(self.device) != 0
        self._may_share = sys.platform == "linux" and self._block > 0
        self._may_delegate = not self._has_block_device and hasattr(os, "copy_file_range")
        self._may_reserve = self._has_block_device and sys.platform == "linux"

    def skip(self, size: int) -> bool:
        """Leave a hole."""
        self.seek(self.done + size)
        self.advance(size)
        return True

    def shareable(self, chunk: FileRange, position: int) -> tuple[int, int]:
        """Return the whole blocks of `chunk`, if congruent in source and target."""
        if (
            not self._may_share
            or chunk.source.identity[0] != self.device
            or (chunk.offset - position) % self._block
        ):
            return 0, 0
        start = -chunk.offset % self._block
        stop = chunk.size - (chunk.offset + chunk.size) % self._block
        return (start, stop) if stop - start >= self._block else (0, 0)

    def share(self, descriptor: int, offset: int, size: int) -> bool:
        """Share extents; once refused, never tried again."""
        if not self._clone(descriptor, offset, size, self.done):
            return False
        self.skip(size)
        return True

    def try_share(self, chunk: FileRange, position: int) -> int:
        """Return how many bytes of `chunk` can be shared, leaving no trace in the empty file."""
        start, stop = self.shareable(chunk, position)
        if start == stop:
            return 0
        with chunk.source.descriptor() as descriptor:
            if not self._clone(descriptor, chunk.offset + start, self._block, 0):
                return 0
        self._truncate(0)
        return stop - start

    def _clone(self, descriptor: int, offset: int, size: int, position: int) -> bool:
        import fcntl  # not on Windows

        request = _CLONE_RANGE.pack(descriptor, offset, size, position)
        try:
            fcntl.ioctl(self.descriptor, _CLONE, request)
        except OSError as error:  # whatever the reason, copying works or gives the better error
            if not is_of_system(error):
                raise
            self._may_share = False
        return self._may_share

    def reserve(self, size: int) -> None:
        """Preallocate blocks, which halves the time of writing on ext4."""
        if self._may_reserve and size >= _LARGE:
            self._may_reserve = _preallocate(self.descriptor, self.done, size)

    def delegate(self, descriptor: int, offset: int, size: int) -> int:
        """Copy by `copy_file_range` where a file server may do the work."""
        done = 0
        while self._may_delegate and done < size and size >= _LARGE:
            step = min(OBJECT_STEP, size - done)
            try:
                count = os.copy_file_range(descriptor, self.descriptor, step, offset + done)
            except OSError as error:  # as for share
                if not is_of_system(error):
                    raise
                count = 0
            self._may_delegate = count > 0
            self.advance(count)
            done += count
        return done

    def put(self, view: memoryview, offset: int, descriptor: int | None = None) -> None:
        """Write bytes at an offset, uncounted; several threads may, by a descriptor each."""
        number = self.descriptor if descriptor is None else descriptor
        done = 0
        while done < view.nbytes:
            with self.system_call():
                if self.can_put:
                    count = os.pwrite(number, view[done:], offset + done)
                else:
                    os.lseek(number, offset + done, os.SEEK_SET)
                    count = os.write(number, view[done:])
            if count <= 0:
                raise self.failure("took no bytes")
            done += count

    def duplicate(self) -> int:
        """Return another descriptor of the same file."""
        with self.system_call():
            return os.dup(self.descriptor)

    def close_holes(self) -> None:
        """Give the file its size where it ends in a hole."""
        self._truncate(self.total)

    def seek(self, offset: int) -> None:
        """Go on writing at `offset`."""
        with self.system_call():
            os.lseek(self.descriptor, offset, os.SEEK_SET)

    def _truncate(self, size: int) -> None:
        with self.system_call():
            os.ftruncate(self.descriptor, size)


def _wait_writable(descriptor: int, timeout: float | None) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([], [descriptor], [], timeout)[1])
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return the C library's `fallocate`, None where there is none.

    `os.posix_fallocate` will not do: it changes the size, and where the filesystem cannot
    preallocate, the C library writes a byte into every block.
    """
    try:
        import ctypes  # slow to import, and needed for large files only
    except ImportError:
        return None
    library = ctypes.CDLL(None)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    call: Callable[[int, int, int, int], int] = function
    return call


def _preallocate(descriptor: int, offset: int, size: int) -> bool:
    """Reserve blocks without changing the size; return whether it is worth asking again."""
    function = _fallocate()
    return function is not None and function(descriptor, _KEEP_SIZE, offset, size) == 0
