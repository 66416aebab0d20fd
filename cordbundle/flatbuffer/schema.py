"""The description of a flatbuffer schema: plain dataclasses with annotations that say how to store.

Rules of this file: a schema is described once, by its dataclasses, and everything that encodes,
reads or checks asks `table_of`; the order of the fields is the order of their ids in the `.fbs`
file; nothing is compiled before it is first needed, and what is compiled is kept.

    @dataclass(slots=True)
    class Tensor:
        scalar_type: Int8 = 0                         # scalar; the default is not stored
        sizes: Sequence[Int32] | None = None          # vector of scalars
        data: Annotated[Payload | None, Bytes(16)] = None   # bytes, aligned, held by reference
        info: Info | None = None                      # child table

    @dataclass(slots=True)
    class Value:
        val: Tensor | Int | None = None               # union; takes two ids (type, value)

The layout of the bytes is that of https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Optional, TypeAlias, Union, get_args, get_origin, get_type_hints

from cordbundle.cord import Cord

__all__ = [
    "Boolean",
    "Bytes",
    "Far",
    "Field",
    "Float64",
    "Int8",
    "Int32",
    "Int64",
    "Kind",
    "Payload",
    "Scalar",
    "Slot",
    "Table",
    "UInt8",
    "UInt32",
    "UInt64",
    "reachable",
    "table_of",
]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar type of flatbuffers.

    Attributes:
        name: Its name in messages.
        code: Its letter in `struct`.
        size: Bytes, also its alignment.
        low: Smallest value; None for floating point.
        high: Largest value; None for floating point.
    """

    name: str
    code: str
    size: int
    low: int | None = None
    high: int | None = None


_BYTE = Scalar("uint8", "B", 1, 0, 2**8 - 1)

Boolean: TypeAlias = Annotated[bool, Scalar("bool", "?", 1, 0, 1)]
Int8: TypeAlias = Annotated[int, Scalar("int8", "b", 1, -(2**7), 2**7 - 1)]
UInt8: TypeAlias = Annotated[int, _BYTE]
Int32: TypeAlias = Annotated[int, Scalar("int32", "i", 4, -(2**31), 2**31 - 1)]
UInt32: TypeAlias = Annotated[int, Scalar("uint32", "I", 4, 0, 2**32 - 1)]
Int64: TypeAlias = Annotated[int, Scalar("int64", "q", 8, -(2**63), 2**63 - 1)]
UInt64: TypeAlias = Annotated[int, Scalar("uint64", "Q", 8, 0, 2**64 - 1)]
Float64: TypeAlias = Annotated[float, Scalar("float64", "d", 8)]

_TAG = Scalar("union type", "B", 1, 0, 2**8 - 1)
_OFFSET = Scalar("offset", "I", 4, 0, 2**32 - 1)


@dataclass(frozen=True, slots=True)
class Far:
    """Stand for a byte vector that is placed after the flatbuffer.

    The field is written with offset 0; `Encoded.fars` says where, so that it can be pointed to the
    vector once the layout is known.

    Attributes:
        key: What the caller knows it by, as the index of a segment.
    """

    key: int


