"""Check a whole flatbuffer against its description, and say everything that is wrong.

Rules of this file: it raises for no input and changes nothing; a number is compared with the size
of the source before it is used; a finding ends the branch it is in, never the walk; memory is bound
by the depth of the tables, `MAX_FINDINGS` and `MAX_KEPT`, time by `Reader.budget`.
What is checked is what the verifier of flatbuffers checks, forced alignment, UTF-8 and, where it is
asked for, what follows the last thing that is pointed to.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

from cordbundle.flatbuffer.reader import MAX_DEPTH, MAX_KEPT, Reader, inline_end
from cordbundle.flatbuffer.schema import Field, Kind, Table, table_of

__all__ = ["AFTER", "MAX_FINDINGS", "Finding", "verify"]

AFTER = "bytes after the flatbuffer"

MAX_FINDINGS = 1000
"""A walk stops here; a file with more is not worth reading on."""

_HEAD = 8  # root offset and identifier, or the smallest vtable
_BATCH = 4096
_STEP = 1 << 20
_MAX_FILL = 1 << 20  # zeros that an alignment may leave behind what a builder wrote first


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a file that is not as its format asks for.

    Attributes:
        offset: Where, in bytes from the start of the file.
        what: What is wrong, in a few words.
        expected: What would have been right.
        actual: What was found.
    """

    offset: int
    what: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"offset {self.offset}: {self.what}: found {self.actual}, expected {self.expected}"


_Visit: TypeAlias = tuple[Table, int, int]
"""A table to visit: its description, position and depth."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to check of the tables that have one vtable and one position modulo 8.

    Attributes:
        size: Bytes from the start of the table to the end of its last known value.
        unaligned: Offset, size and name of each value that is not aligned.
        unions: Offset of the type, field and offset of the value; 0 = absent.
        offsets: The other fields that hold an offset, and where.
    """

    size: int
    unaligned: tuple[tuple[int, int, str], ...]
    unions: tuple[tuple[int, Field, int], ...]
    offsets: tuple[tuple[Field, int], ...]


def verify(reader: Reader, root: type, *, to_end: bool = False) -> list[Finding]:
    """Check every table, vtable, vector, string and union of a flatbuffer.

    Args:
        reader: The flatbuffer.
        root: The dataclass that describes its root table.
        to_end: Whether the source is the flatbuffer alone, so that nothing but zeros may follow
            what is in it. Where fields of a newer schema may be at its end, this is not asked.

    Returns:
        All findings in the order of the walk, at most `MAX_FINDINGS`; empty if it is sound.

    Raises:
        SourceChangedError: The file shrinks while it is read.
    """
    reader.flatten()
    walk = _Walk(reader)
    walk.run(table_of(root))
    if to_end and not walk.findings:
        walk.check_end()
    return walk.findings


