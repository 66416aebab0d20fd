"""Encode dataclasses as a flatbuffer, with byte vectors by reference.

Rules of this file: the bytes are those of the `flatbuffers` package's builder as flatc's generated
Python drives it (or, on request, those of flatc's JSON parser), and tests hold it to them; no
payload is copied but the smallest; every number is checked before it is packed. The package's
builder is replaced because it cannot hold a vector by reference, and because three fifths of the
time in which ExecuTorch encodes a program go into its calls, several for every number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import sub
from types import CodeType
from typing import NoReturn, cast

from cordbundle.cord import Cord
from cordbundle.errors import LayoutError, TooLargeError
from cordbundle.flatbuffer.emit import Order, encoder_source, shape_of
from cordbundle.flatbuffer.schema import Far, Field, Table, reachable
from cordbundle.flatbuffer.values import (
    INTEGERS,
    is_negative_zero,
    packed_vector,
    payload_cord,
    real,
    utf8,
    whole,
)

__all__ = ["LIMIT", "Encoded", "FarSlot", "encode"]

LIMIT = 2**31 - 1
"""Largest flatbuffer, in bytes: its offsets are signed where a table refers to its vtable."""

_JOINED = 4096
"""Byte vectors below this size are copied into the metadata; a chunk of their own costs more."""

_REMEMBERED = 16
"""Vectors of up to this many integers are packed once and reused: shapes repeat a lot."""

_LENGTH = struct.Struct("<I")
_ZEROS = [bytes(size) for size in range(8)]


@dataclass(frozen=True, slots=True)
class FarSlot:
    """A field that is to point to a byte vector after the flatbuffer.

    Attributes:
        position: Where its 4-byte offset is, from the start of the flatbuffer. The offset to write
            there is the vector's length field minus this position.
        far: What the field was given as.
    """

    position: int
    far: Far


@dataclass(frozen=True, slots=True)
class Encoded:
    """A finished flatbuffer.

    Attributes:
        cord: Its bytes: few chunks of memory, and the payloads by reference.
        fars: Its far fields, in file order.
        alignment: What its first byte has to be aligned to.
    """

    cord: Cord
    fars: tuple[FarSlot, ...]
    alignment: int
    _runs: tuple[bytes | Cord, ...]

    def patched(self, values: Mapping[int, int]) -> Cord:
        """Return the bytes with unsigned 32-bit values written at positions of the metadata.

        Only the runs of memory that hold a position are copied.

        Args:
            values: Value by position; a position as in `fars`, or 0 for the root offset.

        Raises:
            TooLargeError: A value of 2**32 or more.
            LayoutError: A negative value, or a position that is not in the metadata.
        """
        waiting = sorted(values.items())
        cord, start = Cord(), 0
        for run in self._runs:
            end = start + len(run)
            inside = [(at - start, value) for at, value in waiting if start <= at <= end - 4]
            if inside and isinstance(run, bytes):
                waiting = waiting[len(inside) :]
                cord.append(_with_values(run, inside))
            else:
                cord.append(run)
            start = end
        if waiting:
            raise LayoutError("no such position in the metadata", offset=waiting[0][0])
        return cord


def _with_values(run: bytes, values: Iterable[tuple[int, int]]) -> bytes:
    copy = bytearray(run)
    for at, value in values:
        if not 0 <= value < 2**32:
            kind = TooLargeError if value > 0 else LayoutError
            raise kind("offset does not fit into 32 bits", actual=value, expected="below 2**32")
        struct.pack_into("<I", copy, at, value)
    return bytes(copy)


def encode(
    root: object,
    identifier: bytes | None,
    *,
    schema: type | None = None,
    alignments: Mapping[str, int] | None = None,
    order: Order = "pack",
    signed_zero: bool = False,
) -> Encoded:
    """Encode a table and all below it as a flatbuffer.

    Args:
        root: An instance of `schema`, or any object with the same attributes, all the way down. The
            member of a union is told by the name of its class.
        identifier: The file identifier, 4 bytes, or None.
        schema: The dataclass that describes `root`; its own class if None.
        alignments: Alignment of the byte vectors that are marked with a name, in bytes.
        order: Order of the fields within a table.
        signed_zero: Store a floating-point -0.0, which equals the default and is left out
            otherwise, as the `flatbuffers` package does.

    Returns:
        The flatbuffer. Takes time and memory in proportion to the objects, not to the payloads.

    Raises:
        LayoutError: A value of another type, out of range, or an unknown member of a union; it
            names table and field.
        TooLargeError: The flatbuffer would be larger than `LIMIT`.
    """
    builder = _Builder(alignments or {}, order, signed_zero)
    encode_root = _encoder(type(root) if schema is None else schema, builder)
    try:
        return builder.finish(encode_root(root), identifier)
    finally:
        builder.release()


def _encoder(schema: type, builder: _Builder) -> Callable[[object], int]:
    names = _namespace(schema)
    exec(_code(schema), names)
    make = names.pop("make")  # its globals are `names`: no cycle is left
    return cast(Callable[..., Callable[[object], int]], make)(
        builder,
        builder.pieces.append,
        builder.strings,
        builder.place,
        builder.string,
        builder.payload,
        builder.table_vector,
        _Union,
        builder.far,
    )


@cache
def _code(schema: type) -> CodeType:
    return compile(encoder_source(schema), f"<encoder of {schema.__name__}>", "exec")


def _namespace(schema: type) -> dict[str, object]:
    names: dict[str, object] = {
        "Far": Far,
        "INTEGERS": INTEGERS,
        "LIMIT": LIMIT,
        "is_negative_zero": is_negative_zero,
        "real": real,
        "too_large": _too_large,
        "whole": whole,
        "zeros": _ZEROS,
    }
    for number, table in enumerate(reachable(schema)):
        names[f"table{number}"] = table
        for field in table.fields:
            names[f"field{number}_{field.slot}"] = field
    return names


class _Builder:
    """The bytes of a flatbuffer as they grow from its end to its start.

    Attributes:
        position: Bytes so far, which is the position of what was laid last, from the end.
        pieces: Those bytes, last piece of the file first.
        signed_zero: See `encode`.
        strings: The bytes of each string so far, with length and NUL.
    """

    __slots__ = (
        "_alignments",
        "_fars",
        "_minalign",
        "_order",
        "_packers",
        "_payloads",
        "_vectors",
        "_vtables",
        "pieces",
        "position",
        "signed_zero",
        "strings",
    )

    def __init__(self, alignments: Mapping[str, int], order: Order, signed_zero: bool) -> None:
        for name, align in alignments.items():
            if align < 1 or align & (align - 1):
                raise LayoutError(
                    f"{name} alignment is no power of two", actual=align, expected="1, 2, 4, ..."
                )
        self.position = 0
        self.pieces: list[bytes] = []
        self.signed_zero = signed_zero
        self._alignments = alignments
        self._order: Order = order
        self._minalign = 4
        self._vtables: dict[bytes, int] = {}
        self.strings: dict[str, bytes] = {}
        self._vectors: dict[str, dict[tuple[object, ...], bytes]] = {}
        self._payloads: dict[int, Cord] = {}  # by the index of their empty piece
        self._fars: list[tuple[int, Far]] = []
        self._packers: dict[int, Callable[..., bytes]] = {}  # of vectors of tables, by length

    def alignment(self, field: Field) -> int:
        """Return the alignment of a byte vector."""
        return self._alignments.get(field.layout.name or "", field.layout.align)

    def place(self, table: Table, key: int) -> tuple[Callable[..., bytes], int, int, bytes]:
        """Return a shape with the position of its vtable, an equal one's or, if new, the next."""
        shape = shape_of(table, key, self._order)
        self._minalign = max(self._minalign, shape.align)
        vtable = self._vtables.get(shape.vtable)
        if vtable is None:
            vtable = self.position + shape.size + len(shape.vtable)
            self._vtables[shape.vtable] = vtable
        return shape.pack, shape.size, vtable, shape.vtable

    def far(self, far: Far, at: int, vtable: bytes, slot: int) -> int:
        """Note a far field of the table at `at`; return the position that makes its offset 0."""
        (offset,) = struct.unpack_from("<H", vtable, 4 + 2 * slot)
        position: int = at - offset
        self._fars.append((position, far))
        return position

    def string(self, value: object, field: Field) -> bytes:
        """Return a string with its length and its NUL."""
        text = value.encode() if type(value) is str and value.isascii() else utf8(value, field)
        data = _LENGTH.pack(len(text)) + text + b"\0"
        if isinstance(value, str):
            self.strings[value] = data
        return data

    def vector(
        self, field: Field
    ) -> tuple[Mapping[tuple[object, ...], bytes], Callable[[tuple[object, ...]], bytes]]:
        """Return what vectors of scalars were packed for this field, and what packs another."""
        align = max(4, field.scalar.size)
        exact = field.scalar.low is not None
        packed = self._vectors.setdefault(field.path, {})

        def pack(values: tuple[object, ...]) -> bytes:
            data = packed_vector(values, field)
            self._minalign = max(self._minalign, align)
            if exact and len(values) <= _REMEMBERED:
                packed[values] = data
            return data

        return packed, pack

    def table_vector(self, tables: Sequence[int]) -> int:
        """Lay a vector of offsets to tables, given by their positions."""
        count = len(tables)
        pack = self._packers.get(count)
        if pack is None:
            pack = self._packers[count] = struct.Struct(f"<{count + 1}I").pack
        padding = -self.position & 3
        first = self.position + padding + 4 * count
        if first > LIMIT:
            _too_large(first)
        offsets = map(sub, range(first, first - 4 * count, -4), tables)
        self.pieces.append(pack(count, *offsets) + _ZEROS[padding])
        self.position = first + 4
        return self.position

    def payload(self, value: object, field: Field, align: int) -> int:
        """Lay a byte vector: by reference, or as a copy if it is small."""
        if type(value) is not bytes or len(value) >= _JOINED:
            value = _payload(value, field)
        size = len(value)
        end = self.position + size
        padding = -end % (align if align > 4 else 4)
        end += padding
        if end > LIMIT:
            _too_large(end)
        self._minalign = max(self._minalign, align)
        pieces = self.pieces
        pieces.append(bytes(padding))
        if isinstance(value, Cord):
            self._payloads[len(pieces)] = value
            pieces.append(b"")
        else:
            pieces.append(value)
        pieces.append(_LENGTH.pack(size))
        self.position = end + 4
        return self.position

    def finish(self, root: int, identifier: bytes | None) -> Encoded:
        """Lay the start of the file and put the pieces into file order."""
        head = b"" if identifier is None else identifier
        if identifier is not None and len(identifier) != 4:
            raise LayoutError(
                "file identifier is not 4 bytes long", expected="4 bytes", actual=identifier
            )
        size = self.position + 4 + len(head)
        padding = -size % self._minalign
        size += padding
        if size > LIMIT:
            _too_large(size)
        self.pieces.append(struct.pack("<I", size - root) + head + bytes(padding))
        runs = tuple(self._runs())
        cord = Cord()
        for run in runs:
            cord.append(run)
        placed = sorted(self._fars, key=lambda item: -item[0])
        fars = tuple(FarSlot(size - at, far) for at, far in placed)
        return Encoded(cord, fars, self._minalign, runs)

    def release(self) -> None:
        """Let go of everything: the encoding functions know each other and live on for a while."""
        self.pieces.clear()
        for held in (self.strings, self._vectors, self._vtables, self._payloads):
            held.clear()

    def _runs(self) -> Iterable[bytes | Cord]:
        last = len(self.pieces)
        for index in sorted(self._payloads, reverse=True):
            yield b"".join(reversed(self.pieces[index + 1 : last]))
            yield self._payloads[index]
            last = index
        yield b"".join(reversed(self.pieces[:last]))


