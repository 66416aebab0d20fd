"""The schema of an ExecuTorch program (`.pte`), as dataclasses.

Rules of this file: names, order and defaults are those of ExecuTorch 1.5's `program.fbs` (file
identifier `ET12`); every field of it is here and none beside it. ExecuTorch's own `exir.schema`
objects have the same attributes and may stand in for these. A vector, string or table that is None
is left out of the file; an empty one is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, TypeAlias

from cordbundle.flatbuffer.schema import (
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int32,
    Int64,
    Payload,
    UInt8,
    UInt32,
    UInt64,
)

__all__ = [
    "PROGRAM_IDENTIFIER",
    "AllocationDetails",
    "BackendDelegate",
    "BackendDelegateDataReference",
    "BackendDelegateInlineData",
    "Bool",
    "BoolList",
    "Buffer",
    "Chain",
    "CompileSpec",
    "ContainerMetadata",
    "DataLocation",
    "DataSegment",
    "DelegateCall",
    "Double",
    "DoubleList",
    "EValue",
    "ExecutionPlan",
    "ExtraTensorInfo",
    "Frame",
    "FrameList",
    "FreeCall",
    "Instruction",
    "InstructionArguments",
    "Int",
    "IntList",
    "JumpFalseCall",
    "KernelCall",
    "KernelTypes",
    "MoveCall",
    "NamedData",
    "NonConstBufferDevice",
    "Null",
    "Operator",
    "OptionalTensorList",
    "Program",
    "String",
    "SubsegmentOffsets",
    "Tensor",
    "TensorDataLocation",
    "TensorList",
    "TensorShapeDynamism",
]

PROGRAM_IDENTIFIER = b"ET12"
"""File identifier of a program."""


class DataLocation(IntEnum):
    """Where the payload of a delegate is."""

    INLINE = 0
    """In `Program.backend_delegate_data`."""

    SEGMENT = 1
    """In `Program.segments`."""


class TensorDataLocation(IntEnum):
    """Where the data of a constant or mutable tensor is."""

    SEGMENT = 0
    """In a segment of the program."""

    EXTERNAL = 1
    """In a `.ptd` file."""


class TensorShapeDynamism(IntEnum):
    """How the shape of a tensor may differ from its `sizes`."""

    STATIC = 0
    """Not at all."""

    DYNAMIC_BOUND = 1
    """Each dimension goes up to it."""

    DYNAMIC_UNBOUND = 2
    """In any way."""


@dataclass(slots=True)
class ContainerMetadata:
    """How the flat inputs and outputs of a method fold back into Python containers."""

    encoded_inp_str: str | None = None
    encoded_out_str: str | None = None


@dataclass(slots=True)
class Null:
    """The value None."""


@dataclass(slots=True)
class AllocationDetails:
    """Where memory planning put a tensor.

    Attributes:
        memory_id: The planned buffer; an index into `ExecutionPlan.non_const_buffer_sizes`.
        memory_offset_low: Lower half of the offset in bytes into that buffer.
        memory_offset_high: Upper half.
    """

    memory_id: UInt32 = 0
    memory_offset_low: UInt32 = 0
    memory_offset_high: UInt32 = 0

    @property
    def memory_offset(self) -> int:
        """Offset in bytes into the planned buffer."""
        return self.memory_offset_low | self.memory_offset_high << 32


@dataclass(slots=True)
class ExtraTensorInfo:
    """What few tensors need.

    Attributes:
        mutable_data_segments_idx: For a mutable tensor with initial data, the entry of
            `Program.mutable_data_segments` that holds it.
        fully_qualified_name: Name in the model; the key of the data when it is external.
        location: Where its data is, a `TensorDataLocation`.
        device_type: 0 = CPU, 1 = CUDA.
        device_index: Which device of that type.
    """

    mutable_data_segments_idx: UInt64 = 0
    fully_qualified_name: str | None = None
    location: Int8 = 0
    device_type: Int8 = 0
    device_index: Int8 = 0


@dataclass(slots=True)
class Tensor:
    """A tensor value.

    Attributes:
        scalar_type: ExecuTorch's `ScalarType` number.
        storage_offset: First element in its buffer; runtimes take only 0.
        sizes: Size of each dimension; the largest allowed where the shape is dynamic.
        dim_order: The dimensions from the outermost in memory to the innermost.
        requires_grad: Whether it is trained.
        data_buffer_idx: Its constant or initial data; 0 = none.
        allocation_info: Its planned memory; None for constants and most inputs.
        layout: Unused, 0.
        shape_dynamism: How its shape may differ from `sizes`, a `TensorShapeDynamism`.
        extra_tensor_info: Name, device and data location where they are not the usual ones.
    """

    scalar_type: Int8 = 0
    storage_offset: Int32 = 0
    sizes: Sequence[Int32] | None = None
    dim_order: Sequence[UInt8] | None = None
    requires_grad: Boolean = False
    data_buffer_idx: UInt32 = 0
    allocation_info: AllocationDetails | None = None
    layout: Int8 = 0
    shape_dynamism: Int8 = 0
    extra_tensor_info: ExtraTensorInfo | None = None


@dataclass(slots=True)
class Int:
    """An integer value."""

    int_val: Int64 = 0


@dataclass(slots=True)
class Bool:
    """A truth value."""

    bool_val: Boolean = False


@dataclass(slots=True)
class Double:
    """A floating-point value; ExecuTorch's own objects hold infinities as "inf" and "-inf"."""

    double_val: Float64 = 0.0


