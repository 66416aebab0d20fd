"""Random-access reading of a flatbuffer, every offset checked before it is followed.

Rules of this file: positions count from the start of the source and messages add its base, so that
they are offsets in the file; a number that was read is compared with the size of the source before
anything is read or allocated by it; files are read by descriptor, never mapped; the same bytes give
the same answer.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cordbundle.chunks import size_of
from cordbundle.cord import Cord
from cordbundle.errors import FormatError, TruncatedError
from cordbundle.flatbuffer.schema import Table

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["MAX_DEPTH", "MAX_KEPT", "ByteRange", "Reader", "inline_end"]

MAX_DEPTH = 64
"""Deepest nesting of tables, as in the verifier of flatbuffers."""

_MAX_REUSE = 4
_SLACK = 64 << 10

_AT_ONCE = 256 << 10
"""Sources up to this size are read in one go."""

_WHOLE = 8 << 20
"""Sources up to this size are read in one go before they are walked from end to end."""

MAX_KEPT = 4096
"""Vtables of which it is kept what they say; a file may have a different one for each table."""

_PAGE = 64 << 10
_PAGES = 256

_T = TypeVar("_T")
_U16X2 = struct.Struct("<HH")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Where a byte vector is.

    Attributes:
        offset: First byte, from the start of the file.
        size: Number of bytes.
    """

    offset: int
    size: int


def inline_end(table: Table, offsets: Sequence[int]) -> tuple[int, str | None]:
    """Return where the inline values of a table end, counted from its start.

    Args:
        table: The description.
        offsets: Where the value of each slot begins; 0 = absent.

    Returns:
        The end, and None; or, where a value overlaps what stands before it, its least place and
        the path of its field.
    """
    end = 4  # after the offset to the vtable
    for offset, slot in sorted(zip(offsets, range(len(offsets)), strict=True)):
        if 0 < offset < end:
            return end, table.slots[slot].field.path
        if offset:
            end = offset + table.slots[slot].scalar.size
    return end, None


class _Pages:
    """The bytes of a Cord, through the pages that were used last; at most 16 MiB of them."""

    def __init__(self, cord: Cord) -> None:
        self._cord = cord
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._last = (-1, b"")  # most reads are near the one before, and need no lock

    def read(self, at: int, size: int) -> bytes:
        """Return a range that is known to be inside."""
        if size > _PAGE:
            return bytes(self._cord[at : at + size])
        number, start = divmod(at, _PAGE)
        last, page = self._last
        if last != number:
            page = self._page(number)
            self._last = number, page
        run = page[start : start + size]
        return run if len(run) == size else run + self._page(number + 1)[: size - len(run)]

    def _page(self, number: int) -> bytes:
        with self._lock:
            page = self._kept.get(number)
            if page is None:
                start = number * _PAGE
                page = bytes(self._cord[start : start + _PAGE])
                if len(self._kept) >= _PAGES:
                    self._kept.popitem(last=False)
            self._kept[number] = page
            self._kept.move_to_end(number)
            return page


def _budget(size: int) -> int:
    return size * _MAX_REUSE + _SLACK


