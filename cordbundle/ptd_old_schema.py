"""The schema that flat tensor files (`.ptd`) had before ExecuTorch 0.7, as dataclasses.

Rules of this file: it is as `ptd_schema.py`, of the last `flat_tensor.fbs` in which tensors had a
table of their own. That one has the identifier of today's (`FT01`) and the version of today's (0),
so that a file is told apart by which of the two schemas it is sound in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordbundle.flatbuffer.schema import Int8, Int32, UInt8, UInt32, UInt64
from cordbundle.ptd_schema import DataSegment

__all__ = ["OldFlatTensor", "OldNamedData", "TensorMetadata"]


@dataclass(slots=True)
class TensorMetadata:
    """A tensor and where it is.

    Attributes:
        fully_qualified_name: Its name.
        scalar_type: ExecuTorch's `ScalarType` number.
        sizes: Size of each dimension.
        dim_order: The dimensions from the outermost in memory to the innermost.
        segment_index: Index into `OldFlatTensor.segments`.
        offset: First byte, from the start of the segment.
    """

    fully_qualified_name: str | None = None
    scalar_type: Int8 = 0
    sizes: Sequence[Int32] | None = None
    dim_order: Sequence[UInt8] | None = None
    segment_index: UInt32 = 0
    offset: UInt64 = 0


@dataclass(slots=True)
class OldNamedData:
    """A blob under a unique key.

    Attributes:
        key: The key.
        segment_index: Index into `OldFlatTensor.segments`.
    """

    key: str | None = None
    segment_index: UInt32 = 0


@dataclass(slots=True)
class OldFlatTensor:
    """The root table.

    Attributes:
        version: Version of the schema, 0.
        tensor_alignment: Alignment of each tensor in bytes.
        tensors: The tensors.
        segments: The segments, sorted by offset.
        named_data: Other blobs; not in the first version.
    """

    version: UInt32 = 0
    tensor_alignment: UInt32 = 0
    tensors: Sequence[TensorMetadata] | None = None
    segments: Sequence[DataSegment] | None = None
    named_data: Sequence[OldNamedData] | None = None
