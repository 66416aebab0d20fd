"""ExecuTorch programs (`.pte`): reading.

Rules of this file: what is asked for is read, nothing else; every index is checked before it is
followed; it opens no file. The format is ExecuTorch's `schema/program.fbs` (identifier `ET12`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from cordbundle import program as schema
from cordbundle.artifact import Artifact
from cordbundle.cord import Cord
from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Finding, decode
from cordbundle.record_check import shape_problem
from cordbundle.tensors import ScalarType

__all__ = ["Delegate", "Dynamism", "Method", "PteFile", "TensorSpec", "ValueSpec"]

Dynamism: TypeAlias = Literal["static", "bound", "unbound"]
_DYNAMISMS: dict[int, Dynamism] = {
    schema.TensorShapeDynamism.STATIC: "static",
    schema.TensorShapeDynamism.DYNAMIC_BOUND: "bound",
    schema.TensorShapeDynamism.DYNAMIC_UNBOUND: "unbound",
}


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


class PteFile(Artifact[schema.Program]):
    """An open program; made by `cordbundle.open`."""

    KINDS = (schema.PROGRAM_IDENTIFIER,)
    ROOT = schema.Program

    def _contents(self) -> Iterator[Finding]:
        from cordbundle.program_check import check_program  # not needed to open a file

        return check_program(self.root, [place.size for place in self.segment_ranges])

    @cached_property
    def methods(self) -> Mapping[str, Method]:
        """The methods by name, in file order. O(methods + their inputs, outputs, operators).

        Raises:
            FormatError: The metadata is damaged.
        """
        root = self._walk_root()
        inline = root.backend_delegate_data or ()
        methods: dict[str, Method] = {}
        for plan in root.execution_plan or ():
            method = self._method(plan, inline)
            methods.setdefault(method.name, method)  # the runtime takes the first
        return methods

    def _method(
        self, plan: schema.ExecutionPlan, inline: Sequence[schema.BackendDelegateInlineData]
    ) -> Method:
        name = plan.name or ""
        return Method(
            name,
            self._specs(plan, plan.inputs or (), f"inputs of method {name!r}"),
            self._specs(plan, plan.outputs or (), f"outputs of method {name!r}"),
            tuple(_operator_name(operator) for operator in plan.operators or ()),
            tuple(self._delegate(delegate, inline) for delegate in plan.delegates or ()),
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
                expected=f"an index below {count}",
                actual=index,
            )
        return index

    def _spec(self, value: object, what: str) -> TensorSpec | ValueSpec:
        if isinstance(value, schema.Tensor):
            scalar_type = self.scalar_type(value.scalar_type, f"a tensor of the {what}")
            dynamism = _DYNAMISMS.get(value.shape_dynamism)
            if dynamism is None:
                raise FormatError(
                    f"{what}: unknown shape dynamism",
                    source=self.name,
                    expected=f"one of {list(_DYNAMISMS)}",
                    actual=value.shape_dynamism,
                )
            sizes = tuple(value.sizes or ())
            order = tuple(range(len(sizes)) if value.dim_order is None else value.dim_order)
            problem = shape_problem(scalar_type, sizes, order)
            if problem is not None:
                raise problem.error(f"a tensor of the {what}", self.name)
            return TensorSpec(scalar_type, sizes, order, dynamism)
        for kind, (word, field) in _SCALARS.items():
            if isinstance(value, kind):
                return ValueSpec(word, getattr(value, field))
        if value is None or isinstance(value, schema.Null):
            return ValueSpec("None", None)
        return ValueSpec(type(value).__name__, None)

    def _delegate(
        self,
        delegate: schema.BackendDelegate,
        inline: Sequence[schema.BackendDelegateInlineData],
    ) -> Delegate:
        backend, place = delegate.id or "", delegate.processed
        if place is None:
            return Delegate(backend, 0, None)
        if place.location == schema.DataLocation.SEGMENT:
            ranges = self.segment_ranges
            index = self._index(place.index, len(ranges), f"segment of delegate {backend!r}")
            return Delegate(backend, ranges[index].size, index)
        index = self._index(place.index, len(inline), f"data of delegate {backend!r}")
        data = inline[index].data
        return Delegate(backend, 0 if data is None else len(data), None)

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
        found: dict[str, Cord] = {}
        for entry in self._walk_root().named_data or ():
            key, index = entry.key or "", entry.segment_index
            if key not in found:  # the runtime takes the first
                found[key] = self.segment(index, f"key {key!r}")
        return found

    def program(self) -> schema.Program:
        """Decode the whole metadata. O(size of the metadata).

        Returns:
            The program as it stands in the file: segments are not put back into it.

        Raises:
            FormatError: The metadata is damaged.
        """
        return decode(self.root)


def _operator_name(operator: schema.Operator) -> str:
    name = operator.name or ""
    return f"{name}.{operator.overload}" if operator.overload else name
