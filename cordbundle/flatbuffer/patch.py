"""Change a few values of a finished flatbuffer and leave every other byte as it is.

Rules of this file: a value that is stored is overwritten in its place; what has no place is
appended and pointed to, which works because offsets are unsigned and count forward from where they
stand; what is not known of a newer schema is never copied away from, but refused; payload stays
where it is, by reference.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cordbundle.cord import Cord, Fill
from cordbundle.errors import LayoutError, TooLargeError
from cordbundle.flatbuffer.encode import LIMIT, encode
from cordbundle.flatbuffer.reader import Reader
from cordbundle.flatbuffer.schema import Kind, table_of
from cordbundle.flatbuffer.view import checked_view

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Patch",
    "has_unknown_fields",
    "offset_field",
    "refuse_unknown",
    "tables_of",
    "unknown_fields",
]

_JOINED = 4096
"""Writes that are nearer to each other become one run of memory; a chunk for each costs more."""


class Patch:
    """Collect changes to a flatbuffer and apply them at once.

    Args:
        source: The flatbuffer, and whatever stands in it by reference.
    """

    def __init__(self, source: Cord) -> None:
        self._source = source
        self._writes: list[tuple[int, Cord]] = []
        self._tail = Cord()

    def __len__(self) -> int:
        """Size of the result, in bytes."""
        return len(self._source) + len(self._tail)

    def write(self, at: int, data: Buffer | Cord) -> None:
        """Overwrite the bytes at a position with as many others, which may not overlap others."""
        self._writes.append((at, data if isinstance(data, Cord) else Cord(data)))

    def set(self, view: object, **values: int) -> bool:
        """Store scalars in a table.

        Args:
            view: A view of the table.
            values: The values by the names of their fields.

        Returns:
            Whether it was done; False, and nothing is changed, where the table does not store one
            of them and it is not to have its default.
        """
        checked = checked_view(view)
        writes = []
        for name, value in values.items():
            field = checked._table.field(name)
            offset = checked._offsets[field.slot]
            if offset:
                writes.append((checked._at + offset, struct.pack("<" + field.scalar.code, value)))
            elif value != field.default:
                return False
        for at, data in writes:
            self.write(at, data)
        return True

    def append(self, record: object) -> int:
        """Append a table and all below it, encoded by itself.

        Args:
            record: An instance of a dataclass of the schema.

        Returns:
            The position of the table.

        Raises:
            TooLargeError: The flatbuffer would pass 2 GiB.
        """
        encoded = encode(record, None)
        at = len(self) + -len(self) % max(8, encoded.alignment)
        if at + len(encoded.cord) > LIMIT:
            raise TooLargeError(
                "flatbuffer is too large",
                actual=f"{at + len(encoded.cord)} bytes",
                expected=f"at most {LIMIT}",
            )
        self._tail.append(Cord.of(Fill(at - len(self))))
        self._tail.append(encoded.cord)
        return at + Reader(encoded.cord).root_position()

    def append_tables(self, holder: object, name: str) -> int:
        """Append a vector of tables, given as the only field of its holder.

        Returns:
            The position of the vector.
        """
        at = self.append(holder)
        copy = Reader(self._tail)
        start = at - len(self._source)
        _, offsets = copy.offsets(table_of(type(holder)), start)
        field = table_of(type(holder)).field(name)
        return len(self._source) + copy.follow(start + offsets[field.slot], field.path)

    def point(self, at: int, target: int) -> None:
        """Make the offset at a position point to something behind it."""
        self.write(at, struct.pack("<I", target - at))

    def finish(self) -> Cord:
        """Return the changed flatbuffer; runs of the source that stay are shared with it."""
        result, end = Cord(), 0
        for start, stop, writes in _runs(self._writes):
            result.append(self._source[end:start])
            if len(writes) == 1:
                result.append(writes[0][1])
            else:
                run = bytearray(stop - start)
                self._source.readinto(run, start)
                for at, data in writes:
                    run[at - start : at - start + len(data)] = bytes(data)
                result.append(bytes(run))
            end = stop
        result.append(self._source[end:])
        result.append(self._tail)
        return result


def _runs(
    writes: Iterable[tuple[int, Cord]],
) -> Iterator[tuple[int, int, list[tuple[int, Cord]]]]:
    """Yield (start, stop, writes) for writes that are small and near to each other."""
    held: list[tuple[int, Cord]] = []
    start = stop = 0
    for at, data in sorted(writes, key=lambda item: item[0]):
        if held and at + len(data) - start > _JOINED:
            yield start, stop, held
            held = []
        if not held:
            start = at
        held.append((at, data))
        stop = at + len(data)
    if held:
        yield start, stop, held


def offset_field(view: object, name: str) -> int | None:
    """Return the position of the offset that a field stores; None where it is not stored."""
    checked = checked_view(view)
    offset = checked._offsets[checked._table.field(name).slot]
    return checked._at + offset if offset else None


def tables_of(view: object, name: str) -> Sequence[int]:
    """Return the positions of the offsets in a vector of tables; none where it is not stored.

    Raises:
        TruncatedError: The vector passes the end.
    """
    checked = checked_view(view)
    field, at = checked._table.field(name), offset_field(view, name)
    if at is None or field.kind is not Kind.TABLES:
        return ()
    place = checked._reader.vector(checked._reader.follow(at, field.path), 4, field.path)
    return range(place.offset, place.offset + place.size, 4)


def has_unknown_fields(view: object) -> bool:
    """Return whether a table stores fields that its description does not have."""
    checked = checked_view(view)
    reader, at = checked._reader, checked._at
    (back,) = struct.unpack("<i", reader.read(at, 4))
    (size,) = struct.unpack("<H", reader.read(at - back, 2))
    known = 4 + 2 * len(checked._table.slots)
    return size > known and any(reader.read(at - back + known, size - known))


def unknown_fields(view: object) -> list[str]:
    """Return the names of tables that store fields which their description does not have.

    All tables that were read through the view's reader are looked at; after `decode`, all below it.
    """
    return sorted(cls.__name__ for cls in checked_view(view)._reader.newer)


def refuse_unknown(names: Sequence[str], source: str | None) -> None:
    """Refuse to make anew what holds fields that would be lost.

    Raises:
        LayoutError: There are such tables.
    """
    if names:
        raise LayoutError(
            f"fields of a newer schema in table {', '.join(names)} would be lost",
            source=source,
            cause="this change cannot be made in place; a newer version may know them",
        )
