"""The kinds of target, and what each may be after a write that failed.

Rules of this file: `write` writes to a target in a known state, `check` looks at what became of it;
a target at a path is the old file or the new one, a stream keeps a beginning of what was written.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cordbundle.cord import Cord
from cordbundle.errors import WriteError
from cordbundle.writer import write, write_all
from tests.faults import FakeObject

__all__ = ["OLD", "TARGETS", "AtPath", "Outcome", "Target", "ToObject", "is_expected"]

OLD = b"the old file"
OLD_TAIL = b"-" * 100_000

Outcome = BaseException | None
"""What a write raised."""


class Target:
    """A target in a folder of its own.

    Args:
        folder: An empty folder.
        cord: What is written.
    """

    def __init__(self, folder: Path, cord: Cord) -> None:
        self.folder = folder
        self.cord = cord
        self.data = bytes(cord)

    def write(self) -> None:
        """Bring the target into its old state and write to it."""
        raise NotImplementedError

    def check(self, outcome: Outcome, renamed: int) -> None:
        """Raise AssertionError if the target is not what it may be.

        Args:
            outcome: What the write raised.
            renamed: How many files took the place of old ones.
        """
        raise NotImplementedError

    def left(self) -> list[str]:
        """Return the temporary files that are there and should not be."""
        return sorted(set(os.listdir(self.folder)) - {"target", "m.pte", "w.ptd"} - {_DEAD})


_DEAD = ".target.0123456789abcdef.cordbundle-tmp"


class AtPath(Target):
    """A file that is replaced, with what a dead writer left beside it."""

    old = OLD

    def write(self) -> None:
        self.path.write_bytes(OLD)
        (self.folder / _DEAD).write_bytes(b"half a file")
        write(self.cord, self.path, durability="dir")

    @property
    def path(self) -> Path:
        return self.folder / "target"

    def check(self, outcome: Outcome, renamed: int) -> None:
        assert self.path.read_bytes() == (self.data if renamed else OLD)
        assert self.left() == []
        assert renamed == 1 or outcome is not None


class AtNewPath(AtPath):
    """A file that is not there yet, reached by a link."""

    def write(self) -> None:
        self.path.unlink(missing_ok=True)
        (self.folder / "m.pte").unlink(missing_ok=True)
        (self.folder / "m.pte").symlink_to("target")
        write(self.cord, self.folder / "m.pte")

    def check(self, outcome: Outcome, renamed: int) -> None:
        assert (self.folder / "m.pte").is_symlink()
        if renamed:
            assert self.path.read_bytes() == self.data
        else:
            assert not self.path.exists()
        assert self.left() == []
        assert renamed == 1 or outcome is not None


class AsSet(Target):
    """A program and its weights."""

    def write(self) -> None:
        for path in self.paths:
            path.write_bytes(OLD)
        program, weights = self.paths
        write_all({program: self.cord, weights: Cord(self.data[::-1])}, durability="dir")

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.folder / "m.pte", self.folder / "w.ptd"

    def check(self, outcome: Outcome, renamed: int) -> None:
        states = [(OLD, OLD), (OLD, self.data[::-1]), (self.data, self.data[::-1])]
        assert tuple(path.read_bytes() for path in self.paths) == states[renamed]
        assert self.left() == []
        assert renamed == 2 or outcome is not None


class Stream(Target):
    """What keeps what it took."""

    def check(self, outcome: Outcome, renamed: int) -> None:
        taken = self.taken()
        assert self.data.startswith(taken)
        if outcome is None:
            assert taken == self.data

    def taken(self) -> bytes:
        """Return what arrived."""
        raise NotImplementedError


class AtDescriptor(Stream):
    """A file that is open, written in the middle, longer than what is written."""

    start = 7
    flags = os.O_RDWR

    def write(self) -> None:
        self.path.write_bytes(OLD_TAIL)
        descriptor = os.open(self.path, self.flags)
        try:
            os.lseek(descriptor, self.start, os.SEEK_SET)
            write(self.cord, descriptor)
        finally:
            os.close(descriptor)

    @property
    def path(self) -> Path:
        return self.folder / "target"

    def taken(self) -> bytes:
        found = self.path.read_bytes()
        assert len(found) == len(OLD_TAIL)
        inner = found[self.start :].rstrip(b"-")
        assert found[: self.start] == OLD_TAIL[: self.start]
        return inner + self._dashes_of_data(len(inner))

    def _dashes_of_data(self, at: int) -> bytes:
        """Return the bytes at the end of what arrived that look like the old ones."""
        rest = self.data[at:]
        return rest[: len(rest) - len(rest.lstrip(b"-"))]


class AtAppending(AtDescriptor):
    """A file that is open in append mode: the position counts for nothing."""

    flags = os.O_RDWR | os.O_APPEND

    def taken(self) -> bytes:
        found = self.path.read_bytes()
        assert found.startswith(OLD_TAIL)
        return found[len(OLD_TAIL) :]


class AtFileObject(Stream):
    """A buffered file with something in its buffer; its position follows what arrived."""

    def write(self) -> None:
        self.position = -1
        file = open(self.path, "wb")  # noqa: SIM115  # an exception may leave it full
        try:
            file.write(b"head")
            write(self.cord, file)
            self.position = file.tell()
        finally:
            file.close()

    @property
    def path(self) -> Path:
        return self.folder / "target"

    def taken(self) -> bytes:
        found = self.path.read_bytes()
        assert found.startswith(b"head")
        assert self.position in (-1, len(found))
        return found[4:]


class _Failing(FakeObject):
    """Takes few bytes once, so that it holds `cut` bytes after it, or fails from there on."""

    def __init__(self, cut: int | None, error: int | None) -> None:
        super().__init__(1 << 20)
        self._cut = cut
        self._error = error

    def write(self, data: memoryview, /) -> Any:
        have = len(self.taken)
        if self._cut is not None and have < self._cut < have + data.nbytes:
            data = data[: self._cut - have]
        elif self._cut is not None and self._error is not None and have >= self._cut:
            raise OSError(self._error, os.strerror(self._error))
        return super().write(data)


class ToObject(Stream):
    """An object with `write()`."""

    cut: int | None = None
    error: int | None = None

    def write(self) -> None:
        self.object = _Failing(self.cut, self.error)
        write(self.cord, self.object)

    def taken(self) -> bytes:
        return bytes(self.object.taken)


class ToPipe(Stream):
    """A pipe that does not block, wide enough to need no reader meanwhile."""

    def write(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._run(writing, reading)

    def _run(self, writing: int, reading: int) -> None:
        try:
            write(self.cord, writing)
        finally:
            os.close(writing)
            with open(reading, "rb") as file:
                self.arrived = file.read()

    def taken(self) -> bytes:
        return self.arrived


class ToSocket(ToPipe):
    """A socket with a timeout."""

    def write(self) -> None:
        one, other = socket.socketpair()
        one.settimeout(5)
        try:
            write(self.cord, one)
        finally:
            one.close()
            with other, other.makefile("rb") as file:
                self.arrived = file.read()


TARGETS: dict[str, Callable[[Path, Cord], Target]] = {
    "path": AtPath,
    "link to a new file": AtNewPath,
    "set": AsSet,
    "descriptor": AtDescriptor,
    "descriptor in append mode": AtAppending,
    "buffered file": AtFileObject,
    "object": ToObject,
    "pipe": ToPipe,
    "socket": ToSocket,
}


def is_expected(error: BaseException, call: str, number: int, *, of_source: bool) -> bool:
    """Return whether a write may raise this where a call failed with `number`."""
    if of_source:
        is_named = call != "preadv" or "blob" in str(error) or "model.pte" in str(error)
        return isinstance(error, OSError) and not isinstance(error, WriteError) and is_named
    numbers = {
        "access": (errno.EACCES,),  # answers no, without a number
        "lstat": (number, errno.EINVAL, errno.ELOOP),  # a name that cannot be followed
    }
    return isinstance(error, WriteError) and error.errno in numbers.get(call, (number,))
