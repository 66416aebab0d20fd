"""What `verify` checks of records that several formats have: shapes of tensors, keys of blobs.

Rules of this file: a problem is words and no place, since records are decoded without one; what is
shown of a hostile value is short; nothing is multiplied before it is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from cordbundle.flatbuffer import Finding
from cordbundle.scalar_types import ScalarType

__all__ = ["MAX_RANK", "Problem", "Shape", "Shapes", "check_keys", "shape_problem", "shown"]

MAX_RANK = 16
"""Most dimensions of a tensor that ExecuTorch's runtime takes (`kTensorDimensionLimit`)."""

_MAX_BYTES = 2**63 - 1
_SHOWN = 80

_Facts: TypeAlias = tuple[int, tuple[int, ...] | None, tuple[int, ...] | None]


class Problem(NamedTuple):
    """What is wrong with a record.

    Attributes:
        what: What is wrong, in a few words.
        expected: What would have been right.
        actual: What was found.
    """

    what: str
    expected: str
    actual: str


class Shape(NamedTuple):
    """What a scalar type, sizes and a dim order come to.

    Attributes:
        nbytes: Bytes of the elements; None where they cannot be told.
        problem: What is wrong, if anything is.
    """

    nbytes: int | None
    problem: Problem | None


class Shapes(dict[_Facts, Shape]):
    """The shape for each (scalar type, sizes, dim order) that was met, each looked at once."""

    def __missing__(self, facts: _Facts) -> Shape:
        problem = shape_problem(*facts)
        shape = Shape(None, problem) if problem else _sized(*facts)
        self[facts] = shape
        return shape


def shape_problem(
    number: int, sizes: tuple[int, ...] | None, order: tuple[int, ...] | None
) -> Problem | None:
    """Return what is wrong with a tensor's scalar type, sizes and dim order one by one."""
    if ScalarType.get(number) is None:
        return Problem("unknown scalar type", "one of the schema", str(number))
    if sizes is None or order is None:
        word = "sizes" if sizes is None else "dim order"
        return Problem(f"{word} missing", "a vector", "none")
    if len(sizes) > MAX_RANK:
        return Problem("too many dimensions", f"at most {MAX_RANK}", str(len(sizes)))
    if min(sizes, default=0) < 0:
        return Problem("negative size", "0 or more", str(list(sizes)))
    if sorted(order) != list(range(len(sizes))):
        what = "dim order is no permutation of the dimensions"
        return Problem(what, f"each below {len(sizes)} once", str(list(order[: MAX_RANK + 1])))
    return None


def _sized(number: int, sizes: tuple[int, ...] | None, _order: tuple[int, ...] | None) -> Shape:
    """Return the shape of facts that are sound one by one; their product may be too large."""
    nbytes = ScalarType(number).itemsize
    for size in sizes or ():
        nbytes *= size  # at most 16 times 31 bits
    if nbytes > _MAX_BYTES:
        what, room = "sizes of the tensor overflow", f"at most {_MAX_BYTES} bytes"
        return Shape(None, Problem(what, room, f"sizes {list(sizes or ())}"))
    return Shape(nbytes, None)


def check_keys(
    entries: Iterable[tuple[str | None, int]], segments: int, place: Callable[[int], int]
) -> Iterator[Finding]:
    """Check that keys are there, unique and without NUL, and that each has a segment.

    Args:
        entries: The key and the index of the segment of each entry.
        segments: How many segments there are.
        place: Returns the offset of an entry in the file.
    """
    seen: set[str | None] = set()
    for number, (key, index) in enumerate(entries):
        if not key:
            found = "none" if key is None else "''"
            yield Finding(place(number), "named data without a key", "text", found)
        elif "\0" in key:
            yield Finding(place(number), "key holds NUL", "text without NUL", shown(key))
        elif key in seen:
            yield Finding(place(number), "key is used twice", "unique keys", shown(key))
        seen.add(key)
        if index >= segments:
            what = f"segment of key {shown(key)} does not exist"
            yield Finding(place(number), what, f"an index below {segments}", str(index))


def shown(text: str | None) -> str:
    """Return a name for a message, shortened."""
    return repr(text if text is None or len(text) <= _SHOWN else text[:_SHOWN] + "...")
