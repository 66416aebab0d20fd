"""What is checked of records that several formats have: shapes of tensors, keys of blobs.

Rules of this file: a problem is words and no place, since records are decoded without one: who
verifies makes a finding of it, who reads an error; what is shown of a hostile value is short;
nothing is multiplied on that has passed its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Finding
from cordbundle.scalar_types import ScalarType

__all__ = [
    "MAX_RANK",
    "Overflow",
    "Problem",
    "Shape",
    "ShapeFacts",
    "Shapes",
    "TensorRecord",
    "check_keys",
    "first_of",
    "nbytes_of",
    "scalar_type_of",
    "shape_problem",
    "shown",
]

MAX_RANK = 16
"""Most dimensions of a tensor that ExecuTorch's runtime takes (`kTensorDimensionLimit`)."""

_MAX_BYTES = 2**63 - 1
_SHOWN = 80

ShapeFacts: TypeAlias = tuple[int, tuple[int, ...] | None, tuple[int, ...] | None]
"""Scalar type, sizes and dim order, as a file has them."""


class TensorRecord(Protocol):
    """What is said of a tensor, as every schema has it."""

    @property
    def scalar_type(self) -> int:
        """Number of its scalar type."""

    @property
    def sizes(self) -> Sequence[int] | None:
        """Elements per dimension."""

    @property
    def dim_order(self) -> Sequence[int] | None:
        """Dimensions from outermost to innermost in memory."""


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

    def error(self, where: str | None = None, source: str | None = None) -> FormatError:
        """Return the error that says so of a record.

        Args:
            where: What the record is of, in a few words.
            source: The file.
        """
        what = self.what if where is None else f"{where}: {self.what}"
        return FormatError(what, source=source, expected=self.expected, actual=self.actual)


class Overflow(Problem):
    """Say that sizes are sound one by one, and their product is too large."""

    __slots__ = ()


class Shape(NamedTuple):
    """What a scalar type, sizes and a dim order come to.

    Attributes:
        nbytes: Bytes of the elements; None where they cannot be told.
        problem: What is wrong, if anything is.
    """

    nbytes: int | None
    problem: Problem | None

    @property
    def overflows(self) -> bool:
        """Whether nothing is wrong but that there would be too many bytes."""
        return isinstance(self.problem, Overflow)


class Shapes(dict[ShapeFacts, Shape]):
    """The shape for each (scalar type, sizes, dim order) that was met, each looked at once."""

    def of(self, record: TensorRecord) -> Shape:
        """Return the shape of a record."""
        sizes, order = record.sizes, record.dim_order
        return self[
            record.scalar_type,
            None if sizes is None else tuple(sizes),
            None if order is None else tuple(order),
        ]

    def __missing__(self, facts: ShapeFacts) -> Shape:
        number, sizes, _ = facts
        found = shape_problem(*facts) or _product(ScalarType(number).itemsize, sizes or ())
        shape = Shape(None, found) if isinstance(found, Problem) else Shape(found, None)
        self[facts] = shape
        return shape


def scalar_type_of(number: int, what: str, source: str | None) -> ScalarType:
    """Return the scalar type that a file gives for `what` by its number.

    Raises:
        FormatError: The schema has no such number.
    """
    found = ScalarType.get(number)
    if found is None:
        raise FormatError(
            f"{what} has an unknown scalar type",
            source=source,
            expected=f"one of {[kind.value for kind in ScalarType]}",
            actual=number,
        )
    return found


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
    return _misfit(sizes, order)


def nbytes_of(
    itemsize: int, sizes: tuple[int, ...], order: tuple[int, ...] | None
) -> int | Problem:
    """Return the bytes of a tensor of any rank, or what is wrong with its sizes and dim order.

    Args:
        itemsize: Bytes of an element.
        sizes: Elements per dimension.
        order: Dimensions from outermost to innermost in memory; row-major if None.
    """
    return _misfit(sizes, order) or _product(itemsize, sizes)


def _misfit(sizes: tuple[int, ...], order: tuple[int, ...] | None) -> Problem | None:
    """Return what is wrong with sizes one by one, or with a dim order for as many."""
    if min(sizes, default=0) < 0:
        return Problem("negative size", "0 or more", first_of(sizes))
    if order is not None and sorted(order) != list(range(len(sizes))):
        what = "dim order is no permutation of the dimensions"
        return Problem(what, f"each below {len(sizes)} once", first_of(order))
    return None


def _product(itemsize: int, sizes: tuple[int, ...]) -> int | Overflow:
    """Return the bytes of elements whose sizes are sound one by one."""
    nbytes = 0 if 0 in sizes else itemsize
    for size in sizes:
        nbytes *= size
        if nbytes > _MAX_BYTES:
            what, room = "sizes of the tensor overflow", f"at most {_MAX_BYTES} bytes"
            return Overflow(what, room, f"sizes {first_of(sizes)}")
    return nbytes


def first_of(numbers: Sequence[int]) -> str:
    """Write sizes or a dim order down, and no more than show that they are too many."""
    return str(list(numbers[: MAX_RANK + 1]))


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
