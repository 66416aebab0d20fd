"""Lazy views: what a dataclass of a schema looks like while it is still in the file.

Rules of this file: a view is made for one table at one position that was checked, holds nothing but
the reader and that position, and reads a field each time it is asked for; it is an instance of the
dataclass it stands for, so that `isinstance` tells the members of a union apart; it cannot be
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Generic, TypeVar, cast, overload

from cordbundle.cord import Cord
from cordbundle.flatbuffer.reader import ByteRange, Reader
from cordbundle.flatbuffer.schema import Field, Kind, Table, table_of

__all__ = ["VectorView", "View", "byte_range", "checked_view", "position_of", "view_of"]

_T = TypeVar("_T")
_BATCH = 1024


class View:
    """What all views have in common; see `Reader.root`.

    Its own attributes begin with an underscore, since the fields of the schema share the namespace;
    they are for the modules of this package that walk a flatbuffer.
    """

    _table: Table
    _reader: Reader
    _at: int
    _offsets: tuple[int, ...]

    def __repr__(self) -> str:
        return f"<{self._table.name} at offset {self._reader.base + self._at}>"


class VectorView(Sequence[_T], Generic[_T]):
    """A vector in the file; its elements are read when they are asked for.

    Equal to any sequence of equal elements. `len` is O(1), an element O(1).
    """

    __slots__ = ("_count", "_first", "_get", "_many", "_width")

    def __init__(
        self,
        place: ByteRange,
        width: int,
        get: Callable[[int], _T],
        many: Callable[[int, int], Sequence[_T]] | None = None,
    ) -> None:
        self._first = place.offset
        self._count = place.size // width
        self._width = width
        self._get = get
        self._many = many

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> list[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | list[_T]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        number = index + self._count if index < 0 else index
        if not 0 <= number < self._count:
            raise IndexError(f"index {index} of a vector of {self._count}")
        return self._get(self._first + number * self._width)

    def __iter__(self) -> Iterator[_T]:
        if self._many is None:
            for number in range(self._count):
                yield self._get(self._first + number * self._width)
            return
        for number in range(0, self._count, _BATCH):
            size = min(_BATCH, self._count - number)
            yield from self._many(self._first + number * self._width, size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to lists

    def __repr__(self) -> str:
        return f"<vector of {self._count}>"


def view_of(reader: Reader, cls: type[_T], at: int) -> _T:
    """Return the view of the table of that class at a position.

    Raises:
        FormatError: The table or its vtable is not inside the source.
    """
    described: type = cls
    end, offsets = reader.offsets(table_of(described), at)
    reader.visit(end + 4, at)
    made = _view_class(described)
    view: View = made.__new__(made)
    view._reader = reader
    view._at = at
    view._offsets = offsets
    return cast(_T, view)


@cache
def _view_class(cls: type) -> type[View]:
    table = table_of(cls)
    members: dict[str, object] = {
        "__doc__": f"A {table.name} in a file.",
        "_table": table,
    }
    for field in table.fields:
        members[field.name] = property(_getter(field))
    return type(table.name, (View, cls), members)


def _getter(field: Field) -> Callable[[View], object]:
    """Return the function that reads a field of a view."""
    read = _READERS[field.kind]

    def get(view: View) -> object:
        offset = view._offsets[field.slot]
        if offset == 0 and field.kind is not Kind.UNION:
            return field.default
        return read(view, field, view._at + offset)

    return get


def _scalar(view: View, field: Field, at: int) -> object:
    return view._reader.unpacker(field.scalar.code)(at)[0]


def _string(view: View, field: Field, at: int) -> str:
    text = view._reader.string(view._reader.follow(at, field.path), field.path)
    view._reader.visit(len(text) + 5, at)
    return text


def _bytes(view: View, field: Field, at: int) -> Cord:
    place = view._reader.vector(view._reader.follow(at, field.path), 1, field.path)
    return view._reader.cut(place.offset, place.size, field.path)


def _scalars(view: View, field: Field, at: int) -> VectorView[object]:
    reader = view._reader
    code, width = field.scalar.code, field.scalar.size
    place = reader.vector(reader.follow(at, field.path), width, field.path)
    reader.visit(place.size + 4, at)
    one = reader.unpacker(code)
    return VectorView(
        place, width, lambda at: one(at)[0], lambda at, count: reader.unpacker(f"{count}{code}")(at)
    )


def _table(view: View, field: Field, at: int) -> object:
    reader = view._reader
    return view_of(reader, field.members[0], reader.follow(at, field.path))


def _tables(view: View, field: Field, at: int) -> VectorView[object]:
    reader, cls = view._reader, field.members[0]
    place = reader.vector(reader.follow(at, field.path), 4, field.path)
    reader.visit(place.size + 4, at)
    return VectorView(place, 4, lambda at: view_of(reader, cls, reader.follow(at, field.path)))


def _union(view: View, field: Field, at: int) -> object:
    reader = view._reader
    tag_offset = view._offsets[field.slot - 1]
    tag = reader.read(view._at + tag_offset, 1)[0] if tag_offset else 0
    if tag == 0:
        return None
    if tag > len(field.members):
        raise reader.error(
            f"{field.path}: unknown union tag",
            view._at + tag_offset,
            actual=tag,
            expected=f"0 to {len(field.members)}",
        )
    if not view._offsets[field.slot]:
        what = f"{field.path} is half a union"
        raise reader.error(what, view._at, actual=f"type {tag} and no value")
    return view_of(reader, field.members[tag - 1], reader.follow(at, field.path))


_READERS: dict[Kind, Callable[[View, Field, int], object]] = {
    Kind.SCALAR: _scalar,
    Kind.STRING: _string,
    Kind.BYTES: _bytes,
    Kind.SCALARS: _scalars,
    Kind.TABLE: _table,
    Kind.TABLES: _tables,
    Kind.UNION: _union,
}


def checked_view(view: object) -> View:
    """Return a view as one.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(view, View):
        raise TypeError(f"{type(view).__name__} is no view of a table in a file")
    return view


def byte_range(view: object, name: str) -> ByteRange | None:
    """Return where the byte vector of a field is, as offsets in the file, or None if absent.

    Args:
        view: A view of a table.
        name: Name of one of its fields.
    """
    checked = checked_view(view)
    reader, field = checked._reader, checked._table.field(name)
    offset = checked._offsets[field.slot]
    if offset == 0:
        return None
    place = reader.vector(reader.follow(checked._at + offset, field.path), 1, field.path)
    return ByteRange(reader.base + place.offset, place.size)


def position_of(view: object) -> int:
    """Return the offset of a view's table in the file."""
    checked = checked_view(view)
    return checked._reader.base + checked._at
