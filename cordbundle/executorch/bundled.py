"""Bundled programs in ExecuTorch's terms.

Rules of this file: the program goes by reference and is neither joined nor kept; what ExecuTorch
caches is used where it is there, so that the bytes are always ExecuTorch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from executorch.devtools.bundled_program import core
from executorch.devtools.bundled_program import schema as bp_schema

from cordbundle import bpte_schema as schema
from cordbundle.bpte import BundleFile
from cordbundle.cord import Cord
from cordbundle.errors import CaseMismatchError, UnsupportedVersionError
from cordbundle.executorch.records import factories
from cordbundle.flatbuffer import decode, encode, no_collection
from cordbundle.inputs import program_cord, source_cord, source_name
from cordbundle.strided import contiguous_strides, order_by_stride
from cordbundle.tensors import describe

if TYPE_CHECKING:
    from executorch.devtools.bundled_program.core import BundledProgram
    from typing_extensions import Buffer

__all__ = [
    "bundled_program_cord",
    "deserialize_from_flatbuffer_to_bundled_program",
    "serialize_from_bundled_program_to_flatbuffer",
]


def bundled_program_cord(bundled_program: BundledProgram) -> Cord:
    """Serialize a bundled program as ExecuTorch does, but with its program by reference.

    Args:
        bundled_program: ExecuTorch's `BundledProgram`; neither its program's `buffer` nor
            `serialize_to_schema()` is called, which would load the whole program and keep it.

    Returns:
        The `.bpte` file: a prefix of 64 bytes, the program, the test suites.

    Raises:
        CaseMismatchError: An input or output that no bundle can hold.
        LayoutError: A tensor or number that cannot be stored.
        TooLargeError: More than 2 GiB in all; `cordbundle.bundle` has other forms.
    """
    cached = bundled_program._bundled_program_in_schema
    with no_collection():
        root = _described(bundled_program) if cached is None else _converted(cached)
        return encode(root, schema.BUNDLED_PROGRAM_IDENTIFIER).cord


def serialize_from_bundled_program_to_flatbuffer(bundled_program: BundledProgram) -> bytes:
    """Serialize a bundled program as one `bytes` object; see `bundled_program_cord`."""
    return bytes(bundled_program_cord(bundled_program))


def deserialize_from_flatbuffer_to_bundled_program(
    flatbuffer: Buffer | Cord,
) -> bp_schema.BundledProgram:
    """Read a bundled program into ExecuTorch's records.

    Args:
        flatbuffer: The whole `.bpte` file; of cordbundle's forms "bp08" and "detached".

    Returns:
        A `BundledProgram` of `executorch.devtools.bundled_program.schema`, all data as `bytes`.

    Raises:
        FormatError: It is no bundled program, or a damaged one.
        UnsupportedVersionError: A segmented bundle, which these records cannot hold.
    """
    cord = source_cord(flatbuffer)
    file = BundleFile(cord, source_name(None, cord, "<memory>"))
    if file.form == "segmented":
        raise UnsupportedVersionError(
            "segmented bundles are beyond ExecuTorch's records",
            source=file.name,
            expected=repr(schema.BUNDLED_PROGRAM_IDENTIFIER),
            actual=repr(file.kind.identifier),
            cause="open it with cordbundle.open",
        )
    return decode(file.root, factories=factories(bp_schema, schema.BundledProgram))


def _described(bundled_program: BundledProgram) -> schema.BundledProgram:
    source: Any = bundled_program.executorch_program or bundled_program._pte_file_path
    return schema.BundledProgram(
        version=core.BUNDLED_PROGRAM_SCHEMA_VERSION,
        method_test_suites=[
            schema.BundledMethodTestSuite(
                suite.method_name,
                [
                    _case(case, f"method {suite.method_name!r}, case {number}")
                    for number, case in enumerate(suite.test_cases)
                ],
            )
            for suite in bundled_program.method_test_suites
        ],
        program=program_cord(source),
    )


def _case(case: Any, where: str) -> schema.BundledMethodTestCase:
    return schema.BundledMethodTestCase(
        [_value(value, f"{where}, input {i}") for i, value in enumerate(case.inputs)],
        [
            _value(value, f"{where}, expected output {i}", only_tensors=True)
            for i, value in enumerate(case.expected_outputs)
        ],
    )


def _value(value: object, where: str, *, only_tensors: bool = False) -> schema.Value:
    if isinstance(value, torch.Tensor):
        return schema.Value(_tensor(value))
    if not only_tensors:
        if type(value) is int:
            return schema.Value(schema.Int(value))
        if type(value) is bool:
            return schema.Value(schema.Bool(value))
        if type(value) is float:
            return schema.Value(schema.Double(value))
    raise CaseMismatchError(
        "value cannot be bundled",
        source=where,
        expected="a tensor" if only_tensors else "a tensor, int, bool or float",
        actual=type(value).__name__,
    )


def _tensor(tensor: torch.Tensor) -> schema.Tensor:
    """Describe a tensor in row-major order, which ExecuTorch brings all into; by reference."""
    sizes = tuple(tensor.shape)
    row_major = tuple(range(len(sizes)))
    contiguous = tensor.is_contiguous()
    strides = tensor.stride() if contiguous else contiguous_strides(sizes, row_major)
    described = describe(tensor, dim_order=row_major)
    return schema.Tensor(
        scalar_type=described.scalar_type,
        sizes=described.sizes,
        data=described.cord,
        dim_order=order_by_stride(strides),
    )


def _converted(cached: Any) -> schema.BundledProgram:
    """Return what `serialize_to_schema()` made, and keeps, as this project's records."""
    return schema.BundledProgram(
        cached.version,
        [
            schema.BundledMethodTestSuite(
                suite.method_name,
                [
                    schema.BundledMethodTestCase(
                        [_converted_value(value.val) for value in case.inputs],
                        [_converted_value(value.val) for value in case.expected_outputs],
                    )
                    for case in suite.test_cases
                ],
            )
            for suite in cached.method_test_suites
        ],
        cached.program,
    )


def _converted_value(value: Any) -> schema.Value:
    if isinstance(value, bp_schema.Tensor):
        return schema.Value(
            schema.Tensor(value.scalar_type, value.sizes, value.data, value.dim_order)
        )
    return schema.Value(value)
