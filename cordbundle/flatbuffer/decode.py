"""Decode a whole table, with all below it, into dataclasses.

Rules of this file: as in reader.py, every offset is checked before it is followed; what a vtable
says is worked out once, and all inline values of a table are unpacked at once; nothing is compiled
from what a file holds; what is visited is counted, so that a small file cannot make a large or
endless result; long vectors of tables are tried by columns (columns.py), which changes nothing but
the time; absent fields read as their default, absent vectors as None, infinities as floats.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from operator import add
from typing import NoReturn, TypeVar, cast

from cordbundle.errors import FormatError
from cordbundle.flatbuffer.columns import MANY, ColumnDecoder, Factory, Making, Scalars
from cordbundle.flatbuffer.reader import MAX_DEPTH, MAX_KEPT, Reader
from cordbundle.flatbuffer.schema import Field, Kind, Table, reachable, table_of
from cordbundle.flatbuffer.view import checked_view

__all__ = ["decode", "no_collection"]

_WHOLE = 16 << 20
"""Sources up to this size are read in one go; the records that are made of one take more."""

_T = TypeVar("_T")
_Read = Callable[[int], object]


def decode(
    view: _T,
    *,
    by_reference: bool = False,
    factories: Mapping[type, Factory] | None = None,
    scalars: Scalars = list,
) -> _T:
    """Decode the table of a view and everything below it.

    Args:
        view: What `Reader.root` or a field of a view returned.
        by_reference: Return byte vectors as Cords over the source, not as bytes.
        factories: What makes the records of a table instead of its dataclass.
        scalars: What vectors of scalars become.

    Returns:
        An instance of the dataclass; its vectors of tables are lists. Takes time and memory in
        proportion to the flatbuffer.

    Raises:
        FormatError: Something points outside, is malformed, nested too deeply or used too often.
        TypeError: `view` is no view.
    """
    root = checked_view(view)
    reader = root._reader
    reader.flatten(_WHOLE)
    decoder = _Decoder(reader, root._table, Making(by_reference, factories or {}, scalars))
    try:
        with no_collection():
            return cast(_T, decoder.table(root._table.cls)(root._at))
    finally:
        decoder.release()


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause the search for reference cycles.

    For work that makes many objects and holds them all: there is nothing to find, and searching
    again and again can take twice the time of the work itself.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.collect(0)  # else the next allocation may search all that the process holds
            gc.enable()


class _Decoder:
    """The reading functions of one schema over one source.

    Attributes:
        left: Bytes that may still be visited.
    """

    def __init__(self, reader: Reader, root: Table, making: Making) -> None:
        self._reader = reader
        self._making = making
        self._is_recursive = _is_recursive(root.cls)
        self._columns: ColumnDecoder | None = None
        if ColumnDecoder.can_read(reader) and not self._is_recursive:
            self._columns = ColumnDecoder(reader, making)
        self._tables: dict[type, _Read] = {}
        self._forget: list[Callable[[], None]] = []
        self.left = reader.budget()
        self.depth = 0

    def refuse(self, at: int) -> NoReturn:
        """Refuse a file that is visited too often."""
        raise self._reader.error(
            "tables, vectors or strings are used too often",
            at,
            expected=f"at most {self._reader.budget()} bytes visited in all",
        )

    def release(self) -> None:
        """Let the reading functions go, which hold each other, this object and the source."""
        self._tables.clear()
        self._columns = None
        for forget in self._forget:
            forget()

    def table(self, cls: type) -> _Read:
        """Return the function that reads a table of that class."""
        if cls not in self._tables:

            def later(at: int) -> object:  # for a table that holds itself
                return self._tables[cls](at)

            self._tables[cls] = later
            self._tables[cls] = self._table(table_of(cls))
        return self._tables[cls]

    def _table(self, table: Table) -> _Read:
        reader, size = self._reader, self._reader.size
        vtable_offset = reader.unpacker("i")
        shapes: dict[int, tuple[int, _Read]] = {}  # by the position of the vtable
        builders: dict[tuple[int, ...], _Read] = {}  # by what it says
        self._forget += shapes.clear, builders.clear

        def read(at: int) -> object:
            if at + 4 > size:
                reader.need(at, 4, f"table {table.name}")
            vtable = at - vtable_offset(at)[0]  # type: ignore[operator]
            shape = shapes.get(vtable)
            if shape is None:
                width, offsets = reader.offsets(table, at)
                for kept in (shapes, builders):
                    if len(kept) >= MAX_KEPT:
                        kept.clear()
                if offsets not in builders:
                    builders[offsets] = self._shape(table, offsets)
                shape = shapes[vtable] = width, builders[offsets]
            width, build = shape
            if at + width > size:
                reader.need(at, width, f"table {table.name}")
            self.left -= width
            if self.left < 0:
                self.refuse(at)
            return build(at)

        return self._limited(read) if self._is_recursive else read

    def _limited(self, read: _Read) -> _Read:
        def deeper(at: int) -> object:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self._reader.error(
                    "tables are nested too deeply", at, expected=f"at most {MAX_DEPTH} levels"
                )
            value = read(at)
            self.depth -= 1
            return value

        return deeper

    def _shape(self, table: Table, offsets: tuple[int, ...]) -> _Read:
        """Return the function that reads tables with this vtable, all inline values at once."""
        stored = sorted((offset, slot) for slot, offset in enumerate(offsets) if offset)
        place = {slot: number for number, (_, slot) in enumerate(stored)}
        layout, end = "", 0
        for offset, slot in stored:
            layout += f"{offset - end}x{table.slots[slot].scalar.code}"
            end = offset + table.slots[slot].scalar.size
        defaults = [field.default for field in table.fields]
        scalars, children, unions = [], [], []
        for number, field in enumerate(table.fields):
            at, offset = place.get(field.slot, -1), offsets[field.slot]
            if field.kind is Kind.UNION and (field.slot - 1) in place:
                unions.append((number, place[field.slot - 1], at, offset, self._union(field)))
            elif field.kind is Kind.SCALAR and offset:
                scalars.append((number, at))
            elif field.kind not in (Kind.SCALAR, Kind.UNION) and offset:
                children.append((number, at, offset, self._child(field)))
        factory = self._making.factories.get(table.cls)
        make = table.cls if factory is None else factory.one
        unpack = cast(Callable[[int], tuple[int, ...]], self._reader.unpacker(layout))

        def build(at: int) -> object:
            inline = unpack(at)
            values = defaults.copy()
            for number, index in scalars:
                values[number] = inline[index]
            for number, index, offset, read in children:
                if not inline[index]:
                    self._zero(at + offset)
                values[number] = read(at + offset + inline[index])
            for number, tag, index, offset, read_union in unions:
                target = inline[index] if offset else 0
                values[number] = read_union(inline[tag], at + offset, target)
            return make(*values)

        return build

    def _zero(self, at: int) -> NoReturn:
        raise self._reader.error("an offset of the table is zero", at, expected="1 or more")

    def _child(self, field: Field) -> _Read:
        if field.kind is Kind.STRING:
            return self._string(field)
        if field.kind is Kind.BYTES:
            return self._bytes(field)
        if field.kind is Kind.SCALARS:
            return self._scalars(field)
        if field.kind is Kind.TABLE:
            return self.table(field.members[0])
        return self._table_vector(field)

    def _vector(self, field: Field, width: int) -> Callable[[int], int]:
        """Return the function that checks a vector and returns the number of its elements."""
        reader, size = self._reader, self._reader.size
        length = reader.unpacker("I")

        def count(at: int) -> int:
            if at + 4 > size:
                reader.need(at, 4, field.path)
            number: int = length(at)[0]  # type: ignore[assignment]
            if at + 4 + number * width > size:
                reader.vector(at, width, field.path)
            self.left -= 4 + number * width
            if self.left < 0:
                self.refuse(at)
            return number

        return count

    def _string(self, field: Field) -> _Read:
        reader, count = self._reader, self._vector(field, 1)

        def read(at: int) -> object:
            count(at)
            return reader.string(at, field.path)

        return read

    def _bytes(self, field: Field) -> _Read:
        reader, count = self._reader, self._vector(field, 1)
        get = reader.cut if self._making.by_reference else reader.read
        return lambda at: get(at + 4, count(at), field.path)

    def _scalars(self, field: Field) -> _Read:
        reader, code, make = self._reader, field.scalar.code, self._making.scalars
        count = self._vector(field, field.scalar.size)
        unpackers: dict[int, Callable[[int], tuple[object, ...]]] = {}

        def read(at: int) -> object:
            number = count(at)
            unpack = unpackers.get(number)
            if unpack is None:
                unpack = reader.unpacker(f"{number}{code}")
                if number <= 64:
                    unpackers[number] = unpack
            return make(unpack(at + 4))

        return read

    def _table_vector(self, field: Field) -> _Read:
        reader, count, table = self._reader, self._vector(field, 4), self.table(field.members[0])

        def read(at: int) -> object:
            number = count(at)
            records = self._by_columns(field, at) if number >= MANY else None
            if records is not None:
                return records
            offsets: tuple[int, ...] = reader.unpacker(f"{number}I")(at + 4)  # type: ignore[assignment]
            if 0 in offsets:
                self._zero(at + 4 + 4 * offsets.index(0))
            places = range(at + 4, at + 4 + 4 * number, 4)
            return list(map(table, map(add, places, offsets)))

        return read

    def _by_columns(self, field: Field, at: int) -> list[object] | None:
        """Decode a vector of tables at once, or return None if it has to be done one by one."""
        columns = self._columns
        if columns is None:
            return None
        try:
            records = columns.vector(field, at, self.left)
        except FormatError:  # told again, with the first place in order, by the other way
            return None
        self.left = columns.left
        return records

    def _union(self, field: Field) -> Callable[[int, int, int], object]:
        tables = [self.table(member) for member in field.members]

        def read(tag: int, at: int, offset: int) -> object:
            if tag == 0:
                return None
            if tag > len(tables):
                what, expected = f"{field.path}: unknown union tag", f"0 to {len(tables)}"
                raise self._reader.error(what, at, actual=tag, expected=expected)
            if offset == 0:
                what = f"{field.path} is half a union"
                raise self._reader.error(what, at, actual=f"type {tag} and no value")
            return tables[tag - 1](at + offset)

        return read


@cache
def _is_recursive(root: type) -> bool:
    """Return whether a table of this schema can hold another of its own class."""
    tables = reachable(root)
    return any(
        table.cls
        in [
            below.cls
            for field in table.fields
            for member in field.members
            for below in reachable(member)
        ]
        for table in tables
    )