class _Union(dict[type, tuple[int, Callable[[object], int]]]):
    """Tag and encoder by the class of a member, found by its name the first time."""

    def __init__(
        self, field: Field, encoders: Sequence[Callable[[], Callable[[object], int]]]
    ) -> None:
        super().__init__()
        self._field = field
        self._encoders = encoders

    def __missing__(self, cls: type) -> tuple[int, Callable[[object], int]]:
        names = [member.__name__ for member in self._field.members]
        if cls.__name__ not in names:
            raise LayoutError(
                f"{self._field.path} is of a class that the union does not hold",
                actual=cls.__name__,
                expected=", ".join(names),
            )
        index = names.index(cls.__name__)
        self[cls] = index + 1, self._encoders[index]()
        return self[cls]


def _payload(value: object, field: Field) -> bytes | Cord:
    """Return a byte vector as what is laid: a copy if it is small `bytes`, else a reference."""
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        value = packed_vector(tuple(value), field)[4:]
    if isinstance(value, bytes) and len(value) < _JOINED:
        return value
    return value if isinstance(value, Cord) else payload_cord(value, field)


def _too_large(size: int) -> NoReturn:
    raise TooLargeError(
        "flatbuffer is too large",
        actual=f"{size} bytes or more",
        expected=f"at most {LIMIT}",
        cause="keep large data in segments",
    )
