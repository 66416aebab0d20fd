"""Damage to files: where the numbers of a file stand, and what may become of them.

Rules of this file: it takes any bytes, sound or not, and never fails; a damage is a plain record,
so that a fuzzer may draw it from its generator and a property test from its strategies; what it
does depends on the record and the bytes alone.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from cordbundle import bpte_schema, ptd_schema
from cordbundle import program as pte_schema
from cordbundle.flatbuffer.schema import Field, Kind, Table, table_of
from cordbundle.headers import HEADER_OFFSET, KINDS

__all__ = ["DAMAGES", "Damage", "Place", "apply", "places", "random_damage"]

_ROOTS: dict[bytes, type] = {
    pte_schema.PROGRAM_IDENTIFIER: pte_schema.Program,
    ptd_schema.FLAT_TENSOR_IDENTIFIER: ptd_schema.FlatTensor,
    bpte_schema.BUNDLED_PROGRAM_IDENTIFIER: bpte_schema.BundledProgram,
    bpte_schema.SEGMENTED_IDENTIFIER: bpte_schema.BundledProgram,
}
_MAX_PLACES = 4000

DAMAGES = (
    *("flip", "set", "truncate", "append", "insert", "remove", "copy", "zero"),
    *("number", "number", "number", "point"),
)
"""Names of all damages; changes of numbers are there more often, since they matter most."""


@dataclass(frozen=True, slots=True)
class Place:
    """A number of a file.

    Attributes:
        at: Its first byte.
        width: Its bytes.
        what: "offset", "back" (to a vtable), "vtable", "length", "value" or "header".
    """

    at: int
    width: int
    what: str


@dataclass(frozen=True, slots=True)
class Damage:
    """One change of a file.

    Attributes:
        name: What is done, of `DAMAGES`.
        where: Chooses where; any number from 0.
        how: Chooses how much, or what with; any number from 0.
    """

    name: str
    where: int
    how: int


def random_damage(numbers: random.Random) -> Damage:
    """Draw a damage from a generator of random numbers."""
    return Damage(numbers.choice(DAMAGES), numbers.getrandbits(32), numbers.getrandbits(32))


def apply(data: bytes, damages: Sequence[Damage]) -> bytes:
    """Return bytes after one damage after the other."""
    for damage in damages:
        data = _apply(data, damage)
    return data


def _apply(data: bytes, damage: Damage) -> bytes:
    at = damage.where % (len(data) + 1)
    how = damage.how
    end = at + how % 33
    if damage.name == "truncate":
        return data[:at]
    if damage.name == "append":
        return data + bytes([how % 256]) * (how % 17)
    if damage.name == "insert":
        return data[:at] + bytes([how >> 8 & 255]) * (how % 17) + data[at:]
    if damage.name == "remove":
        return data[:at] + data[end:]
    if damage.name == "zero":
        return data[:at] + bytes(len(data[at:end])) + data[end:]
    if damage.name == "copy":
        start = (how >> 6) % (len(data) + 1)
        run = data[start : start + how % 33]
        return data[:at] + run + data[at + len(run) :]
    if damage.name in ("flip", "set"):
        old = data[at : at + 1]
        new = old[0] ^ 1 << how % 8 if old and damage.name == "flip" else how % 256
        return data[:at] + bytes([new])[: len(old)] + data[at + 1 :]
    found = list(islice(places(data), _MAX_PLACES))
    if not found:
        return data
    return _change_number(data, found, damage)


def _change_number(data: bytes, found: Sequence[Place], damage: Damage) -> bytes:
    """Write a number on a boundary, or an offset to something else, where a number stands."""
    if damage.name == "point":
        found = [place for place in found if place.what in ("offset", "back")] or found
    place = found[damage.where % len(found)]
    old = int.from_bytes(data[place.at : place.at + place.width], "little")
    if damage.name == "point":
        target = found[damage.how % len(found)].at
        new = place.at - target if place.what == "back" else target - place.at
    else:
        choices = _boundaries(old, place, len(data))
        new = choices[damage.how % len(choices)]
    stored = (new % (1 << 8 * place.width)).to_bytes(place.width, "little")
    return data[: place.at] + stored + data[place.at + place.width :]


def _boundaries(old: int, place: Place, size: int) -> list[int]:
    top = 1 << 8 * place.width
    rest = size - place.at
    return [
        *(0, 1, 2, 3, 4, 8, 15, 64, 255),
        *(top - 1, top - 4, top - 16, top // 2, top // 2 - 1, top // 4, top // 4 - 1, top // 8),
        *(old + 1, old - 1, old + 4, old - 4, old + 16, old * 2, old // 2, old << 32),
        *(size, size - 1, size + 1, rest, rest - 1, rest - 4, rest - 5, rest + 1, -rest),
        *(top - old, top - size, top - place.at),
    ]


def places(data: bytes) -> Iterator[Place]:
    """Yield the numbers of a file, and of programs inside it, as far as they can be found."""
    start = 0
    while start >= 0 and len(data) >= start + HEADER_OFFSET:
        root = _ROOTS.get(data[start + 4 : start + 8])
        if root is not None:
            yield Place(start, 4, "offset")
            yield from _header(data, start)
            yield from _Walk(data, start).table(table_of(root), start)
        start = data.find(pte_schema.PROGRAM_IDENTIFIER, start + 8) - 4


def _header(data: bytes, start: int) -> Iterator[Place]:
    kind = next(kind for kind in KINDS if kind.identifier == data[start + 4 : start + 8])
    first = start + HEADER_OFFSET
    if data[first : first + 4] == kind.header.magic:
        yield Place(first + 4, 4, "header")
        for name, code in kind.header.fields:
            at = start + kind.header.offset_of(name)
            if code == "Q" and at + 8 <= len(data):
                yield Place(at, 8, "header")


class _Walk:
    """A walk through a flatbuffer that may be damaged: what leads outside is passed over."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._start = start
        self._seen: set[tuple[type, int]] = set()

    def _number(self, code: str, at: int) -> int:
        """Return a number, or 0 where there is none."""
        inside = at >= self._start and at + struct.calcsize(code) <= len(self._data)
        return int(struct.unpack_from("<" + code, self._data, at)[0]) if inside else 0

    def table(self, table: Table, slot: int) -> Iterator[Place]:
        """Yield the numbers of the table that the offset at `slot` points to, and below it."""
        at = slot + self._number("I", slot)
        if at == slot or at + 4 > len(self._data) or (table.cls, at) in self._seen:
            return
        self._seen.add((table.cls, at))
        yield Place(at, 4, "back")
        vtable = at - self._number("i", at)
        count = min(max(self._number("H", vtable) // 2 - 2, 0), len(table.slots))
        offsets = [self._number("H", vtable + 4 + 2 * index) for index in range(count)]
        yield Place(max(vtable, 0), 2, "vtable")
        for index, offset in enumerate(offsets):
            if offset and at + offset + table.slots[index].scalar.size <= len(self._data):
                yield Place(vtable + 4 + 2 * index, 2, "vtable")
                what = "offset" if table.slots[index].is_offset else "value"
                yield Place(at + offset, table.slots[index].scalar.size, what)
        for field in table.fields:
            if field.kind is not Kind.SCALAR and field.slot < count and offsets[field.slot]:
                tag = offsets[field.slot - 1] if field.kind is Kind.UNION else 0
                yield from self._below(field, at + offsets[field.slot], at + tag)

    def _below(self, field: Field, slot: int, tag: int) -> Iterator[Place]:
        at = slot + self._number("I", slot)
        if field.kind is Kind.TABLE:
            yield from self.table(table_of(field.members[0]), slot)
        elif field.kind is Kind.UNION:
            member = self._number("B", tag) - 1
            if 0 <= member < len(field.members):
                yield from self.table(table_of(field.members[member]), slot)
        elif at + 4 <= len(self._data):
            yield Place(at, 4, "length")
            width = 4 if field.kind is Kind.TABLES else field.scalar.size
            count = min(self._number("I", at), (len(self._data) - at - 4) // width, 8)
            for index in range(count if field.kind in (Kind.TABLES, Kind.SCALARS) else 0):
                element = at + 4 + width * index
                if field.kind is Kind.TABLES:
                    yield Place(element, 4, "offset")
                    yield from self.table(table_of(field.members[0]), element)
                else:
                    yield Place(element, width, "value")
