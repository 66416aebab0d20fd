"""ExecuTorch's scalar types, and the names that others give them.

Rules of this file: one table, keyed by the values of `scalar_type.fbs`; every other module asks it.
Nothing is guessed: what the table does not hold is refused where it turns up.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["ScalarType", "scalar_type_of_format", "scalar_type_of_name"]


class ScalarType(IntEnum):
    """The element type of a tensor, as `scalar_type.fbs` of ExecuTorch 1.5 numbers it.

    The numbers left out (complex types and four of the five bit types) are reserved there and not
    implemented, so that no valid file holds them.
    """

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4X2 = 16
    QUINT2X4 = 17
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29

    @classmethod
    def get(cls, value: int) -> ScalarType | None:
        """Return the scalar type with this number, or None where the schema has none."""
        return _BY_VALUE.get(value)

    @property
    def itemsize(self) -> int:
        """Bytes of one element.

        `QUINT4X2` and `QUINT2X4` count one byte an element, as the runtime does when it multiplies
        (`elementSize`), although PyTorch packs two and four elements into that byte.
        """
        return _FACTS[self].itemsize

    @property
    def numpy_dtype(self) -> str | None:
        """NumPy's name of the stored values, or None where NumPy itself has no such type.

        For a quantized type these are the integers that represent the values.
        """
        return _FACTS[self].numpy

    @property
    def format(self) -> str | None:
        """The character of `struct` and the buffer protocol, or None like `numpy_dtype`."""
        return _FACTS[self].format

    @property
    def torch_dtype(self) -> str:
        """PyTorch's name, without `torch.`."""
        return _FACTS[self].torch

    @property
    def is_quantized(self) -> bool:
        """Whether the stored integers stand for other values; a file does not hold the scale."""
        return self in _QUANTIZED

    @property
    def is_packed(self) -> bool:
        """Whether PyTorch stores several elements in a byte, which the runtime cannot size."""
        return self in (ScalarType.QUINT4X2, ScalarType.QUINT2X4)


@dataclass(frozen=True, slots=True)
class _Facts:
    """One row of the table; see the properties of `ScalarType`."""

    itemsize: int
    numpy: str | None
    format: str | None
    torch: str


_FACTS = {
    ScalarType.BYTE: _Facts(1, "uint8", "B", "uint8"),
    ScalarType.CHAR: _Facts(1, "int8", "b", "int8"),
    ScalarType.SHORT: _Facts(2, "int16", "h", "int16"),
    ScalarType.INT: _Facts(4, "int32", "i", "int32"),
    ScalarType.LONG: _Facts(8, "int64", "q", "int64"),
    ScalarType.HALF: _Facts(2, "float16", "e", "float16"),
    ScalarType.FLOAT: _Facts(4, "float32", "f", "float32"),
    ScalarType.DOUBLE: _Facts(8, "float64", "d", "float64"),
    ScalarType.BOOL: _Facts(1, "bool", "?", "bool"),
    ScalarType.QINT8: _Facts(1, "int8", "b", "qint8"),
    ScalarType.QUINT8: _Facts(1, "uint8", "B", "quint8"),
    ScalarType.QINT32: _Facts(4, "int32", "i", "qint32"),
    ScalarType.BFLOAT16: _Facts(2, None, None, "bfloat16"),
    ScalarType.QUINT4X2: _Facts(1, None, None, "quint4x2"),
    ScalarType.QUINT2X4: _Facts(1, None, None, "quint2x4"),
    ScalarType.BITS16: _Facts(2, None, None, "bits16"),
    ScalarType.FLOAT8E5M2: _Facts(1, None, None, "float8_e5m2"),
    ScalarType.FLOAT8E4M3FN: _Facts(1, None, None, "float8_e4m3fn"),
    ScalarType.FLOAT8E5M2FNUZ: _Facts(1, None, None, "float8_e5m2fnuz"),
    ScalarType.FLOAT8E4M3FNUZ: _Facts(1, None, None, "float8_e4m3fnuz"),
    ScalarType.UINT16: _Facts(2, "uint16", "H", "uint16"),
    ScalarType.UINT32: _Facts(4, "uint32", "I", "uint32"),
    ScalarType.UINT64: _Facts(8, "uint64", "Q", "uint64"),
}

_QUANTIZED = frozenset(
    {
        ScalarType.QINT8,
        ScalarType.QUINT8,
        ScalarType.QINT32,
        ScalarType.QUINT4X2,
        ScalarType.QUINT2X4,
    }
)

_BY_VALUE = {kind.value: kind for kind in ScalarType}
_BY_NAME = {facts.torch: kind for kind, facts in _FACTS.items()}

# The C types of a format character differ in size between platforms, so the size is the view's own.
_KINDS = {
    **dict.fromkeys("bhilqn", "int"),
    **dict.fromkeys("BHILQNc", "uint"),
    **dict.fromkeys("efd", "float"),
}


def scalar_type_of_name(name: str) -> ScalarType | None:
    """Return the scalar type of a dtype by the name that NumPy, ml_dtypes and PyTorch share.

    Args:
        name: As in `float32`, `bfloat16`, `qint8`; no prefix, no byte order.

    Returns:
        The scalar type, or None for a type that ExecuTorch does not store.
    """
    return _BY_NAME.get(name)


def scalar_type_of_format(format: str, itemsize: int) -> ScalarType | None:
    """Return the scalar type of a buffer by its format (PEP 3118).

    Args:
        format: The format of a `memoryview`; one character, maybe after a byte order.
        itemsize: Bytes of one element.

    Returns:
        The scalar type, or None for anything that is not stored: records, complex numbers,
        pointers, wide characters, and elements of several bytes in big-endian order.
    """
    order, code = (format[0], format[1:]) if format[:1] in tuple("@=<>!") else ("@", format)
    big = order in ">!" or (order in "@=" and sys.byteorder == "big")
    if big and itemsize > 1:
        return None
    if code == "?" and itemsize == 1:
        return ScalarType.BOOL
    kind = _KINDS.get(code)
    return None if kind is None else _BY_NAME.get(f"{kind}{8 * itemsize}")
