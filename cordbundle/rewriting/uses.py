"""Who uses what in a program: segments, constants, inline payloads.

Rules of this file: it reads metadata lazily and checks every index that it follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cordbundle import program as schema
from cordbundle.errors import FormatError
from cordbundle.record_check import scalar_type_of
from cordbundle.tensor_view import TensorShape

__all__ = ["InlineDelegate", "constant_sizes", "inline_delegates", "named_uses", "static_uses"]


@dataclass(frozen=True, slots=True)
class InlineDelegate:
    """A delegate whose payload is in the metadata.

    Attributes:
        method: Number of its method.
        index: Its number in the method.
        name: Its name for people.
        payload: Number of its payload in `Program.backend_delegate_data`.
    """

    method: int
    index: int
    name: str
    payload: int


def static_uses(root: schema.Program) -> dict[int, list[str]]:
    """Return what each segment is used for other than named data. O(methods + delegates)."""
    uses: dict[int, list[str]] = {}
    constants = root.constant_segment
    if constants is not None and constants.offsets:
        uses.setdefault(constants.segment_index, []).append("constants")
    for mutable in root.mutable_data_segments or ():
        uses.setdefault(mutable.segment_index, []).append("mutable data")
    for plan in root.execution_plan or ():
        for delegate in plan.delegates or ():
            place = delegate.processed
            if place is not None and place.location == schema.DataLocation.SEGMENT:
                uses.setdefault(place.index, []).append(_delegate_name(plan, delegate))
    return uses


def named_uses(root: schema.Program) -> dict[int, list[str]]:
    """Return the keys that name each segment, as text."""
    uses: dict[int, list[str]] = {}
    for entry in root.named_data or ():
        uses.setdefault(entry.segment_index, []).append(f"key {entry.key!r}")
    return uses


def constant_sizes(root: schema.Program, source: str) -> dict[int, int]:
    """Return how many bytes tensors read of each constant that they refer to. O(values).

    A constant is what a tensor without planned memory refers to.

    Args:
        root: The root table of the program.
        source: The file, for errors.

    Raises:
        FormatError: Such a tensor has no known scalar type, or sizes that are no shape.
    """
    sizes: dict[int, int] = {}
    for plan in root.execution_plan or ():
        for number, value in enumerate(plan.values or ()):
            tensor = value.val
            if not isinstance(tensor, schema.Tensor) or not tensor.data_buffer_idx:
                continue
            if tensor.allocation_info is not None:
                continue
            where = f"value {number} of method {plan.name!r}"
            kind = scalar_type_of(tensor.scalar_type, where, source)
            needed = TensorShape.of(kind, tensor.sizes or (), None, where, source).nbytes
            index = tensor.data_buffer_idx
            sizes[index] = max(sizes.get(index, 0), needed)
    return sizes


def inline_delegates(root: schema.Program, source: str) -> Iterator[InlineDelegate]:
    """Yield the delegates whose payloads are in the metadata.

    Raises:
        FormatError: A payload that does not exist.
    """
    count = len(root.backend_delegate_data or ())
    for method, plan in enumerate(root.execution_plan or ()):
        for index, delegate in enumerate(plan.delegates or ()):
            place = delegate.processed
            if place is None or place.location != schema.DataLocation.INLINE:
                continue
            name = _delegate_name(plan, delegate)
            if place.index >= count:
                raise FormatError(
                    f"data of {name} does not exist",
                    source=source,
                    expected=f"an index below {count}",
                    actual=place.index,
                )
            yield InlineDelegate(method, index, name, place.index)


def _delegate_name(plan: schema.ExecutionPlan, delegate: schema.BackendDelegate) -> str:
    return f"delegate {delegate.id!r} of method {plan.name!r}"