@dataclass(slots=True)
class String:
    """A string value."""

    string_val: str | None = None


@dataclass(slots=True)
class IntList:
    """A list of integers, as indices of the values that hold them."""

    items: Sequence[Int64] | None = None


@dataclass(slots=True)
class DoubleList:
    """A list of floating-point numbers."""

    items: Sequence[Float64] | None = None


@dataclass(slots=True)
class BoolList:
    """A list of truth values."""

    items: Sequence[Boolean] | None = None


@dataclass(slots=True)
class TensorList:
    """A list of tensors, as indices of values."""

    items: Sequence[Int32] | None = None


@dataclass(slots=True)
class OptionalTensorList:
    """A list of tensors or None, as indices of values; -1 = None."""

    items: Sequence[Int32] | None = None


KernelTypes: TypeAlias = (
    Null
    | Int
    | Bool
    | Double
    | Tensor
    | String
    | IntList
    | DoubleList
    | BoolList
    | TensorList
    | OptionalTensorList
)
"""What a value can be, in the order of the union's tags."""


@dataclass(slots=True)
class EValue:
    """One value of a method."""

    val: KernelTypes | None = None


@dataclass(slots=True)
class Operator:
    """An operator by its name and overload ("aten::add", "out")."""

    name: str | None = None
    overload: str | None = None


@dataclass(slots=True)
class KernelCall:
    """Call an operator.

    Attributes:
        op_index: Index into `ExecutionPlan.operators`.
        args: Indices of the values passed, outputs last.
    """

    op_index: Int32 = 0
    args: Sequence[Int32] | None = None


@dataclass(slots=True)
class DelegateCall:
    """Call a delegate.

    Attributes:
        delegate_index: Index into `ExecutionPlan.delegates`.
        args: Indices of the values passed, outputs last.
    """

    delegate_index: Int32 = 0
    args: Sequence[Int32] | None = None


@dataclass(slots=True)
class MoveCall:
    """Move one value into another; both are indices of values."""

    move_from: Int32 = 0
    move_to: Int32 = 0


@dataclass(slots=True)
class JumpFalseCall:
    """Jump to an instruction when a value (by index) is false."""

    cond_value_index: Int32 = 0
    destination_instruction: Int32 = 0


@dataclass(slots=True)
class FreeCall:
    """Give back the memory of a tensor (by the index of its value)."""

    value_index: Int32 = 0


InstructionArguments: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall
"""What an instruction can be, in the order of the union's tags."""


@dataclass(slots=True)
class Instruction:
    """One step of a chain."""

    instr_args: InstructionArguments | None = None


@dataclass(slots=True)
class Frame:
    """One frame of a stack trace.

    Attributes:
        filename: Source file.
        lineno: Line in it.
        name: Function.
        context: Text of that line.
    """

    filename: str | None = None
    lineno: Int32 = 0
    name: str | None = None
    context: str | None = None


@dataclass(slots=True)
class FrameList:
    """The stack trace of one instruction."""

    items: Sequence[Frame] | None = None


@dataclass(slots=True)
class BackendDelegateDataReference:
    """Where the data of a delegate is.

    Attributes:
        location: Where the payload is, a `DataLocation`.
        index: Index into that list.
    """

    location: Int8 = 0
    index: UInt32 = 0


@dataclass(slots=True)
class CompileSpec:
    """An option that a delegate was compiled with."""

    key: str | None = None
    value: Annotated[Payload | None, Bytes()] = None


