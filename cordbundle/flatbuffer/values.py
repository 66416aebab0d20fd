"""The values of scalars, strings and byte vectors, checked before they are packed.

Rules of this file: what fits is passed on at once; what does not is a `LayoutError` that names
table, field, index and value; what equals a whole number counts as it, as everywhere in Python.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from cordbundle.cord import Cord
from cordbundle.errors import LayoutError
from cordbundle.flatbuffer.schema import Field

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "INTEGERS",
    "is_negative_zero",
    "packed_vector",
    "payload_cord",
    "real",
    "utf8",
    "whole",
]

INTEGERS: set[type] = {int, bool}
"""Classes that `struct` packs as they are; enumerations join when they are met."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def packed_vector(values: tuple[object, ...], field: Field) -> bytes:
    """Pack a vector of scalars after its length, each one checked."""
    scalar = field.scalar
    if scalar.low is None or scalar.high is None:
        numbers: Sequence[object] = [real(item, field, at) for at, item in enumerate(values)]
    elif _are_inside(values, scalar.low, scalar.high):
        numbers = values
    else:
        numbers = [whole(item, field, at) for at, item in enumerate(values)]
    return struct.pack(f"<I{len(numbers)}{scalar.code}", len(numbers), *numbers)


def _are_inside(values: tuple[object, ...], low: int, high: int) -> bool:
    """Return whether all values are integers in a range; quickly, as nearly all are."""
    if not INTEGERS.issuperset(map(type, values)):
        return False
    numbers = cast(tuple[int, ...], values)
    return not numbers or (low <= min(numbers) and max(numbers) <= high)


def whole(value: object, field: Field, index: int | None = None) -> int:
    """Return a value as the integer that a field can hold.

    Anything that equals such an integer counts as it, as in Python: True, NumPy's integers, 2.0.
    """
    scalar = field.scalar
    low, high = scalar.low, scalar.high
    number = _integer(value)
    if number is None or low is None or high is None or not low <= number <= high:
        path = field.path if index is None else f"{field.path}[{index}]"
        raise LayoutError(
            f"{path} is no {scalar.name}", actual=repr(value)[:80], expected=f"{low} to {high}"
        )
    if isinstance(value, int):
        INTEGERS.add(type(value))
    return number


def _integer(value: object) -> int | None:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if hasattr(value, "__index__"):
        return int(value)
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's have no __index__
        return int(bool(value))
    return None


def real(value: object, field: Field, index: int | None = None) -> float:
    """Return a value as a float; "inf" and "-inf" are how ExecuTorch's objects hold infinities."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, int) and abs(value) <= sys.float_info.max:
        return float(value)
    if hasattr(value, "__float__") and not isinstance(value, int):
        return float(value)
    path = field.path if index is None else f"{field.path}[{index}]"
    raise LayoutError(f"{path} is no float64", actual=repr(value)[:80], expected="a number")


def is_negative_zero(value: object) -> bool:
    """Return whether a value that equals zero is -0.0."""
    return isinstance(value, float) and math.copysign(1.0, value) < 0


def utf8(value: object, field: Field) -> bytes:
    """Return a string as UTF-8."""
    if not isinstance(value, str):
        raise LayoutError(f"{field.path} is no string", expected="str", actual=type(value).__name__)
    if not value.isascii():
        bad = _SURROGATE.search(value)
        if bad is not None:
            raise LayoutError(
                f"{field.path} holds half of a surrogate pair, which UTF-8 cannot hold",
                actual=f"{bad.group()!r} at character {bad.start()}",
            )
    return value.encode()


def payload_cord(value: object, field: Field) -> Cord:
    """Return a bytes-like object as a Cord, by reference."""
    try:
        return Cord(cast("Buffer", value))
    except TypeError as error:
        name = type(value).__name__
        raise LayoutError(
            f"{field.path} is not bytes-like",
            expected="an object with the buffer protocol",
            actual=name,
        ) from error
