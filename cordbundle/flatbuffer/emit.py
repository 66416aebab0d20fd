"""Generated code that encodes one kind of table, and the shapes that tables take.

Rules of this file: everything is derived from the description of schema.py; the generated source is
small, one function for each table, and makes no call for a field that is not stored; positions
count from the end of the flatbuffer, since it is built from its end towards its start, as the
`flatbuffers` package's builder does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from cordbundle.flatbuffer.schema import Field, Kind, Table, reachable

__all__ = ["PHASE_BITS", "Order", "Shape", "encoder_source", "shape_of"]

Order: TypeAlias = Literal["pack", "flatc"]
"""In which order the fields of one table are laid: `"pack"` is that of the generated object API
(by id), `"flatc"` that of flatc's JSON parser (by size, largest first, then the highest id)."""

PHASE_BITS = 3
"""Low bits of a shape's key: the position modulo 8, on which the padding depends."""

_PHASE = (1 << PHASE_BITS) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The inline bytes of a table for one set of stored fields at one position modulo 8.

    Attributes:
        pack: Called with the offset to the vtable, the table's position and the value of every
            field (positions for offsets); returns the bytes.
        size: Number of those bytes, padding included.
        align: The largest alignment among them.
        vtable: The vtable's bytes.
    """

    pack: Callable[..., bytes]
    size: int
    align: int
    vtable: bytes


@cache
def shape_of(table: Table, key: int, order: Order) -> Shape:
    """Return the shape for a key: the stored slots, one bit each, above the position modulo 8."""
    stored = [slot for slot in range(len(table.slots)) if key >> (PHASE_BITS + slot) & 1]
    if order == "flatc":
        stored.sort(key=lambda slot: (-table.slots[slot].scalar.size, -slot))
    start = end = key & _PHASE
    places: dict[int, int] = {}
    for slot in stored:
        size = table.slots[slot].scalar.size
        end += -end % size + size
        places[slot] = end
    end += -end % 4 + 4
    offsets = {slot: end - place for slot, place in places.items()}
    entries = [offsets.get(slot, 0) for slot in range(max(stored, default=-1) + 1)]
    return Shape(
        pack=_packer(table, offsets, end - start),
        size=end - start,
        align=max([4, *(table.slots[slot].scalar.size for slot in stored)]),
        vtable=struct.pack(f"<{len(entries) + 2}H", 4 + 2 * len(entries), end - start, *entries),
    )


def _packer(table: Table, offsets: dict[int, int], size: int) -> Callable[..., bytes]:
    """Compile the function that packs the inline bytes of a table."""
    names = [f"x{slot}" for slot in range(len(table.slots))]
    layout, values, at = "<i", ["vtable"], 4
    for slot, offset in sorted(offsets.items(), key=lambda item: item[1]):
        scalar = table.slots[slot].scalar
        layout += "x" * (offset - at) + scalar.code
        at = offset + scalar.size
        is_offset = table.slots[slot].is_offset
        values.append(f"at - {offset} - {names[slot]}" if is_offset else names[slot])
    layout += "x" * (size - at)
    source = f"lambda vtable, at, {', '.join(names)}: pack({', '.join(values)})"
    return eval(source, {"pack": struct.Struct(layout).pack})  # type: ignore[no-any-return]


@cache
def encoder_source(root: type) -> str:
    """Return the source of `make(builder)`, which returns the encoder of the root table.

    The names that it uses without defining them are those that encode.py's `_namespace` gives.
    """
    tables = reachable(root)
    index = {table.cls: number for number, table in enumerate(tables)}
    given = "builder, append, strings, place, string, payload, table_vector, union, far"
    lines = [f"def make({given}):"]
    for number, table in enumerate(tables):
        lines += [f"    # {table.name}", f"    shapes{number} = {{}}"]
        lines += [f"    {line}" for line in _table_source(table, number, index)]
    lines += ["    return encode0", ""]
    return "\n".join(lines)


def _table_source(table: Table, number: int, index: dict[type, int]) -> Iterator[str]:
    for field in table.fields:
        name = f"field{number}_{field.slot}"
        if field.kind is Kind.UNION:
            encoders = ", ".join(f"lambda: encode{index[member]}" for member in field.members)
            yield f"members{field.slot}_{number} = union({name}, [{encoders}])"
        elif field.kind is Kind.SCALARS:
            suffix = f"{field.slot}_{number}"
            yield f"known{suffix}, vector{suffix} = builder.vector({name})"
        elif field.kind is Kind.BYTES:
            yield f"align{field.slot}_{number} = builder.alignment({name})"
    yield f"def encode{number}(value):"
    yield "    key = 0"
    for field in table.fields:
        yield from (f"    {line}" for line in _field_source(field, number, index))
    yield "    position = builder.position"
    yield f"    key |= position & {_PHASE}"
    yield f"    shape = shapes{number}.get(key)"
    yield "    if shape is None:"
    yield f"        shape = shapes{number}[key] = place(table{number}, key)"
    yield "    pack, size, vtable, new = shape"
    yield "    at = position + size"
    yield "    if at > LIMIT:"
    yield "        too_large(at)"
    for field in table.fields:
        if field.kind is Kind.BYTES:
            yield f"    if x{field.slot}.__class__ is Far:"
            yield f"        x{field.slot} = far(x{field.slot}, at, new, {field.slot})"
    values = "".join(f", x{slot}" for slot in range(len(table.slots)))
    yield f"    append(pack(vtable - at, at{values}))"
    yield "    if vtable > at:"
    yield "        append(new)"
    yield "        builder.position = vtable"
    yield "    else:"
    yield "        builder.position = at"
    yield "    return at"


def _field_source(field: Field, number: int, index: dict[type, int]) -> Iterator[str]:
    """Read a field, encode its child, and note in `key` that it is stored."""
    x, bit = f"x{field.slot}", 1 << (PHASE_BITS + field.slot)
    name = f"field{number}_{field.slot}"
    yield f"{x} = value.{field.name}"
    if field.kind is Kind.SCALAR:
        yield from _scalar_source(field, x, name)
        yield f"    key |= {bit}"
        return
    if field.kind is Kind.UNION:
        yield f"x{field.slot - 1} = 0"
        bit |= bit >> 1
    yield f"if {x} is not None:"
    if field.kind is Kind.STRING:
        yield f"    data = strings.get({x}) if {x}.__class__ is str else None"
        yield "    if data is None:"
        yield f"        data = string({x}, {name})"
        yield from _vector_source(x, 4)
    elif field.kind is Kind.SCALARS:
        yield f"    {x} = tuple({x})"
        yield f"    data = known{field.slot}_{number}.get({x})"
        yield "    if data is None:"
        yield f"        data = vector{field.slot}_{number}({x})"
        yield from _vector_source(x, max(4, field.scalar.size))
    elif field.kind is Kind.BYTES:
        yield f"    if {x}.__class__ is not Far:"
        yield f"        {x} = payload({x}, {name}, align{field.slot}_{number})"
    elif field.kind is Kind.TABLE:
        yield f"    {x} = encode{index[field.members[0]]}({x})"
    elif field.kind is Kind.TABLES:
        yield f"    {x} = table_vector([encode{index[field.members[0]]}(item) for item in {x}])"
    else:
        yield f"    x{field.slot - 1}, encode = members{field.slot}_{number}[{x}.__class__]"
        yield f"    {x} = encode({x})"
    yield f"    key |= {bit}"


def _vector_source(x: str, align: int) -> Iterator[str]:
    """Lay `data`, a vector with its length field, so that its first element is aligned."""
    yield "    at = builder.position + len(data)"
    yield f"    padding = (4 - at) & {align - 1}"
    yield "    if padding:"
    yield "        append(zeros[padding])"
    yield "    append(data)"
    yield f"    builder.position = {x} = at + padding"


def _scalar_source(field: Field, x: str, name: str) -> Iterator[str]:
    """Skip the default; else check the value in line and leave what is odd to a function."""
    low, high = field.scalar.low, field.scalar.high
    if low is None:
        yield f"if {x} != {field.default!r} or builder.signed_zero and is_negative_zero({x}):"
        yield f"    if {x}.__class__ is not float:"
        yield f"        {x} = real({x}, {name})"
        return
    yield f"if {x} != {field.default!r}:"
    yield f"    if {x}.__class__ not in INTEGERS or not {low} <= {x} <= {high}:"
    yield f"        {x} = whole({x}, {name})"