@dataclass(slots=True)
class BackendDelegate:
    """A part of a method that a backend runs.

    Attributes:
        id: Name of the backend.
        processed: What the backend compiled.
        compile_specs: What it was compiled with.
    """

    id: str | None = None
    processed: BackendDelegateDataReference | None = None
    compile_specs: Sequence[CompileSpec] | None = None


@dataclass(slots=True)
class Chain:
    """Instructions that run one after the other.

    Attributes:
        inputs: Indices of the values that go in.
        outputs: Indices of the values that come out.
        instructions: The steps.
        stacktrace: One list of frames for each instruction, if they were kept.
    """

    inputs: Sequence[Int32] | None = None
    outputs: Sequence[Int32] | None = None
    instructions: Sequence[Instruction] | None = None
    stacktrace: Sequence[FrameList] | None = None


@dataclass(slots=True)
class NonConstBufferDevice:
    """The device on which a planned buffer lives.

    Attributes:
        buffer_idx: Index into `ExecutionPlan.non_const_buffer_sizes`.
        device_type: 0 = CPU, 1 = CUDA.
        device_index: Which device of that type.
    """

    buffer_idx: Int32 = 0
    device_type: Int8 = 0
    device_index: Int8 = 0


@dataclass(slots=True)
class ExecutionPlan:
    """One method.

    Attributes:
        name: Name of the method.
        container_meta_type: How inputs and outputs fold back into containers.
        values: Everything that instructions refer to by index.
        inputs: Indices of the values that a caller sets.
        outputs: Indices of the values that a caller gets.
        chains: What runs; one chain so far.
        operators: The operators called.
        delegates: The delegates called.
        non_const_buffer_sizes: Bytes of each planned buffer; entry 0 is reserved.
        non_const_buffer_device: Devices of the planned buffers; None = all on the CPU.
    """

    name: str | None = None
    container_meta_type: ContainerMetadata | None = None
    values: Sequence[EValue] | None = None
    inputs: Sequence[Int32] | None = None
    outputs: Sequence[Int32] | None = None
    chains: Sequence[Chain] | None = None
    operators: Sequence[Operator] | None = None
    delegates: Sequence[BackendDelegate] | None = None
    non_const_buffer_sizes: Sequence[Int64] | None = None
    non_const_buffer_device: Sequence[NonConstBufferDevice] | None = None


@dataclass(slots=True)
class Buffer:
    """Data of a constant, stored inside the flatbuffer."""

    storage: Annotated[Payload | None, Bytes(16, "tensor")] = None


@dataclass(slots=True)
class BackendDelegateInlineData:
    """Data of a delegate, stored inside the flatbuffer."""

    data: Annotated[Payload | None, Bytes(16, "delegate")] = None


@dataclass(slots=True)
class DataSegment:
    """A run of bytes after the flatbuffer.

    Attributes:
        offset: First byte, from the segment base that the extended header gives.
        size: Bytes of data; padding may follow.
    """

    offset: UInt64 = 0
    size: UInt64 = 0


@dataclass(slots=True)
class SubsegmentOffsets:
    """Where the tensors in one segment begin.

    Attributes:
        segment_index: Index into `Program.segments`.
        offsets: First byte of each tensor, from the start of the segment; entry 0 is reserved.
    """

    segment_index: UInt32 = 0
    offsets: Sequence[UInt64] | None = None


@dataclass(slots=True)
class NamedData:
    """A blob under a unique key.

    Attributes:
        key: The key.
        segment_index: Index into `Program.segments`; several keys may share one.
    """

    key: str | None = None
    segment_index: UInt32 = 0


@dataclass(slots=True)
class Program:
    """The root table of a `.pte` file.

    Attributes:
        version: Version of the schema, 0.
        execution_plan: The methods.
        constant_buffer: Constants stored inside the flatbuffer; old files only.
        backend_delegate_data: Delegate data stored inside the flatbuffer.
        segments: The segments, sorted by offset.
        constant_segment: The constants, where they are in a segment.
        mutable_data_segments: Initial data of mutable tensors.
        named_data: Blobs by key.
    """

    version: UInt32 = 0
    execution_plan: Sequence[ExecutionPlan] | None = None
    constant_buffer: Sequence[Buffer] | None = None
    backend_delegate_data: Sequence[BackendDelegateInlineData] | None = None
    segments: Sequence[DataSegment] | None = None
    constant_segment: SubsegmentOffsets | None = None
    mutable_data_segments: Sequence[SubsegmentOffsets] | None = None
    named_data: Sequence[NamedData] | None = None
