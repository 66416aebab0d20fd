"""ExecuTorch programs (`.pte`): reading.

Rules of this file: what is asked for is read, nothing else; every index is checked before it is
followed; it opens no file. The format is ExecuTorch's `schema/program.fbs` (identifier `ET12`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from cordbundle import program as schema
from cordbundle.artifact import Artifact, SegmentRange, segment_findings
from cordbundle.cord import Cord
from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Finding, Reader, decode, verify
from cordbundle.tensors import ScalarType

__all__ = ["Delegate", "Dynamism", "Method", "PteFile", "TensorSpec", "ValueSpec"]

Dynamism: TypeAlias = Literal["static", "bound", "unbound"]
_IN_SEGMENT = 1  # DataLocation.SEGMENT
_DYNAMISMS: tuple[Dynamism, ...] = ("static", "bound", "unbound")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that a method takes or gives.

    Attributes:
        scalar_type: Its element type.
        sizes: Its shape, or the upper bound of it.
        dim_order: Its dimensions from the outermost in memory to the innermost.
        dynamism: "static": the shape is `sizes`; "bound": each dimension goes up to it; "unbound":
            any shape, of which existing runtimes take those with as many elements or fewer.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: Dynamism

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor at its largest."""
        return math.prod(self.sizes) * self.scalar_type.itemsize


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """A value other than a tensor that a method takes or gives.

    Attributes:
        kind: "int", "float", "bool", "str", "None", or the schema's name of a list.
        value: The value that was traced into the program; None for lists.
    """

    kind: str
    value: int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of a method that a backend runs.

    Attributes:
        backend: Name of the backend.
        size: Bytes of its payload.
        segment: Index of the segment that holds the payload; None if it is in the metadata.
    """

    backend: str
    size: int
    segment: int | None


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a program.

    Attributes:
        name: Its name.
        inputs: What it takes, in order.
        outputs: What it gives, in order.
        operators: Full names of the operators it needs, in the program's order.
        delegates: The parts that backends run.
    """

    name: str
    inputs: tuple[TensorSpec | ValueSpec, ...]
    outputs: tuple[TensorSpec | ValueSpec, ...]
    operators: tuple[str, ...]
    delegates: tuple[Delegate, ...]


_SCALARS = {
    schema.Int: ("int", "int_val"),
    schema.Double: ("float", "double_val"),
    schema.Bool: ("bool", "bool_val"),
    schema.String: ("str", "string_val"),
}


