"""The schema of a bundled program (`.bpte`), as dataclasses.

Rules of this file: names, order and defaults are those of ExecuTorch 1.5's
`bundled_program_schema.fbs` (file identifier `BP08`); what cordbundle adds is appended, so that
readers which do not know it pass over it; nothing is changed or removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cordbundle.flatbuffer.schema import (
    Boolean,
    Bytes,
    Far,
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
    "BUNDLED_PROGRAM_IDENTIFIER",
    "SEGMENTED_IDENTIFIER",
    "Bool",
    "BundledMethodTestCase",
    "BundledMethodTestSuite",
    "BundledProgram",
    "DataSegment",
    "Double",
    "Int",
    "NamedData",
    "Tensor",
    "Value",
    "ValueUnion",
]

BUNDLED_PROGRAM_IDENTIFIER = b"BP08"
"""File identifier of a bundle that ExecuTorch reads."""

SEGMENTED_IDENTIFIER = b"BPS1"
"""File identifier of a bundle without size limit; cordbundle's own."""


@dataclass(slots=True)
class Int:
    """An integer input."""

    int_val: Int64 = 0


@dataclass(slots=True)
class Bool:
    """A truth value as input."""

    bool_val: Boolean = False


@dataclass(slots=True)
class Double:
    """A floating-point input."""

    double_val: Float64 = 0.0


@dataclass(slots=True)
class Tensor:
    """A tensor input or expected output.

    Attributes:
        scalar_type: ExecuTorch's `ScalarType` number.
        sizes: Size of each dimension.
        data: Its bytes in the order of `dim_order`; empty where a segment holds them.
        dim_order: The dimensions from the outermost in memory to the innermost.
        data_segment: Index + 1 into `BundledProgram.segments`; 0 = none. Appended by cordbundle.
    """

    scalar_type: Int8 = 0
    sizes: Sequence[Int32] | None = None
    data: Annotated[Payload | Far | None, Bytes(16)] = None
    dim_order: Sequence[UInt8] | None = None
    data_segment: UInt32 = 0


ValueUnion: TypeAlias = Tensor | Int | Bool | Double
"""What an input or output can be, in the order of the union's tags."""


@dataclass(slots=True)
class Value:
    """One input or expected output."""

    val: ValueUnion | None = None


@dataclass(slots=True)
class BundledMethodTestCase:
    """One call of a method.

    Attributes:
        inputs: What is passed, flattened.
        expected_outputs: What should come back; empty = not known.
    """

    inputs: Sequence[Value] | None = None
    expected_outputs: Sequence[Value] | None = None


@dataclass(slots=True)
class BundledMethodTestSuite:
    """The test cases of one method."""

    method_name: str | None = None
    test_cases: Sequence[BundledMethodTestCase] | None = None


@dataclass(slots=True)
class DataSegment:
    """A run of bytes after the flatbuffer; this table is cordbundle's own.

    Attributes:
        offset: First byte, from the segment base that the extended header gives.
        size: Bytes of data; padding may follow.
        xxh3_128: Digest of the data, 16 bytes; None = not computed.
    """

    offset: UInt64 = 0
    size: UInt64 = 0
    xxh3_128: Annotated[Payload | None, Bytes()] = None


@dataclass(slots=True)
class NamedData:
    """A blob under a unique key; this table is cordbundle's own.

    Attributes:
        key: The key.
        segment_index: Index into `BundledProgram.segments`; several keys may share one.
    """

    key: str | None = None
    segment_index: UInt32 = 0


@dataclass(slots=True)
class BundledProgram:
    """The root table of a `.bpte` file.

    Attributes:
        version: Version of the schema, 0.
        method_test_suites: The test suites, one for each method that has tests.
        program: The `.pte` file as it is; empty where a segment or another file holds it.
        segments: The segments. Appended by cordbundle, as the next two.
        named_data: Blobs by key.
        program_segment: Index + 1 of the program's segment; 0 = none.
    """

    version: UInt32 = 0
    method_test_suites: Sequence[BundledMethodTestSuite] | None = None
    program: Annotated[Payload | Far | None, Bytes(32)] = None
    segments: Sequence[DataSegment] | None = None
    named_data: Sequence[NamedData] | None = None
    program_segment: UInt32 = 0
