"""Cord: bytes that are held by reference, in chunks.

Rules of this file: no payload byte is copied but where a caller asks for bytes; chunks never change
and are shared by identity between Cords; bytes of a file are read by descriptor into a buffer of
bounded size, and mapped only where a caller asks for a view; nothing is written here.
"""

from __future__ import annotations

import io
import operator
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Protocol, SupportsIndex, TypeAlias, cast, overload

from cordbundle.chunks import (
    MEMORY,
    STEP,
    Chunk,
    Deferred,
    FileRange,
    Fill,
    copy_fill,
    cut,
    fill_runs,
    identity_of,
    memory,
    produced,
    row_major,
    size_of,
)
from cordbundle.digest import DIGEST_SIZE, xxh3_128
from cordbundle.errors import CordBundleError, LayoutError, TruncatedError, WriteError
from cordbundle.source import SourceFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from cordbundle.source import StrPath

    BytesLike: TypeAlias = "Buffer | Cord"

__all__ = ["Chunk", "Cord", "Deferred", "Digest", "FileRange", "Fill", "as_cord"]


class Digest(Deferred):
    """The 16 bytes of the xxh3-128 digest of another Cord.

    A writer that sees the chunks of `cord` pass may take the digest on the way; anyone else gets it
    by reading `cord`. The bytes are the same.

    Attributes:
        cord: What is digested; may itself hold digests.
    """

    __slots__ = ("cord",)

    def __init__(self, cord: Cord) -> None:
        super().__init__(DIGEST_SIZE)
        self.cord = cord

    def produce(self) -> memoryview:
        """Return the digest, reading all of `cord`."""
        return memoryview(self.cord.xxh3_128())


class _Writable(Protocol):
    def write(self, data: memoryview, /) -> int | None: ...


