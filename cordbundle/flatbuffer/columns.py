"""Decode many tables of one kind at once, field by field.

Rules of this file: the records are those that decode.py makes one by one; nothing is read before
all positions were compared with the size of the source, nor before it was counted; what is damaged
or merely unusual is left to decode.py, which finds the place; NumPy does the reading, and only
where it is loaded anyway.

All tables of a vector that share a vtable have a field at the same distance, so that one field of
all of them is one look-up with an array of positions. Positions need not be aligned: the source is
seen as an array whose elements begin at every byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, TypeAlias

from cordbundle.errors import FormatError
from cordbundle.flatbuffer.reader import Reader
from cordbundle.flatbuffer.schema import Field, Kind, Table, table_of

if TYPE_CHECKING:
    import numpy as np

    Numbers: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.integer]]"

__all__ = ["MANY", "ROWS", "ColumnDecoder", "Factory", "Making", "Scalars", "UnusualError"]

Scalars: TypeAlias = type[list[object]] | type[tuple[object, ...]]
"""What vectors of scalars become."""

MANY = 64
"""From so many tables on it pays."""

_MAX_SHAPES = 64
_MAX_SPAN = 16  # bytes that strings may be spread over, for each of their own
_SLACK = 64 << 10


@dataclass(frozen=True, slots=True)
class Factory:
    """What makes the records of one table.

    Attributes:
        one: Called with the values of a table, in the order of its fields.
        many: Called with as many iterables of equal length, one for each field; returns an iterable
            of the records that `one` would make.
    """

    one: Callable[..., object]
    many: Callable[..., Iterable[object]]

    @classmethod
    def of(cls, make: Callable[..., object]) -> Factory:
        """Return the factory that calls `make` for each table."""
        return cls(make, partial(map, make))


def _row(*values: object) -> tuple[object, ...]:
    return values


ROWS = Factory(_row, zip)
"""Makes tuples of the values, which are the cheapest records."""


@dataclass(frozen=True, slots=True)
class Making:
    """How results are made; see `decode` for the attributes."""

    by_reference: bool
    factories: Mapping[type, Factory]
    scalars: Scalars


class UnusualError(FormatError):
    """Say that tables have to be decoded one by one; does not leave the decoder."""


class ColumnDecoder:
    """Decodes tables of one source.

    Args:
        reader: The source, which is in memory.
        making: How.

    Attributes:
        left: Bytes that may still be visited.
    """

    def __init__(self, reader: Reader, making: Making) -> None:
        self._reader = reader
        self._making = making
        self._sources: dict[str, Numbers] = {}
        self.left = 0

    @staticmethod
    def can_read(reader: Reader) -> bool:
        """Tell whether the source is in memory and NumPy loaded."""
        return reader.flat is not None and "numpy" in sys.modules

    def vector(self, field: Field, at: int, left: int) -> list[object]:
        """Decode a vector of tables.

        Args:
            field: The field that holds it.
            at: Position of its length, which was checked and counted.
            left: Bytes that may be visited.

        Raises:
            FormatError: The tables have to be decoded one by one.
        """
        import numpy as np

        self.left = left
        count = self._look("I", np.array([at])).astype(np.int64)
        return self._targets(table_of(field.members[0]), _places(np.array([at + 4]), count, 4))

    def _look(self, code: str, at: Numbers) -> Numbers:
        """Return the numbers at positions that were checked."""
        source = self._sources.get(code)
        if source is None:
            import numpy as np

            kind = np.dtype("<" + code)
            count = max(0, self._reader.size - kind.itemsize + 1)
            source = np.ndarray((count,), kind, self._reader.flat, strides=(1,))
            self._sources[code] = source
        found: Numbers = source[at]
        return found

    def _inside(self, at: Numbers, size: int) -> None:
        if int(at.max()) + size > self._reader.size:
            raise UnusualError("a position is outside")

    def _visit(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise UnusualError("too much is visited")

    def _follow(self, at: Numbers) -> Numbers:
        """Return what the offsets at these positions point to, not yet checked."""
        steps = self._look("I", at)
        if not steps.all():
            raise UnusualError("an offset is zero")
        return at + steps

    def _targets(self, table: Table, at: Numbers) -> list[object]:
        return self._tables(table, self._follow(at)) if at.size else []

    def _tables(self, table: Table, at: Numbers) -> list[object]:
        """Return the records of the tables at these positions, of which there are some."""
        self._inside(at, 4)
        vtables = at - self._look("i", at)
        if (vtables == vtables[0]).all():
            return list(self._records(table, at))
        records: list[object] = [None] * at.size
        for chosen in _groups(vtables):
            _scatter(records, chosen, self._records(table, at[chosen]))
        return records

    def _records(self, table: Table, at: Numbers) -> Iterable[object]:
        """Return the records of tables that share a vtable."""
        width, offsets = self._reader.offsets(table, int(at[0]))
        self._visit(width * at.size)
        self._inside(at, width)
        factory = self._making.factories.get(table.cls) or Factory.of(table.cls)
        columns = [self._column(field, at, offsets) for field in table.fields]
        if not columns:
            return [factory.one() for _ in range(at.size)]
        return factory.many(*columns)

    def _column(self, field: Field, at: Numbers, offsets: tuple[int, ...]) -> Iterable[object]:
        offset = offsets[field.slot]
        if field.kind is Kind.UNION:
            tag = offsets[field.slot - 1]
            return self._union(field, at, tag, offset) if tag else repeat(None, at.size)
        if not offset:
            return repeat(field.default, at.size)
        if field.kind is Kind.SCALAR:
            return _listed(self._scalars(field, at + offset))
        target = self._follow(at + offset)
        if field.kind is Kind.TABLE:
            return self._tables(table_of(field.members[0]), target)
        return self._vectors(field, target)

    def _scalars(self, field: Field, at: Numbers) -> Numbers:
        if field.scalar.code == "?":  # any other byte than 0 is true
            truth: Numbers = self._look("B", at) != 0
            return truth
        return self._look(field.scalar.code, at)

    def _union(self, field: Field, at: Numbers, tag: int, offset: int) -> list[object]:
        tags = self._look("B", at + tag)
        if int(tags.max()) > len(field.members):
            raise UnusualError("a union has an unknown tag")
        records: list[object] = [None] * at.size
        for number, member in enumerate(field.members, 1):
            (chosen,) = (tags == number).nonzero()
            if chosen.size and not offset:
                raise UnusualError("a union has no value")
            if chosen.size:
                target = self._follow(at[chosen] + offset)
                _scatter(records, chosen, self._tables(table_of(member), target))
        return records

    def _vectors(self, field: Field, at: Numbers) -> Iterable[object]:
        import numpy as np

        self._inside(at, 4)
        counts = self._look("I", at).astype(np.int64)
        width = 1 if field.kind is Kind.STRING else field.scalar.size
        start = at + 4
        self._visit(4 * at.size + width * int(counts.sum()))
        self._inside(start + width * counts, 0)
        if field.kind is Kind.STRING:
            return self._strings(field, start, counts)
        if field.kind is Kind.BYTES:
            get = self._reader.cut if self._making.by_reference else self._reader.read
            return map(get, start.tolist(), counts.tolist(), repeat(field.path))
        places = _places(start, counts, width)
        if field.kind is Kind.TABLES:
            return _split(self._targets(table_of(field.members[0]), places), counts)
        values = self._scalars(field, places)
        if (counts == counts[0]).all():
            rows = _listed(values.reshape(at.size, int(counts[0])))
        else:
            rows = _split(values.tolist(), counts)
        make = self._making.scalars
        return rows if make is list else map(make, rows)

    def _strings(self, field: Field, start: Numbers, sizes: Numbers) -> list[str]:
        """Cut strings out of the text around them, if that is not much larger."""
        end = start + sizes
        self._inside(end, 1)
        if self._look("B", end).any():
            raise UnusualError("a string has no NUL")
        low, high = int(start.min()), int(end.max())
        if high - low > _MAX_SPAN * int(sizes.sum()) + _SLACK:
            return [self._reader.string(at - 4, field.path) for at in start.tolist()]
        text = self._reader.read(low, high - low).decode("latin-1")  # a character for each byte
        places = zip((start - low).tolist(), (end - low).tolist(), strict=True)
        found = [text[first:last] for first, last in places]
        if all(map(str.isascii, found)):
            return found
        return [
            one if one.isascii() else self._reader.string(at - 4, field.path)
            for one, at in zip(found, start.tolist(), strict=True)
        ]


def _places(start: Numbers, counts: Numbers, width: int) -> Numbers:
    """Return the positions of all elements of vectors."""
    import numpy as np

    before = counts.cumsum() - counts
    return np.repeat(start - width * before, counts) + width * np.arange(int(counts.sum()))


def _groups(keys: Numbers) -> Iterator[Numbers]:
    """Yield the indices of equal keys."""
    import numpy as np

    rest: Numbers = np.arange(keys.size)
    for _ in range(_MAX_SHAPES):
        same = keys[rest] == keys[rest[0]]
        yield rest[same]
        rest = rest[~same]
        if not rest.size:
            return
    raise UnusualError("tables have many shapes")


def _scatter(records: list[object], chosen: Numbers, found: Iterable[object]) -> None:
    """Put what was found in the chosen places."""
    first, last = int(chosen[0]), int(chosen[-1])
    if last - first + 1 == chosen.size:
        records[first : last + 1] = found
        return
    for index, record in zip(chosen.tolist(), found, strict=True):
        records[index] = record


def _listed(numbers: Numbers) -> list[Any]:
    """Return an array as lists of Python's own numbers."""
    listed: list[Any] = numbers.tolist()
    return listed


def _split(values: Iterable[object], counts: Numbers) -> list[Any]:
    rest = iter(values)
    return [list(islice(rest, count)) for count in counts.tolist()]
