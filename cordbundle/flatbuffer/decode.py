"""Decode a whole table, with all below it, into dataclasses.

Rules of this file: as in reader.py, every offset is checked before it is followed; for each vtable
of a table one function is compiled, which unpacks all inline values at once; what is visited is
counted, so that a small file cannot make a large or endless result; absent fields read as their
default, absent vectors as None, infinities as floats.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from operator import add
from types import CodeType
from typing import NoReturn, TypeVar, cast

from cordbundle.flatbuffer.reader import MAX_DEPTH, Reader
from cordbundle.flatbuffer.schema import Field, Kind, Scalar, Table, reachable, table_of
from cordbundle.flatbuffer.view import View

__all__ = ["decode", "no_collection"]

_T = TypeVar("_T")
_Read = Callable[[int], object]


def decode(view: _T, *, by_reference: bool = False) -> _T:
    """Decode the table of a view and everything below it.

    Args:
        view: What `Reader.root` or a field of a view returned.
        by_reference: Return byte vectors as Cords over the source, not as bytes.

    Returns:
        An instance of the dataclass; its vectors are lists. Takes time and memory in proportion to
        the flatbuffer.

    Raises:
        FormatError: Something points outside, is malformed, nested too deeply or used too often.
    """
    if not isinstance(view, View):
        raise TypeError(f"{type(view).__name__} is no view of a table in a file")
    reader: Reader = view._reader
    reader.flatten()
    decoder = _Decoder(reader, view._table, by_reference)
    try:
        with no_collection():
            return cast(_T, decoder.table(view._table.cls)(view._at))
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
            gc.enable()


class _Decoder:
    """The reading functions of one schema over one source.

    Attributes:
        left: Bytes that may still be visited.
    """

    def __init__(self, reader: Reader, root: Table, by_reference: bool) -> None:
        self._reader = reader
        self._by_reference = by_reference
        self._is_recursive = _is_recursive(root.cls)
        self._tables: dict[type, _Read] = {}
        self._shapes: list[dict[int, tuple[int, _Read]]] = []
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
        for shapes in self._shapes:
            shapes.clear()

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
        shapes: dict[int, tuple[int, _Read]] = {}
        self._shapes.append(shapes)

        def read(at: int) -> object:
            if at + 4 > size:
                reader.need(at, 4, f"table {table.name}")
            vtable = at - vtable_offset(at)[0]  # type: ignore[operator]
            shape = shapes.get(vtable)
            if shape is None:
                width, offsets = reader.offsets(table, at)
                shape = shapes[vtable] = width, self._shape(table, offsets, width)
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

    def _shape(self, table: Table, offsets: tuple[int, ...], width: int) -> _Read:
        """Compile the function that reads tables with this vtable."""
        names: dict[str, object] = {
            "cls": table.cls,
            "unpack": self._reader.unpacker(_layout(table, offsets)),
            "zero": self._zero,
        }
        for number, field in enumerate(table.fields):
            if offsets[field.slot] and field.kind is not Kind.SCALAR:
                names[f"read{number}"] = self._child(field)
            elif field.kind is Kind.UNION and offsets[field.slot - 1]:
                names[f"read{number}"] = self._missing(field)
        exec(_shape_code(table, offsets), names)
        return cast(_Read, names.pop("read"))  # its globals are `names`: no cycle is left

    def _zero(self, at: int) -> NoReturn:
        raise self._reader.error("an offset of the table is zero", at, expected="1 or more")

    def _child(self, field: Field) -> Callable[..., object]:
        if field.kind is Kind.STRING:
            return self._string(field)
        if field.kind is Kind.BYTES:
            return self._bytes(field)
        if field.kind is Kind.SCALARS and field.scalar is not None:
            return self._scalars(field, field.scalar)
        if field.kind is Kind.TABLE:
            return self.table(field.members[0])
        if field.kind is Kind.TABLES:
            return self._table_vector(field)
        return self._union(field)

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
        get = reader.cut if self._by_reference else reader.read
        return lambda at: get(at + 4, count(at), field.path)

    def _scalars(self, field: Field, scalar: Scalar) -> _Read:
        reader, count, code = self._reader, self._vector(field, scalar.size), scalar.code
        unpackers: dict[int, Callable[[int], tuple[object, ...]]] = {}

        def read(at: int) -> object:
            number = count(at)
            unpack = unpackers.get(number)
            if unpack is None:
                unpack = reader.unpacker(f"{number}{code}")
                if number <= 64:
                    unpackers[number] = unpack
            return list(unpack(at + 4))

        return read

    def _table_vector(self, field: Field) -> _Read:
        reader, count, table = self._reader, self._vector(field, 4), self.table(field.members[0])

        def read(at: int) -> object:
            number = count(at)
            offsets: tuple[int, ...] = reader.unpacker(f"{number}I")(at + 4)  # type: ignore[assignment]
            if 0 in offsets:
                self._zero(at + 4 + 4 * offsets.index(0))
            places = range(at + 4, at + 4 + 4 * number, 4)
            return list(map(table, map(add, places, offsets)))

        return read

    def _union(self, field: Field) -> Callable[[int, int], object]:
        tables = [self.table(member) for member in field.members]

        def read(tag: int, at: int) -> object:
            if not 0 < tag <= len(tables):
                if tag == 0:
                    return None
                raise self._reader.error(
                    f"{field.path}: unknown union tag",
                    at,
                    actual=tag,
                    expected=f"0 to {len(tables)}",
                )
            return tables[tag - 1](at)

        return read

    def _missing(self, field: Field) -> Callable[[int, int], object]:
        def read(tag: int, at: int) -> object:
            if tag:
                raise self._reader.error(f"{field.path}: union has a type and no value", at)
            return None

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


def _layout(table: Table, offsets: tuple[int, ...]) -> str:
    """Return the `struct` layout of the stored inline values, from the start of the table."""
    layout, at = "", 0
    for slot, offset in _stored(offsets):
        layout += "x" * (offset - at) + table.slots[slot].scalar.code
        at = offset + table.slots[slot].scalar.size
    return layout


def _stored(offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    return sorted(
        ((slot, offset) for slot, offset in enumerate(offsets) if offset), key=lambda item: item[1]
    )


@lru_cache(maxsize=4096)
def _shape_code(table: Table, offsets: tuple[int, ...]) -> CodeType:
    """Compile `read(at)` for tables whose values stand at these offsets."""
    stored = _stored(offsets)
    lines = ["def read(at):"]
    if stored:
        lines.append(f"    {', '.join(f'x{slot}' for slot, _ in stored)}, = unpack(at)")
    followed = [f"x{slot}" for slot, _ in stored if table.slots[slot].is_offset]
    if followed:
        lines += [f"    if not ({' and '.join(followed)}):", "        zero(at)"]
    values = ", ".join(_values(table, offsets))
    lines.append(f"    return cls({values})")
    return compile("\n".join(lines), f"<decoder of {table.name}>", "exec")


def _values(table: Table, offsets: tuple[int, ...]) -> Iterator[str]:
    for number, field in enumerate(table.fields):
        slot, offset = field.slot, offsets[field.slot]
        tag = f"x{slot - 1}" if field.kind is Kind.UNION and offsets[slot - 1] else "0"
        if field.kind is Kind.SCALAR:
            yield f"x{slot}" if offset else repr(field.default)
        elif field.kind is Kind.UNION and (offset or tag != "0"):
            place = f"at + {offset} + x{slot}" if offset else "at"
            yield f"read{number}({tag}, {place})"
        elif offset:
            yield f"read{number}(at + {offset} + x{slot})"
        else:
            yield "None"