class PteFile(Artifact):
    """An open program; made by `cordbundle.open`."""

    KINDS = (schema.PROGRAM_IDENTIFIER,)

    def _reader(self) -> Reader:
        return Reader(self.cord[: self.metadata_end], name=self.name)

    @property
    def metadata_end(self) -> int:
        """First byte after the flatbuffer, in bytes."""
        return self.header.metadata_end if self.header else len(self.cord)

    @cached_property
    def _root(self) -> schema.Program:
        return self._reader().root(schema.Program)

    @cached_property
    def methods(self) -> Mapping[str, Method]:
        """The methods by name, in file order. O(methods + their inputs, outputs, operators).

        Raises:
            FormatError: The metadata is damaged.
        """
        methods: dict[str, Method] = {}
        for plan in self._root.execution_plan or ():
            methods.setdefault(plan.name or "", self._method(plan))  # the runtime takes the first
        return methods

    def _method(self, plan: schema.ExecutionPlan) -> Method:
        name = plan.name or ""
        return Method(
            name,
            self._specs(plan, plan.inputs or (), f"inputs of method {name!r}"),
            self._specs(plan, plan.outputs or (), f"outputs of method {name!r}"),
            tuple(_operator_name(operator) for operator in plan.operators or ()),
            tuple(self._delegate(delegate) for delegate in plan.delegates or ()),
        )

    def _specs(
        self, plan: schema.ExecutionPlan, indices: Iterable[int], what: str
    ) -> tuple[TensorSpec | ValueSpec, ...]:
        values = plan.values or ()
        return tuple(
            self._spec(values[self._index(index, len(values), what)].val, what) for index in indices
        )

    def _index(self, index: int, count: int, what: str) -> int:
        if not 0 <= index < count:
            raise FormatError(
                f"{what}: index is out of range",
                source=self.name,
                expected=f"0 to {count - 1}",
                actual=index,
            )
        return index

    def _spec(self, value: object, what: str) -> TensorSpec | ValueSpec:
        if isinstance(value, schema.Tensor):
            scalar_type = ScalarType.get(value.scalar_type)
            if scalar_type is None or not 0 <= value.shape_dynamism < len(_DYNAMISMS):
                raise FormatError(
                    f"{what}: unknown scalar type or shape dynamism",
                    source=self.name,
                    actual=f"{value.scalar_type}, {value.shape_dynamism}",
                )
            sizes = tuple(value.sizes or ())
            order = tuple(range(len(sizes)) if value.dim_order is None else value.dim_order)
            return TensorSpec(scalar_type, sizes, order, _DYNAMISMS[value.shape_dynamism])
        for kind, (word, field) in _SCALARS.items():
            if isinstance(value, kind):
                return ValueSpec(word, getattr(value, field))
        if value is None or isinstance(value, schema.Null):
            return ValueSpec("None", None)
        return ValueSpec(type(value).__name__.removesuffix("View"), None)

    def _delegate(self, delegate: schema.BackendDelegate) -> Delegate:
        backend, place = delegate.id or "", delegate.processed
        if place is None:
            return Delegate(backend, 0, None)
        if place.location == _IN_SEGMENT:
            ranges = self.segment_ranges
            index = self._index(place.index, len(ranges), f"segment of delegate {backend!r}")
            return Delegate(backend, ranges[index].size, index)
        inline = self._root.backend_delegate_data or ()
        index = self._index(place.index, len(inline), f"data of delegate {backend!r}")
        data = inline[index].data
        return Delegate(backend, 0 if data is None else len(data), None)

    @cached_property
    def segment_ranges(self) -> tuple[SegmentRange, ...]:
        """Where the segments stand, in the order of the segment table."""
        base = self.header.segment_base_offset if self.header else 0
        return tuple(
            SegmentRange(base + segment.offset, segment.size)
            for segment in self._root.segments or ()
        )

    @property
    def segments(self) -> tuple[Cord, ...]:
        """The segments, by reference, in the order of the segment table.

        Raises:
            TruncatedError: One of them passes the end of the file.
        """
        return tuple(
            self.range_of(segment.offset, segment.size, f"segment {number}")
            for number, segment in enumerate(self.segment_ranges)
        )

    @cached_property
    def named_data(self) -> Mapping[str, Cord]:
        """The named data by key, by reference, in file order.

        Raises:
            FormatError: A key without a segment.
            TruncatedError: A segment that passes the end of the file.
        """
        segments = self.segments
        return {
            entry.key or "": segments[
                self._index(entry.segment_index, len(segments), f"segment of key {entry.key!r}")
            ]
            for entry in self._root.named_data or ()
        }

    def program(self) -> schema.Program:
        """Decode the whole metadata. O(size of the metadata).

        Returns:
            The program as it stands in the file: segments are not put back into it.

        Raises:
            FormatError: The metadata is damaged.
        """
        return decode(self._root)

    def verify(self) -> list[Finding]:
        """Check everything that the format promises and return all that is wrong, by offset."""
        findings = verify(self._reader(), schema.Program)
        if not findings:
            findings += segment_findings(
                self.segment_ranges, self.header, self.metadata_end, len(self.cord)
            )
        return findings


def _operator_name(operator: schema.Operator) -> str:
    name = operator.name or ""
    return f"{name}.{operator.overload}" if operator.overload else name
