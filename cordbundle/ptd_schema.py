"""The schema of a flat tensor file (`.ptd`), as dataclasses.

Rules of this file: names, order and defaults are those of ExecuTorch 1.5's `flat_tensor.fbs` (file
identifier `FT01`); every field of it is here and none beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordbundle.flatbuffer.schema import Int8, Int32, UInt8, UInt32, UInt64

__all__ = ["FLAT_TENSOR_IDENTIFIER", "DataSegment", "FlatTensor", "NamedData", "TensorLayout"]

FLAT_TENSOR_IDENTIFIER = b"FT01"
"""File identifier of a flat tensor file."""


@dataclass(slots=True)
class TensorLayout:
    """What a blob is when it is a tensor.

    Attributes:
        scalar_type: ExecuTorch's `ScalarType` number.
        sizes: Size of each dimension.
        dim_order: The dimensions from the outermost in memory to the innermost.
    """

    scalar_type: Int8 = 0
    sizes: Sequence[Int32] | None = None
    dim_order: Sequence[UInt8] | None = None


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
class NamedData:
    """A blob under a unique key.

    Attributes:
        key: The key.
        segment_index: Index into `FlatTensor.segments`; several keys may share one.
        tensor_layout: What it is, when it is a tensor.
    """

    key: str | None = None
    segment_index: UInt32 = 0
    tensor_layout: TensorLayout | None = None


@dataclass(slots=True)
class FlatTensor:
    """The root table of a `.ptd` file.

    Attributes:
        version: Version of the schema, 0.
        segments: The segments, sorted by offset.
        named_data: The blobs.
    """

    version: UInt32 = 0
    segments: Sequence[DataSegment] | None = None
    named_data: Sequence[NamedData] | None = None
