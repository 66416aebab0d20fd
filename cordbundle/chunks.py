"""Chunks: the runs of bytes that a Cord is made of.

Rules of this file: a chunk never changes and never copies payload; what can be said of a chunk
without knowing its neighbours is said here, the rest in `cord.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordbundle.errors import CordBundleError, LayoutError
from cordbundle.source import SourceFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "MEMORY",
    "STEP",
    "Chunk",
    "Deferred",
    "FileRange",
    "Fill",
    "Slice",
    "copy_fill",
    "cut",
    "fill_runs",
    "flat_bytes",
    "identity_of",
    "memory",
    "produced",
    "row_major",
    "size_of",
]

STEP = 1 << 20
"""Bytes that are read from a file at a time."""

_CASTABLE = frozenset("cbBhHiIlLqQnNfd?")  # formats that memoryview.cast takes everywhere
_ZEROS = memoryview(bytes(STEP))


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of a source file.

    Attributes:
        source: The file.
        offset: First byte, from the start of the file.
        size: Number of bytes.
    """

    source: SourceFile
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Fill:
    """A run of `size` bytes that are all `byte`; takes no memory."""

    size: int
    byte: int = 0


class Deferred:
    """A chunk whose size is known and whose bytes are produced when they are needed.

    Subclasses override `produce`. What it returns is used once and dropped.

    Attributes:
        size: Number of bytes that `produce` returns.
    """

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def produce(self) -> memoryview:
        """Return the bytes: one dimension, format `B`, `size` long."""
        raise NotImplementedError


class Slice(Deferred):
    """A part of a deferred chunk."""

    __slots__ = ("start", "whole")

    def __init__(self, whole: Deferred, start: int, size: int) -> None:
        super().__init__(size)
        self.whole = whole
        self.start = start

    def produce(self) -> memoryview:
        """Return the part, producing the whole."""
        return produced(self.whole)[self.start : self.start + self.size]


Chunk = bytes | memoryview | FileRange | Fill | Deferred
"""`bytes` never change, so that they stand for themselves; a view of them would take more memory
than small ones have, and a join of views about three times as long as one of `bytes`."""

MEMORY = (bytes, memoryview)
"""The chunks that are memory."""


def memory(data: Buffer) -> memoryview:
    """Return a buffer's bytes as a flat read-only view."""
    return row_major(data).toreadonly()


def row_major(data: Buffer) -> memoryview:
    """Return a buffer's bytes as a flat view.

    Raises:
        LayoutError: They are not in row-major order without gaps, or are no plain bytes.
    """
    view = memoryview(data)
    if not view.c_contiguous:
        raise LayoutError(
            "buffer is not C-contiguous",
            expected="bytes in row-major order without gaps",
            actual=f"shape {view.shape}, strides {view.strides}",
            cause="copy it first, or hand it over as a tensor, which is gathered when written",
        )
    return flat_bytes(data)


def flat_bytes(data: Buffer) -> memoryview:
    """Return contiguous memory, in row-major or column-major order, as a flat view of bytes.

    A PickleBuffer sees through any format, which `memoryview.cast` does not, but is only made over
    the exporter itself: over a memoryview it crashes CPython before 3.13 when both are collected.

    Raises:
        LayoutError: Memory with gaps, references to objects, or a part of an object in a format
            that cannot be cast.
    """
    view = memoryview(data)
    if not view.contiguous:
        raise LayoutError(
            "buffer has gaps between its elements",
            expected="row-major or column-major order without gaps",
            actual=f"shape {view.shape}, strides {view.strides}",
        )
    if view.format == "O":
        raise LayoutError("buffer holds references to Python objects, not bytes")
    if view.nbytes == 0:
        return memoryview(b"")
    if view.c_contiguous and view.format.removeprefix("@") in _CASTABLE:
        return view.cast("B")
    whole = memoryview(view.obj)
    if not whole.contiguous or whole.nbytes != view.nbytes:
        raise LayoutError(
            f"a part of a buffer of format {view.format!r} cannot be referred to",
            expected="all of its object, or a view of format 'B'",
            actual=f"{view.nbytes} bytes of {whole.nbytes}",
        )
    from pickle import PickleBuffer  # slow to import, and seldom needed

    raw = PickleBuffer(view.obj).raw()
    return raw.toreadonly() if view.readonly else raw


def size_of(chunk: Chunk) -> int:
    """Return a chunk's number of bytes."""
    if isinstance(chunk, bytes):
        return len(chunk)
    return chunk.nbytes if isinstance(chunk, memoryview) else chunk.size


def identity_of(chunk: Chunk) -> object:
    """Return a key that two living chunks share only if they refer to the same bytes."""
    if isinstance(chunk, FileRange | Fill):
        return chunk
    if isinstance(chunk, MEMORY):
        return "memory", _address_of()(chunk), size_of(chunk)
    return "deferred", id(chunk)


@functools.cache
def _address_of() -> Callable[[bytes | memoryview], int]:
    """Return a function that tells where a chunk's bytes are in memory.

    A view's `obj` would not do: it is another object for each export, and an exporter is free to
    hand out other memory each time. The function called is in CPython's stable ABI for good.
    """
    import ctypes

    ask = ctypes.pythonapi.PyObject_AsReadBuffer
    ask.argtypes = (
        ctypes.py_object,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_ssize_t),
    )

    def address(view: bytes | memoryview) -> int:
        start, size = ctypes.c_void_p(), ctypes.c_ssize_t()
        ask(view, ctypes.byref(start), ctypes.byref(size))
        return start.value or 0

    return address


def cut(chunk: Chunk, low: int, high: int) -> Chunk:
    """Return bytes `low` to `high` of a chunk, by reference; the chunk itself if that is all."""
    if low == 0 and high == size_of(chunk):
        return chunk
    if isinstance(chunk, MEMORY):
        return memoryview(chunk)[low:high]
    if isinstance(chunk, FileRange):
        return FileRange(chunk.source, chunk.offset + low, high - low)
    if isinstance(chunk, Fill):
        return Fill(high - low, chunk.byte)
    if isinstance(chunk, Slice):
        return Slice(chunk.whole, chunk.start + low, high - low)
    return Slice(chunk, low, high - low)


def fill_runs(chunk: Fill) -> Iterator[memoryview]:
    """Yield a fill as views of one shared block of at most 1 MiB."""
    block = memoryview(bytes([chunk.byte]) * min(STEP, chunk.size)) if chunk.byte else _ZEROS
    for done in range(0, chunk.size, STEP):
        yield block[: min(STEP, chunk.size - done)]


def copy_fill(target: memoryview, byte: int) -> None:
    """Set all bytes of `target` to `byte`."""
    done = 0
    for run in fill_runs(Fill(target.nbytes, byte)):
        target[done : done + run.nbytes] = run
        done += run.nbytes


def produced(chunk: Deferred) -> memoryview:
    """Return a deferred chunk's bytes, checked to be as many as it said.

    Raises:
        CordBundleError: It produced another number of bytes.
    """
    view = memory(chunk.produce())
    if view.nbytes != chunk.size:
        raise CordBundleError(
            f"{type(chunk).__name__} produced another number of bytes",
            expected=chunk.size,
            actual=view.nbytes,
        )
    return view