class _Walk:
    """One walk through a flatbuffer.

    Attributes:
        findings: What was found so far.
    """

    def __init__(self, reader: Reader) -> None:
        self.findings: list[Finding] = []
        self._reader = reader
        self._size = reader.size
        self._left = reader.budget()
        self._end = 0  # of what was visited
        self._has_unknown = False
        self._vtables: dict[tuple[type, int], tuple[int, ...] | None] = {}
        self._plans: dict[tuple[type, int, int], _Plan | None] = {}
        self._u32 = cast(Callable[[int], tuple[int]], reader.unpacker("I"))
        self._i32 = cast(Callable[[int], tuple[int]], reader.unpacker("i"))

    def run(self, root: Table) -> None:
        """Visit the root table and all that can be reached from it."""
        stack = [self._root(root)]
        while stack and len(self.findings) < MAX_FINDINGS:
            visit = next(stack[-1], None)
            if visit is None:
                stack.pop()
                continue
            table, at, depth = visit
            if self._left < 0:
                what = "tables, vectors or strings are used too often"
                limit = f"at most {self._reader.budget()} bytes visited in all"
                self._find(at, what, limit, "more")
                return
            if depth > MAX_DEPTH:
                self._find(at, "tables are nested too deeply", f"{MAX_DEPTH} levels", "more")
            else:
                stack.append(self._table(table, at, depth))

    def check_end(self) -> None:
        """Find what follows everything that was visited, all of it sound, but for zeros."""
        if self._has_unknown:
            return
        left = self._size - self._end
        if left > _MAX_FILL or self._reader.read(self._end, left).strip(b"\0"):
            self._find(self._end, AFTER, "none", left)

    def _find(self, at: int, what: str, expected: object, actual: object) -> None:
        if len(self.findings) < MAX_FINDINGS:
            place = self._reader.base + at
            self.findings.append(Finding(place, what, str(expected), str(actual)))

    def _inside(self, at: int, size: int, what: str) -> bool:
        if at >= 0 and at + size <= self._size:
            return True
        self._find(at, f"{what} passes the end", f"{size} bytes", f"{max(0, self._size - at)}")
        return False

    def _aligned(self, at: int, align: int, what: str) -> None:
        if at % align:
            self._find(at, f"{what} is not aligned", f"a multiple of {align}", at)

    def _follow(self, at: int, what: str) -> int | None:
        """Return where the offset at `at`, which is inside, points; None after a finding."""
        offset = self._u32(at)[0]
        if offset and at + offset + 4 <= self._size:
            return at + offset
        if offset == 0:
            self._find(at, f"{what}: offset is zero", "1 or more", 0)
        else:
            room = f"up to {self._size - at - 4}"
            self._find(at, f"{what}: offset points past the end", room, offset)
        return None

    def _root(self, root: Table) -> Iterator[_Visit]:
        if self._inside(0, 8, "root offset"):
            at = self._follow(0, "root offset")
            if at is not None and at < _HEAD:
                what = "root offset points into the head of the flatbuffer"
                self._find(0, what, f"{_HEAD} or more", at)
            elif at is not None:
                yield root, at, 1

    def _table(self, table: Table, at: int, depth: int) -> Iterator[_Visit]:
        """Check the table at `at`, of which 4 bytes are inside; yield the tables it points to."""
        vtable = at - self._i32(at)[0]
        key = table.cls, vtable, at % 8
        if key not in self._plans:
            if len(self._plans) >= MAX_KEPT:
                self._plans.clear()
                self._vtables.clear()
            self._plans[key] = self._plan(table, vtable, at)
        plan = self._plans[key]
        if plan is None:
            self._left -= 4
            return
        self._left -= plan.size
        if not self._inside(at, plan.size, f"table {table.name}"):
            return
        self._end = max(self._end, at + plan.size)
        for offset, size, path in plan.unaligned:
            self._aligned(at + offset, size, path)
        for field, offset in plan.offsets:
            target = self._follow(at + offset, field.path)
            if target is None:
                continue
            if field.kind is Kind.TABLE:
                yield table_of(field.members[0]), target, depth + 1
            elif field.kind is Kind.TABLES:
                yield from self._tables(field, target, depth + 1)
            elif field.kind is Kind.STRING:
                self._string(field, target)
            else:
                self._plain_vector(field, target)
        for type_offset, field, offset in plan.unions:
            yield from self._union(field, at, (type_offset, offset), depth)

    def _plan(self, table: Table, vtable: int, at: int) -> _Plan | None:
        """Check a vtable and work out what its tables need; None after a finding."""
        if (table.cls, vtable) not in self._vtables:
            self._vtables[table.cls, vtable] = self._vtable(table, vtable, at)
        stored = self._vtables[table.cls, vtable]
        if stored is None:
            return None
        end, _ = inline_end(table, stored)
        unaligned = [(0, 4, f"table {table.name}")] if at % 4 else []
        for slot, offset in zip(table.slots, stored, strict=True):
            if offset and (at + offset) % slot.scalar.size:
                unaligned.append((offset, slot.scalar.size, slot.field.path))
        unions = [
            (stored[field.slot - 1], field, stored[field.slot])
            for field in table.fields
            if field.kind is Kind.UNION and (stored[field.slot] or stored[field.slot - 1])
        ]
        offsets = [
            (field, stored[field.slot])
            for field in table.fields
            if stored[field.slot] and field.kind not in (Kind.UNION, Kind.SCALAR)
        ]
        return _Plan(end, tuple(unaligned), tuple(unions), tuple(offsets))

    def _vtable(self, table: Table, vtable: int, at: int) -> tuple[int, ...] | None:
        """Check a vtable; return the offset of each slot, 0 for absent ones."""
        what = f"vtable of {table.name}"
        if not 0 <= vtable <= self._size - 4:
            where = self._reader.base + vtable
            self._find(at, f"{what} is outside", f"a position up to {self._size - 4}", where)
            return None
        self._aligned(vtable, 2, what)
        (size,) = struct.unpack("<H", self._reader.read(vtable, 2))
        if size < 4 or size % 2:
            self._find(vtable, f"{what} has a bad size", "an even size of 4 or more", size)
            return None
        if not self._inside(vtable, size, what):
            return None
        self._end = max(self._end, vtable + size)
        self._has_unknown |= size // 2 - 2 > len(table.slots)
        count = min(len(table.slots), size // 2 - 2)
        found = struct.unpack(f"<{count}H", self._reader.read(vtable + 4, 2 * count))
        end, bad = inline_end(table, found)
        if bad is not None:
            what = f"{bad} overlaps what stands before it in its table"
            self._find(vtable, what, f"{end} or more", f"offsets {found}")
            return None
        return (*found, *[0] * (len(table.slots) - count))

    def _union(
        self, field: Field, at: int, offsets: tuple[int, int], depth: int
    ) -> Iterator[_Visit]:
        type_offset, offset = offsets
        tag = self._reader.read(at + type_offset, 1)[0] if type_offset else 0
        if tag > len(field.members):
            expected = f"0 to {len(field.members)}"
            self._find(at + type_offset, f"{field.path}: unknown union tag", expected, tag)
        elif (tag == 0) != (offset == 0):
            found = "a value and no type" if offset else f"type {tag} and no value"
            self._find(at, f"{field.path} is half a union", "a type and a value", found)
        elif tag:
            target = self._follow(at + offset, field.path)
            if target is not None:
                yield table_of(field.members[tag - 1]), target, depth + 1

    def _vector(self, field: Field, at: int, width: int, align: int) -> int | None:
        """Check the length and the place of a vector; return the number of its elements."""
        count = self._u32(at)[0]
        if at % 4:
            self._aligned(at, 4, field.path)
        if at + 4 + count * width > self._size:
            room = (self._size - at - 4) // width
            self._find(at, f"{field.path} passes the end", f"up to {room} elements", count)
            return None
        if count and (at + 4) % align:
            self._aligned(at + 4, align, field.path)
        self._left -= 4 + count * width
        self._end = max(self._end, at + 4 + count * width)
        return count

    def _plain_vector(self, field: Field, at: int) -> None:
        width = field.scalar.size
        self._vector(field, at, width, max(width, field.layout.align))

    def _string(self, field: Field, at: int) -> None:
        size = self._vector(field, at, 1, 1)
        if size is None or self._left < 0:
            return
        end = at + 4 + size
        if self._inside(end, 1, f"NUL of {field.path}"):
            last = self._reader.read(end, 1)[0]
            self._end = max(self._end, end + 1)
            if last:
                self._find(end, f"{field.path} does not end with NUL", 0, last)
            self._utf8(field, at + 4, end)

    def _utf8(self, field: Field, start: int, end: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        for at in range(start, end, _STEP):
            size = min(_STEP, end - at)
            held = len(decoder.getstate()[0])
            try:
                decoder.decode(self._reader.read(at, size), final=at + size == end)
            except UnicodeDecodeError as error:  # the decoder is the check
                where = at - held + error.start
                self._find(where, f"{field.path} is not UTF-8", "UTF-8", error.reason)
                return

    def _tables(self, field: Field, at: int, depth: int) -> Iterator[_Visit]:
        table = table_of(field.members[0])
        count = self._vector(field, at, 4, 4) or 0
        for first in range(0, count, _BATCH):
            if len(self.findings) == MAX_FINDINGS:
                return
            here = at + 4 + 4 * first
            number = min(_BATCH, count - first)
            for offset in struct.unpack(f"<{number}I", self._reader.read(here, 4 * number)):
                if offset and here + offset + 4 <= self._size:
                    yield table, here + offset, depth
                else:
                    self._follow(here, field.path)
                here += 4