Payload: TypeAlias = bytes | bytearray | memoryview | Cord
"""What a byte vector may be given as; a view answers with a Cord, `decode` with bytes or a Cord.
Where a field is meant to be pointed past the flatbuffer its annotation adds `Far`."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """Mark a field as a byte vector.

    Attributes:
        align: Alignment of its first byte, a power of two.
        name: Name under which `encode` takes another alignment.
    """

    align: int = 1
    name: str | None = None


class Kind(Enum):
    """What a field holds."""

    SCALAR = "scalar"
    STRING = "string"
    BYTES = "byte vector"
    SCALARS = "vector of scalars"
    TABLE = "table"
    TABLES = "vector of tables"
    UNION = "union"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table.

    Attributes:
        path: "Table.field", for messages.
        name: Its attribute name, as in the `.fbs` file.
        kind: What it holds.
        slot: Its id; for a union that of the value, one after that of the type.
        default: What an absent field reads as.
        scalar: Type of the scalar or of the vector's elements; an offset where they are tables.
        layout: Alignment of a byte vector.
        members: The dataclass of the table, or those of the union by tag - 1.
    """

    path: str
    name: str
    kind: Kind
    slot: int
    default: object = None
    scalar: Scalar = _OFFSET
    layout: Bytes = Bytes()
    members: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of a vtable: what stands inline in the table.

    Attributes:
        field: The field it belongs to.
        scalar: Type of the inline value; an unsigned 32-bit offset for all but scalars and tags.
        is_tag: Whether it holds the type of a union.
    """

    field: Field
    scalar: Scalar
    is_tag: bool = False

    @property
    def is_offset(self) -> bool:
        """Whether the value is an offset to follow."""
        return self.scalar is _OFFSET


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The compiled description of one dataclass.

    Attributes:
        cls: The dataclass.
        fields: Its fields in the order of their ids.
        slots: The entries of a full vtable, by id.
    """

    cls: type
    fields: tuple[Field, ...]
    slots: tuple[Slot, ...]

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.cls.__name__

    def field(self, name: str) -> Field:
        """Return the field of that name.

        Raises:
            AttributeError: There is none.
        """
        for field in self.fields:
            if field.name == name:
                return field
        raise AttributeError(f"table {self.name} has no field {name}")


def table_of(cls: type) -> Table:
    """Compile the description of a dataclass; O(fields) once, O(1) later.

    Raises:
        TypeError: An annotation that no flatbuffer can hold.
    """
    return _table(cls)


@cache  # behind a plain function: type checkers know nothing of a cached one's arguments
def _table(cls: type) -> Table:
    hints = get_type_hints(cls, include_extras=True)
    fields: list[Field] = []
    slots: list[Slot] = []
    for item in dataclasses.fields(cls):
        field = _field(cls, item.name, hints[item.name], item.default, len(slots))
        fields.append(field)
        if field.kind is Kind.UNION:
            slots.append(Slot(field, _TAG, is_tag=True))
        slots.append(Slot(field, field.scalar if field.kind is Kind.SCALAR else _OFFSET))
    return Table(cls, tuple(fields), tuple(slots))


def _field(cls: type, name: str, hint: object, default: object, slot: int) -> Field:
    path = f"{cls.__name__}.{name}"
    marks = getattr(hint, "__metadata__", ())
    if marks and isinstance(marks[0], Bytes):
        return Field(path, name, Kind.BYTES, slot, scalar=_BYTE, layout=marks[0])
    if marks and isinstance(marks[0], Scalar):
        return Field(path, name, Kind.SCALAR, slot, default=default, scalar=marks[0])
    options = [hint]
    if get_origin(hint) in (Union, Optional, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
    only = options[0]
    if len(options) > 1:
        return Field(path, name, Kind.UNION, slot + 1, members=tuple(map(_checked_table, options)))
    if only is str:
        return Field(path, name, Kind.STRING, slot)
    if get_origin(only) is Sequence:
        (element,) = get_args(only)
        marks = getattr(element, "__metadata__", ())
        if marks and isinstance(marks[0], Scalar):
            return Field(path, name, Kind.SCALARS, slot, scalar=marks[0])
        return Field(path, name, Kind.TABLES, slot, members=(_checked_table(element),))
    if isinstance(only, type):
        return Field(path, name, Kind.TABLE, slot, members=(_checked_table(only),))
    raise TypeError(f"{path}: {hint} is nothing that a flatbuffer can hold")


def _checked_table(hint: object) -> type:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    raise TypeError(f"{hint} is no table (a dataclass)")


@cache
def reachable(cls: type) -> tuple[Table, ...]:
    """Return the tables that a root of this class can hold, itself first."""
    found: dict[type, Table] = {}
    waiting = [cls]
    while waiting:
        current = waiting.pop(0)
        if current not in found:
            found[current] = table_of(current)
            waiting += [member for field in found[current].fields for member in field.members]
    return tuple(found.values())