class Reader:
    """Read a flatbuffer from memory or from a Cord.

    A Cord of more than 256 KiB that is not memory is read through a cache of 64 KiB pages;
    `flatten` reads up to 8 MiB of it in one go. Several threads may use one reader.

    Args:
        source: The flatbuffer, from its root offset on; what follows it may be in it too.
        name: Its file, for messages.
        base: Where it begins in that file, in bytes.
        metadata: Bytes of the source that are no payload; all of them if None.

    Attributes:
        size: Bytes of the source.
        name: See above.
        base: See above.
    """

    def __init__(
        self,
        source: Cord | Buffer,
        *,
        name: str | None = None,
        base: int = 0,
        metadata: int | None = None,
    ) -> None:
        self._cord = source if isinstance(source, Cord) else Cord(source)
        self.size = len(self._cord)
        self.name = name
        self.base = base
        self._metadata = self.size if metadata is None else metadata
        self._left: int | None = None
        self._pages = _Pages(self._cord)
        self._flat: memoryview | bytes | None = None
        self._unpackers: dict[str, Callable[[int], tuple[object, ...]]] = {}
        self._offsets: dict[tuple[type, int], tuple[int, tuple[int, ...]]] = {}
        self._newer: set[type] = set()
        first = self._cord.first_chunk()
        if isinstance(first, bytes | memoryview) and size_of(first) == self.size:
            self._flat = first
        elif self.size <= _AT_ONCE:
            self._flat = bytes(self._cord)

    @property
    def flat(self) -> memoryview | bytes | None:
        """The whole source where it is in memory, else None."""
        return self._flat

    def flatten(self, most: int = _WHOLE) -> None:
        """Read the whole source now if it has at most so many bytes, most of them metadata."""
        if self._flat is None and self.size <= min(most, 2 * self._metadata):
            self._flat = bytes(self._cord)
            self._unpackers = {}

    def unpacker(self, layout: str) -> Callable[[int], tuple[object, ...]]:
        """Return the function that unpacks a `struct` layout at a position that was checked."""
        known = self._unpackers.get(layout)
        if known is not None:
            return known
        packed = struct.Struct("<" + layout)
        flat = self._flat
        if flat is not None:
            unpack: Callable[[int], tuple[object, ...]] = partial(packed.unpack_from, flat)
        else:
            read, size = self._pages.read, packed.size
            unpack = lambda at: packed.unpack(read(at, size))  # noqa: E731
        if len(self._unpackers) < 1024:
            self._unpackers[layout] = unpack
        return unpack

    def budget(self) -> int:
        """Return the bytes that a walk may visit, which is four times the source and 64 KiB.

        A file that points to one place more often than that was made to be walked forever; writers
        that share strings stay below, and those of ExecuTorch share none.
        """
        return _budget(self.size)

    def limit(self, size: int) -> None:
        """Let views of this reader visit as many bytes as `budget` allows for a source of `size`.

        For a walk through all that a file holds. A reader without a limit serves single questions
        any number of times.
        """
        self._left = _budget(size)

    def visit(self, size: int, at: int) -> None:
        """Count bytes that a view visits against the limit, if there is one.

        Raises:
            FormatError: The limit is reached.
        """
        if self._left is None:
            return
        self._left -= size
        if self._left < 0:
            raise self.error(
                "tables, vectors or strings are used too often",
                at,
                expected="each of them used about once",
            )

    def error(
        self, what: str, at: int, *, expected: object = None, actual: object = None
    ) -> FormatError:
        """Make the error for a finding at a position."""
        return FormatError(
            what, source=self.name, offset=self.base + at, expected=expected, actual=actual
        )

    def need(self, at: int, size: int, what: str) -> None:
        """Check that a range is inside the source.

        Raises:
            TruncatedError: It is not.
        """
        if at < 0 or at + size > self.size:
            raise TruncatedError(
                f"{what} passes the end",
                source=self.name,
                offset=self.base + at,
                expected=f"{size} bytes",
                actual=f"{max(0, self.size - max(at, 0))} bytes",
            )

    def read(self, at: int, size: int, what: str = "read") -> bytes:
        """Return a range as bytes.

        Raises:
            TruncatedError: It is not inside the source.
        """
        self.need(at, size, what)
        if self._flat is not None:
            return bytes(self._flat[at : at + size])
        return self._pages.read(at, size)

    def cut(self, at: int, size: int, what: str = "byte vector") -> Cord:
        """Return a range as a Cord, by reference; no byte of it is read.

        Raises:
            TruncatedError: It is not inside the source.
        """
        self.need(at, size, what)
        return self._cord[at : at + size]

    def u32(self, at: int, what: str) -> int:
        """Read an unsigned 32-bit number."""
        self.need(at, 4, what)
        flat = self._flat
        number: int = _U32.unpack(self._pages.read(at, 4) if flat is None else flat[at : at + 4])[0]
        return number

    def follow(self, at: int, what: str) -> int:
        """Return the position that the offset at `at` points to.

        Raises:
            FormatError: It is 0, or points outside the source.
        """
        offset = self.u32(at, what)
        if offset == 0:
            raise self.error(f"{what}: offset is zero", at, actual=0, expected="1 or more")
        if at + offset + 4 > self.size:
            raise self.error(
                f"{what}: offset points past the end",
                at,
                actual=offset,
                expected=f"at most {self.size - at - 4}",
            )
        return at + offset

    def vector(self, at: int, width: int, what: str) -> ByteRange:
        """Return where the elements of the vector at `at` are, as positions, once checked."""
        count = self.u32(at, what)
        if at + 4 + count * width > self.size:
            raise TruncatedError(
                f"{what} passes the end",
                source=self.name,
                offset=self.base + at,
                expected=f"{count} elements of {width} bytes",
                actual=f"{self.size - at - 4} bytes",
            )
        return ByteRange(at + 4, count * width)

    def string(self, at: int, what: str) -> str:
        """Read the string at `at`.

        Raises:
            FormatError: It ends outside the source, without a NUL, or is not UTF-8.
        """
        place = self.vector(at, 1, what)
        end = place.offset + place.size
        run = self.read(place.offset, place.size + 1, what)
        if run[-1] != 0:
            raise self.error(f"{what} does not end with NUL", end, actual=run[-1], expected=0)
        try:
            return run[:-1].decode()
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8", place.offset + error.start) from error

    def offsets(self, table: Table, at: int) -> tuple[int, tuple[int, ...]]:
        """Check the table at `at` and its vtable.

        The table's size that the vtable gives is not used: older `flatbuffers` builders let tables
        of different sizes share a vtable, and such files are about.

        Returns:
            The bytes from the start of the table to the end of its last known value and, for each
            slot of the description, the offset of its value from the start of the table, or 0 where
            the file does not have it.

        Raises:
            FormatError: Something points outside.
        """
        what = f"table {table.name}"
        (back,) = _I32.unpack(self.read(at, 4, what))
        vtable = at - back
        known = self._offsets.get((table.cls, vtable))
        if known is None:
            known = self._vtable(table, vtable, at)
            if len(self._offsets) >= MAX_KEPT:
                self._offsets.clear()
            self._offsets[table.cls, vtable] = known
        self.need(at, known[0], what)
        return known

    def _vtable(self, table: Table, vtable: int, at: int) -> tuple[int, tuple[int, ...]]:
        what = f"vtable of {table.name}"
        if vtable < 0 or vtable + 4 > self.size:
            raise self.error(
                f"{what} is outside", at, actual=self.base + vtable, expected="a position inside"
            )
        size, _ = _U16X2.unpack(self.read(vtable, 4, what))
        if size < 4 or size % 2:
            raise self.error(
                f"{what} has a bad size", vtable, actual=size, expected="an even size of 4 or more"
            )
        self.need(vtable, size, what)
        count = min(len(table.slots), size // 2 - 2)
        found = struct.unpack(f"<{count}H", self.read(vtable + 4, 2 * count, what))
        if any(self.read(vtable + 4 + 2 * count, size - 4 - 2 * count, what)):
            self._newer.add(table.cls)
        end, bad = inline_end(table, found)
        if bad is not None:
            raise self.error(
                f"{bad} overlaps what stands before it in its table",
                vtable + 4,
                actual=f"offsets {found}",
                expected=f"{end} or more",
            )
        return end, (*found, *[0] * (len(table.slots) - count))

    @property
    def newer(self) -> frozenset[type]:
        """Classes of the tables read so far that hold fields which their descriptions lack."""
        return frozenset(self._newer)

    def identifier(self) -> bytes:
        """Return bytes 4 to 8, where the file identifier is.

        Raises:
            TruncatedError: There are fewer than 8 bytes.
        """
        return self.read(4, 4, "file identifier")

    def root_position(self) -> int:
        """Return the position of the root table, not yet checked itself."""
        return self.follow(0, "root offset")

    def root(self, cls: type[_T]) -> _T:
        """Return a lazy view of the root table.

        The view has the attributes of `cls` and passes for an instance of it; each is read when it
        is asked for. Vectors are sequences, byte vectors Cords over the source, absent fields their
        default.

        Args:
            cls: The dataclass that describes the root.

        Raises:
            FormatError: The root table is not inside the source.
        """
        from cordbundle.flatbuffer.view import view_of

        return view_of(self, cls, self.root_position())
