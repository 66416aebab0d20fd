"""A small schema with every kind of field, and the `flatbuffers` package's builder driven by it."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import flatbuffers
import pytest
from hypothesis import strategies as st

from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Reader, decode
from cordbundle.flatbuffer.schema import (
    Boolean,
    Bytes,
    Far,
    Field,
    Float64,
    Int8,
    Int32,
    Int64,
    Kind,
    Payload,
    Scalar,
    UInt8,
    UInt32,
    UInt64,
    table_of,
)

DECODE: Any = sys.modules[decode.__module__]


@dataclass(slots=True)
class Empty:
    """No field."""


@dataclass(slots=True)
class Leaf:
    """Scalars of all sizes."""

    small: Int8 = 0
    wide: Int64 = 0
    flag: Boolean = False
    real: Float64 = 0.0
    natural: UInt32 = 0
    level: Int8 = 3
    huge: UInt64 = 0


@dataclass(slots=True)
class Node:
    """Everything else, itself too."""

    name: str | None = None
    child: Node | None = None
    children: Sequence[Node] | None = None
    value: Empty | Leaf | None = None
    data: Annotated[Payload | Far | None, Bytes(32, "data")] = None
    numbers: Sequence[Int64] | None = None
    sizes: Sequence[Int32] | None = None
    order: Sequence[UInt8] | None = None
    flags: Sequence[Boolean] | None = None
    reals: Sequence[Float64] | None = None
    rest: Annotated[Payload | Far | None, Bytes()] = None


_PREPEND = {
    "?": "Bool",
    "b": "Int8",
    "B": "Uint8",
    "i": "Int32",
    "I": "Uint32",
    "q": "Int64",
    "Q": "Uint64",
    "d": "Float64",
}


def reference(
    root: object, identifier: bytes | None, alignments: dict[str, int] | None = None
) -> bytes:
    """Encode with the `flatbuffers` package, in the order of flatc's generated `Pack`."""
    builder = flatbuffers.Builder()
    builder.Finish(_pack(builder, root, alignments or {}), file_identifier=identifier)
    return bytes(builder.Output())


def _pack(builder: Any, value: Any, alignments: dict[str, int]) -> int:
    cls: type = type(value)
    table = table_of(cls)
    stored: dict[str, Any] = {}
    for field in table.fields:
        item = getattr(value, field.name)
        if field.kind is Kind.SCALAR or item is None:
            stored[field.name] = item
        else:
            stored[field.name] = _pack_child(builder, field, item, alignments)
    builder.StartObject(len(table.slots))
    for field in table.fields:
        item = stored[field.name]
        if field.kind is Kind.SCALAR:
            add = getattr(builder, f"Prepend{_PREPEND[field.scalar.code]}Slot")
            add(field.slot, item, field.default)
        elif item is not None:
            if field.kind is Kind.UNION:
                names = [member.__name__ for member in field.members]
                tag = names.index(type(getattr(value, field.name)).__name__) + 1
                builder.PrependUint8Slot(field.slot - 1, tag, 0)
            builder.PrependUOffsetTRelativeSlot(field.slot, item, 0)
    return int(builder.EndObject())


def _pack_child(builder: Any, field: Field, item: Any, alignments: dict[str, int]) -> int:
    if field.kind is Kind.STRING:
        return int(builder.CreateString(item))
    if field.kind is Kind.BYTES:
        align = alignments.get(field.layout.name or "", field.layout.align)
        return _pack_vector(builder, list(bytes(item)), 1, align, builder.PrependUint8)
    if field.kind is Kind.SCALARS:
        size = field.scalar.size
        add = getattr(builder, f"Prepend{_PREPEND[field.scalar.code]}")
        return _pack_vector(builder, item, size, size, add)
    if field.kind is Kind.TABLES:
        tables = [_pack(builder, element, alignments) for element in item]
        return _pack_vector(builder, tables, 4, 4, builder.PrependUOffsetTRelative)
    return _pack(builder, item, alignments)


def _pack_vector(builder: Any, items: Sequence[Any], size: int, align: int, add: Any) -> int:
    builder.StartVector(size, len(items), align)
    for item in reversed(items):
        add(item)
    return int(builder.EndVector())


def tables(cls: type, depth: int = 3) -> st.SearchStrategy[Any]:
    """Return a strategy for instances of a dataclass, from its description alone."""
    fields = {field.name: _field(field, depth) for field in table_of(cls).fields}
    return st.builds(cls, **fields)


def _field(field: Field, depth: int) -> st.SearchStrategy[Any]:
    if field.kind is Kind.SCALAR:
        return st.just(field.default) | _scalars(field.scalar)
    below = field.members if depth else ()
    some: st.SearchStrategy[Any] = st.nothing()
    if field.kind is Kind.STRING:
        some = st.text(max_size=9)
    elif field.kind is Kind.BYTES:
        some = st.binary(max_size=40)
    elif field.kind is Kind.SCALARS:
        some = st.lists(_scalars(field.scalar), max_size=6)
    elif field.kind is Kind.TABLES and below:
        some = st.lists(tables(below[0], depth - 1), max_size=3)
    elif below:
        some = st.one_of([tables(member, depth - 1) for member in below])
    return st.none() | some


def _scalars(scalar: Scalar) -> st.SearchStrategy[Any]:
    if scalar.code == "?":
        return st.booleans()
    if scalar.low is None:
        return st.floats(allow_nan=False).map(lambda number: number + 0.0)  # no -0.0
    return st.integers(scalar.low, scalar.high)


def with_u32(data: bytes, at: int, value: int) -> bytes:
    """Return bytes with one unsigned 32-bit number replaced."""
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


@contextmanager
def columns_from(count: int) -> Iterator[None]:
    """Decode vectors of tables by columns from so many tables on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DECODE, "MANY", count)
        yield


def outcome(data: Any, root: type, many: int, **options: Any) -> object:
    """Return what decoding gives, or class and text of its error."""
    with columns_from(many):
        try:
            return decode(Reader(data).root(root), **options)
        except FormatError as error:
            return type(error), str(error)


def both(data: Any, root: type, **options: Any) -> tuple[object, object]:
    """Return what decoding gives by columns and one by one."""
    return outcome(data, root, 1, **options), outcome(data, root, 2**32, **options)