class Cord:
    """A sequence of bytes that need not be contiguous, holding every run by reference.

    It behaves like `bytes` for `len`, indexing, slicing, `+`, comparison, `find` and `startswith`,
    and grows at its end only. Use it to put together what already exists: mapped or unmapped files,
    tensors, headers. Do not use it as an editable buffer, nor for millions of tiny pieces that
    could be joined first: a chunk costs about 50 bytes if it is `bytes`, else about 200.

    Costs, for k chunks: append O(1), or O(chunks appended) for a Cord; `extend` the same for each
    piece, and for `bytes` several times faster; `len` O(1); index O(log k); slice O(log k + chunks
    in it); everything else reads its bytes once, through at most 1 MiB of memory. A Cord may be
    read by several threads at once; appending needs the only access.

    What is held stays as it is: a `bytearray` cannot be resized and a `mmap` cannot be closed while
    a Cord holds them (`BufferError`); a buffer whose bytes change changes the Cord.

    Args:
        data: Bytes-like object or Cord to begin with.

    Raises:
        LayoutError: A buffer that is not C-contiguous.
        TypeError: No bytes-like object.
    """

    __slots__ = ("_chunks", "_empty", "_ends", "_is_memory")
    __hash__ = None  # type: ignore[assignment]  # it grows

    def __init__(self, data: BytesLike | None = None) -> None:
        self._empty: tuple[SourceFile, ...] = ()
        self._is_memory = True
        if type(data) is bytes and data:  # most frequent by far, and nothing has to be checked
            self._chunks: list[Chunk] = [data]
            self._ends: list[int] = [len(data)]
            return
        self._chunks = []
        self._ends = []
        if data is not None:
            self.append(data)

    @classmethod
    def from_file(cls, path: StrPath, offset: int = 0, size: int | None = None) -> Cord:
        """Make a Cord of a range of a regular file, by reference; no byte is read.

        Args:
            path: The file. It has to stay as it is until the Cord is written.
            offset: First byte of the range.
            size: Number of bytes; to the end of the file if None.

        Raises:
            OSError: The file cannot be opened.
            FormatError: It is no regular file.
            LayoutError: A negative offset or size.
            TruncatedError: The range passes the end of the file.
        """
        source = SourceFile.of(path)
        if offset < 0 or (size is not None and size < 0):
            raise LayoutError(
                "negative range",
                source=source.path,
                expected="offset and size from 0",
                actual=f"offset {offset}, size {size}",
            )
        end = source.size if size is None else offset + size
        if max(offset, end) > source.size:
            raise TruncatedError(
                "range passes the end of the file",
                source=source.path,
                offset=offset,
                expected=f"{max(offset, end)} bytes",
                actual=f"{source.size} bytes",
            )
        cord = cls()
        cord._push(FileRange(source, offset, end - offset))
        if size is None and not cord:
            cord._empty = (source,)
        return cord

    @classmethod
    def of(cls, *chunks: Chunk) -> Cord:
        """Make a Cord of chunks; empty ones are left out."""
        cord = cls()
        for chunk in chunks:
            cord._push(chunk)
        return cord

    def append(self, data: BytesLike) -> None:
        """Append a bytes-like object or the chunks of a Cord, by reference.

        Raises:
            LayoutError: A buffer that is not C-contiguous.
            TypeError: No bytes-like object.
        """
        if not isinstance(data, Cord):
            self._push(data if type(data) is bytes else memory(data))
            return
        start = len(self)
        self._ends += [start + end for end in data._ends] if start else data._ends
        self._chunks += list(data._chunks)
        self._is_memory &= data._is_memory
        self._empty += data._empty

    def extend(self, pieces: Iterable[BytesLike]) -> None:
        """Append bytes-like objects and Cords, each by reference, as `append` does one by one.

        Of many small `bytes` none costs a step of the interpreter. If one piece cannot be taken,
        none is.

        Raises:
            LayoutError: A buffer that is not C-contiguous.
            TypeError: No iterable, or a piece that is no bytes-like object.
        """
        if isinstance(pieces, str | bytes | bytearray | memoryview | Cord):
            raise TypeError(f"{type(pieces).__name__} is one piece; use append()")
        given = list(pieces)
        if set(map(type, given)) == {bytes}:
            chunks = cast("list[bytes]", given if all(given) else list(filter(None, given)))
            start = len(self)
            self._ends += islice(accumulate(map(len, chunks), initial=start), 1, None)
            self._chunks += chunks
            return
        added = Cord()
        for piece in given:
            added.append(piece)
        self.append(added)

    def _push(self, chunk: Chunk) -> None:
        size = size_of(chunk)
        if size:
            ends = self._ends
            ends.append(ends[-1] + size if ends else size)
            self._chunks.append(chunk)
            if not isinstance(chunk, MEMORY):
                self._is_memory = False

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __add__(self, other: BytesLike) -> Cord:
        result = self.__copy__()
        result.append(other)
        return result

    def __iadd__(self, other: BytesLike) -> Cord:
        self.append(other)
        return self

    def __radd__(self, other: Buffer) -> Cord:
        result = Cord(other)
        result.append(self)
        return result

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> Cord: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> int | Cord:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise ValueError(f"a Cord is sliced with step 1, not {step}")
            return self._slice(start, stop)
        index = operator.index(key)
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} of a Cord of {len(self)} bytes")
        byte = bytearray(1)
        self.readinto(byte, position)
        return byte[0]

    def _slice(self, start: int, stop: int) -> Cord:
        result = Cord()
        result._empty = self._empty
        if start >= stop:
            return result
        first = bisect_right(self._ends, start)
        last = bisect_left(self._ends, stop)
        result._ends = [end - start for end in self._ends[first:last]] + [stop - start]
        result._chunks = chunks = self._chunks[first : last + 1]
        low = start - (self._ends[first] - size_of(chunks[0]))
        high = stop - (self._ends[last] - size_of(chunks[-1]))
        if first == last:
            chunks[0] = cut(chunks[0], low, high)
        else:
            chunks[0] = cut(chunks[0], low, size_of(chunks[0]))
            chunks[-1] = cut(chunks[-1], 0, high)
        result._is_memory = self._is_memory
        return result

    def _cuts(self, start: int, stop: int) -> Iterator[tuple[Chunk, int, int]]:
        """Yield (chunk, first, last + 1) for the chunks that the range touches."""
        index = bisect_right(self._ends, start)
        while start < stop:
            end = self._ends[index]
            chunk = self._chunks[index]
            base = end - size_of(chunk)
            yield chunk, start - base, min(stop, end) - base
            start = end
            index += 1

    def __eq__(self, other: object) -> bool:
        """Compare with a Cord or a bytes-like object, without joining either."""
        if not isinstance(other, Cord):
            try:
                other = Cord(other)  # type: ignore[arg-type]  # refused just here
            except (TypeError, ValueError, BufferError):  # no buffer, or one that is not flat
                return NotImplemented
        if len(self) != len(other):
            return False
        if self.identity() == other.identity():
            return True
        mine, theirs = self.open(), other.open()
        while block := mine.read(STEP):
            if block != theirs.read(STEP):
                return False
        return True

    def identity(self) -> tuple[object, ...]:
        """Return a key that two living Cords share only if they refer to the same bytes.

        Equal bytes in different memory or files have different keys. O(number of chunks).
        """
        return tuple(identity_of(chunk) for chunk in self._chunks)

    def __contains__(self, item: Buffer) -> bool:
        return self.find(item) >= 0

    def __iter__(self) -> Iterator[int]:
        raise TypeError("a Cord is not iterated byte by byte; use chunks() or open()")

    def __bytes__(self) -> bytes:
        if self._is_memory:
            return b"".join(cast("list[bytes | memoryview]", self._chunks))
        joined = io.BytesIO()
        for run in self.stream():
            joined.write(run)
        return joined.getvalue()

    def __copy__(self) -> Cord:
        result = Cord()
        result._chunks = list(self._chunks)
        result._ends = list(self._ends)
        result._is_memory = self._is_memory
        result._empty = self._empty
        return result

    def __deepcopy__(self, memo: dict[int, object]) -> Cord:
        return self.__copy__()  # chunks never change

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Cord refers to memory and files of this process; pickle bytes(cord)")

    def __repr__(self) -> str:
        return f"<Cord of {len(self)} bytes in {len(self._chunks)} chunks>"

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes as non-empty read-only views: memory as it is, files mapped.

        A fill is yielded as views of at most 1 MiB of one shared block.
        """
        for chunk in self._chunks:
            if isinstance(chunk, MEMORY):
                yield memoryview(chunk)
            elif isinstance(chunk, FileRange):
                yield chunk.source.view(chunk.offset, chunk.size)
            elif isinstance(chunk, Fill):
                yield from fill_runs(chunk)
            else:
                yield produced(chunk).toreadonly()

    def stream(self) -> Iterator[memoryview]:
        """Yield the bytes as views, each valid until the next is asked for.

        Ranges of files are read by descriptor, 1 MiB at a time, through one buffer.

        Raises:
            SourceChangedError: A file ends before its range does.
        """
        buffer: memoryview | None = None
        for chunk in self._chunks:
            if isinstance(chunk, MEMORY):
                yield memoryview(chunk)
            elif isinstance(chunk, FileRange):
                if buffer is None:
                    buffer = memoryview(bytearray(min(STEP, len(self))))
                for done in range(0, chunk.size, STEP):
                    run = buffer[: min(STEP, chunk.size - done)]
                    chunk.source.read_into(run, chunk.offset + done)
                    yield run
            elif isinstance(chunk, Fill):
                yield from fill_runs(chunk)
            else:
                yield produced(chunk)

    def parts(self, size: int) -> Iterator[Cord]:
        """Yield Cords of exactly `size` bytes, the last one of what remains.

        Raises:
            ValueError: `size` is below 1.
        """
        if size < 1:
            raise ValueError(f"parts of {size} bytes; at least 1 is needed")
        return (self._slice(at, min(at + size, len(self))) for at in range(0, len(self), size))

    def open(self) -> io.BufferedReader:
        """Return a readable, seekable binary file object over the bytes."""
        return io.BufferedReader(_CordReader(self))

    def readinto(self, buffer: Buffer, offset: int = 0) -> int:
        """Copy bytes from `offset` on into a writable buffer, as many as there are and fit.

        Returns:
            The number of bytes copied; 0 at or after the end.

        Raises:
            LayoutError: A buffer that is not C-contiguous.
            SourceChangedError: A file ends before its range does.
            ValueError: A negative offset.
        """
        if offset < 0:
            raise ValueError(f"negative offset {offset}")
        return self._copy_into(row_major(buffer), offset, produced)

    def _copy_into(
        self, target: memoryview, offset: int, produce: Callable[[Deferred], memoryview]
    ) -> int:
        stop = min(len(self), offset + target.nbytes)
        done = 0
        for chunk, low, high in self._cuts(offset, stop):
            part = target[done : done + high - low]
            if isinstance(chunk, MEMORY):
                part[:] = memoryview(chunk)[low:high]
            elif isinstance(chunk, FileRange):
                chunk.source.read_into(part, chunk.offset + low)
            elif isinstance(chunk, Fill):
                copy_fill(part, chunk.byte)
            else:
                part[:] = produce(chunk)[low:high]
            done += high - low
        return done

    def try_flat(self) -> memoryview | None:
        """Return one read-only view of all bytes if they are contiguous, else None.

        A range of a file is mapped. O(1); nothing is copied.
        """
        if not self._chunks:
            return memoryview(b"")
        only = self._chunks[0]
        if len(self._chunks) > 1 or isinstance(only, Fill | Deferred):
            return None
        return next(self.chunks())

    def find(self, wanted: Buffer, start: int = 0) -> int:
        """Return the offset of the first `wanted` at or after `start`, or -1.

        A negative `start` counts from the end, as for `bytes`.
        """
        needle = bytes(memoryview(wanted))  # bytes(n) alone would make n zeros
        tail = b""
        if start < 0:
            start = max(0, start + len(self))
        position = min(start, len(self))  # of the first byte of tail
        reader = self.open()
        reader.seek(position)
        block_size = max(STEP, 2 * len(needle))
        while True:
            block = reader.read(block_size)
            window = tail + block
            found = window.find(needle)
            if found >= 0:
                return position + found if start <= len(self) else -1
            if not block:
                return -1
            keep = min(len(window), max(0, len(needle) - 1))
            position += len(window) - keep
            tail = window[len(window) - keep :]

    def startswith(self, prefix: BytesLike) -> bool:
        """Return whether the first bytes are `prefix`."""
        wanted = as_cord(prefix)
        return self._slice(0, min(len(wanted), len(self))) == wanted

    def xxh3_128(self) -> bytes:
        """Return the xxh3-128 digest of the bytes, 16 bytes, as xxhash's `digest()`."""
        return xxh3_128(self.stream())

    def write_to_file(self, outfile: _Writable) -> None:
        """Write all bytes through `outfile.write()`, as ExecuTorch's Cord does.

        `cordbundle.write` is faster, safer and says what it did; this is for callers that have an
        open file object.

        Raises:
            WriteError: `write()` takes no bytes.
        """
        for run in self.stream():
            done = 0
            while done < run.nbytes:
                taken = outfile.write(run[done:])
                if not taken:
                    raise WriteError(
                        f"{type(outfile).__name__} took no bytes",
                        expected=f"at most {run.nbytes - done}",
                        actual=taken,
                    )
                done += taken

    @property
    def raw_chunks(self) -> list[Chunk]:
        """The chunks as they are held, none of them mapped or produced.

        For the modules of this package that move or look at chunks; it is the Cord's own list,
        which grows with the Cord and is not to be changed.
        """
        return self._chunks

    @property
    def chunk_ends(self) -> list[int]:
        """The offset, in bytes, at which each of `raw_chunks` ends; not to be changed either."""
        return self._ends

    @property
    def is_memory(self) -> bool:
        """Whether all chunks are memory; maybe False of a part that is, of a Cord that is not."""
        return self._is_memory

    @property
    def empty_sources(self) -> tuple[SourceFile, ...]:
        """Files that were taken as they were, empty: no chunk refers to them, but they may grow."""
        return self._empty

    def watch(self, sources: Iterable[SourceFile]) -> None:
        """Take files into `empty_sources`."""
        self._empty += tuple(sources)

    def first_chunk(self) -> Chunk | None:
        """Return the first chunk, or None of an empty Cord."""
        return self._chunks[0] if self._chunks else None

    def check_invariants(self) -> None:
        """Check the inside of the Cord, for tests.

        Raises:
            CordBundleError: A broken invariant.
        """
        if len(self._chunks) != len(self._ends):
            raise CordBundleError(
                "chunk ends are wrong", expected=len(self._chunks), actual=len(self._ends)
            )
        end = 0
        for chunk, stored_end in zip(self._chunks, self._ends, strict=True):
            size = size_of(chunk)
            end += size
            if size <= 0 or end != stored_end:
                raise CordBundleError("chunk ends are wrong", expected=end, actual=stored_end)
            if self._is_memory and not isinstance(chunk, MEMORY):
                raise CordBundleError("a chunk is no memory in a Cord that says so", actual=chunk)
            if isinstance(chunk, memoryview) and not (
                chunk.readonly and chunk.c_contiguous and chunk.ndim == 1 and chunk.format == "B"
            ):
                raise CordBundleError("memory chunk is not flat read-only bytes", actual=chunk)
            if isinstance(chunk, FileRange) and chunk.offset + size > chunk.source.size:
                raise CordBundleError("range passes the end of its file", actual=chunk)


class _CordReader(io.RawIOBase):
    """The raw file object behind `Cord.open`.

    It keeps what a deferred chunk produced until another one is read: in small reads one after the
    other, each chunk is produced once.
    """

    def __init__(self, cord: Cord) -> None:
        super().__init__()
        self._cord = cord
        self._position = 0
        self._produced: tuple[Deferred, memoryview] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        count = self._cord._copy_into(memoryview(buffer).cast("B"), self._position, self._produce)
        self._position += count
        return count

    def readall(self) -> bytes:
        rest = bytes(self._cord[self._position :])
        self._position += len(rest)
        return rest

    def _produce(self, chunk: Deferred) -> memoryview:
        if self._produced is None or self._produced[0] is not chunk:
            self._produced = None  # dropped first: never two at a time
            self._produced = chunk, produced(chunk)
        return self._produced[1]

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._cord)}
        if whence not in bases:
            raise ValueError(f"whence {whence} is not 0, 1 or 2")
        if bases[whence] + offset < 0:
            raise ValueError(f"seek to negative position {bases[whence] + offset}")
        self._position = bases[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position


def as_cord(data: BytesLike) -> Cord:
    """Return `data` itself if it is a Cord, else a Cord over it."""
    return data if isinstance(data, Cord) else Cord(data)
