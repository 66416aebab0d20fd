"""Sound files, and the knife: what the attacks are made from.

Rules of this file: files come from the package's own writers; a place to cut is found through the
description of the schema, never by a number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import cordbundle as cb
from cordbundle import bpte_schema, ptd_schema
from cordbundle import program as schema
from cordbundle.flatbuffer import Reader, VectorView, encode
from cordbundle.flatbuffer.schema import Kind
from cordbundle.flatbuffer.view import checked_view
from cordbundle.headers import (
    FLAT_TENSOR_HEADER,
    KINDS,
    PROGRAM_HEADER,
    ExtendedHeader,
    flatbuffer_with_header,
)
from tests.support import floats

__all__ = [
    "at",
    "bundle",
    "bundled_program",
    "delegate",
    "element_at",
    "entries",
    "findings",
    "found",
    "instruction",
    "large_input",
    "metadata",
    "methods",
    "plan",
    "point_to_first",
    "program",
    "put",
    "put_bytes",
    "put_element",
    "put_header",
    "put_u16",
    "put_u32",
    "read",
    "refusal",
    "root",
    "target_at",
    "value",
    "vtable_at",
    "weights",
    "weights_of",
    "weights_with",
    "whole_plan",
    "with_segments",
]

_ROOTS: dict[bytes, type] = {
    b"ET12": schema.Program,
    b"FT01": ptd_schema.FlatTensor,
    b"BP08": bpte_schema.BundledProgram,
    b"BPS1": bpte_schema.BundledProgram,
}


def _record() -> schema.Program:
    """Return a program with one of everything."""
    values: list[schema.KernelTypes] = [
        schema.Tensor(6, 0, [2, 3], [0, 1], allocation_info=schema.AllocationDetails(1, 0, 0)),
        schema.Int(7),
        schema.IntList([1, 1]),
        schema.Tensor(6, 0, [4], [0], data_buffer_idx=1),
        schema.TensorList([0, 3]),
        schema.OptionalTensorList([-1, 0]),
        schema.Bool(True),
        schema.String("text"),
        schema.Null(),
    ]
    calls: list[schema.InstructionArguments] = [
        schema.KernelCall(0, [0, 3, 1, 0]),
        schema.DelegateCall(0, [0]),
        schema.MoveCall(0, 3),
        schema.JumpFalseCall(6, 4),
        schema.FreeCall(3),
    ]
    place = schema.BackendDelegateDataReference(0, 0)
    specs = [schema.CompileSpec("key", b"value")]
    method = schema.ExecutionPlan(
        name="forward",
        values=[schema.EValue(value) for value in values],
        inputs=[0],
        outputs=[0],
        chains=[schema.Chain([], [], [schema.Instruction(call) for call in calls])],
        operators=[schema.Operator("aten::add", "out")],
        delegates=[schema.BackendDelegate("backend", place, specs)],
        non_const_buffer_sizes=[0, 24],
    )
    return schema.Program(
        execution_plan=[method],
        constant_buffer=[schema.Buffer(b""), schema.Buffer(b"\1" * 16)],
        backend_delegate_data=[schema.BackendDelegateInlineData(b"payload")],
    )


def program(change: Callable[[schema.ExecutionPlan], object] | None = None) -> bytearray:
    """Return a sound program of three segments: constants, a payload, and the blob "key".

    Args:
        change: What to do to its only method before it is written.
    """
    record = _record()
    if change is not None:
        change((record.execution_plan or ())[0])
    store = cb.NamedDataStore()
    store.add_named_data("key", b"blob")
    return bytearray(
        bytes(cb.serialize_pte(record, named_data=store.get_named_data_store_output()))
    )


def metadata(record: object, identifier: bytes = b"ET12") -> bytearray:
    """Return a file that is a flatbuffer alone."""
    return bytearray(bytes(encode(record, identifier).cord))


def weights() -> bytearray:
    """Return sound weights: tensors "aa" and "bb" of 2 x 3 floats, and the blob "cc"."""

    def tensor(start: float) -> cb.TensorView:
        data = cb.Cord(floats([2, 3], start).tobytes())
        return cb.TensorView(cb.ScalarType.FLOAT, [2, 3], None, data)

    blobs = {"aa": tensor(0.0), "bb": tensor(9.0), "cc": b"blob"}
    return bytearray(bytes(cb.serialize_ptd(blobs)))


def weights_with(record: object, data: bytes = b"") -> bytearray:
    """Return weights whose metadata is as given."""
    flat = encode(record, ptd_schema.FLAT_TENSOR_IDENTIFIER).cord
    end = 48 + len(flat)
    base = end + -end % 16 if data else 0
    packed = FLAT_TENSOR_HEADER.pack(ExtendedHeader(48, len(flat), base, len(data)), 48)
    return bytearray(bytes(flatbuffer_with_header(flat, packed)).ljust(base, b"\0") + data)


def weights_of(layout: ptd_schema.TensorLayout) -> bytearray:
    """Return weights of one tensor without bytes, under the key "k"."""
    entry = ptd_schema.NamedData("k", 0, layout)
    return weights_with(ptd_schema.FlatTensor(0, [ptd_schema.DataSegment()], [entry]))


def with_segments(record: schema.Program, data: bytes) -> bytearray:
    """Return a program with segments that stand together."""
    flat = encode(record, schema.PROGRAM_IDENTIFIER).cord
    end = 32 + len(flat)
    packed = PROGRAM_HEADER.pack(ExtendedHeader(0, end, end, len(data)), 32)
    return bytearray(bytes(flatbuffer_with_header(flat, packed)) + data)


def whole_plan(**changes: object) -> schema.ExecutionPlan:
    """Return the smallest method that is whole, with what is to be otherwise."""
    vectors: dict[str, object] = {
        "name": "f",
        "values": [],
        "inputs": [],
        "outputs": [],
        "chains": [schema.Chain([], [], [])],
        "operators": [],
        "delegates": [],
        "non_const_buffer_sizes": [0, 64],
    }
    return schema.ExecutionPlan(**{**vectors, **changes})  # type: ignore[arg-type]  # by name


def bundled_program() -> bytearray:
    """Return the program in `bundle`, whose method takes a tensor twice."""
    return program(lambda plan: setattr(plan, "inputs", [0, 0]))


def bundle(form: str = "bp08", digest: bool = False) -> bytearray:
    """Return a sound bundle: `bundled_program`, one case with a large input, the blob "key"."""
    case = cb.MethodTestCase([floats([2, 3]), floats([64, 64])])
    suites = [cb.MethodTestSuite("forward", [case])]
    made = cb.bundle(
        bytes(bundled_program()),
        suites,
        form=form,  # type: ignore[arg-type]  # one of the three
        alignment=64,
        digest=digest,
        check=False,
        named_data={"key": b"blob" * 40},
    )
    return bytearray(bytes(made.cord))


# Reading ----------------------------------------------------------------------------------------


def read(data: bytes | bytearray | cb.Cord) -> Any:
    """Open a file of whatever kind it is."""
    return cb.open(data if isinstance(data, cb.Cord) else bytes(data))


def methods(data: bytes | bytearray | cb.Cord) -> Mapping[str, cb.Method]:
    """Return the methods of a program."""
    file = read(data)
    assert isinstance(file, cb.PteFile)
    return file.methods


def findings(data: bytes | bytearray | cb.Cord) -> list[tuple[int, str, str, str]]:
    """Return all that `verify` says: offset, what, expected, found."""
    return [(one.offset, one.what, one.expected, one.actual) for one in read(data).verify()]


def found(data: bytes | bytearray | cb.Cord) -> tuple[int, str, str, str]:
    """Return the only thing that `verify` says."""
    (finding,) = findings(data)
    return finding


def refusal(call: Callable[[], object]) -> tuple[type, str, int | None, str, str]:
    """Return the error that a call ends with: class, what, offset, expected, found."""
    with pytest.raises(cb.CordBundleError) as caught:
        call()
    error = caught.value
    return type(error), error.what, error.offset, str(error.expected), str(error.actual)


# Finding a place --------------------------------------------------------------------------------


def root(data: bytes | bytearray) -> Any:
    """Return the view of the root table."""
    return Reader(bytes(data)).root(_ROOTS[bytes(data[4:8])])


def plan(data: bytes | bytearray) -> schema.ExecutionPlan:
    """Return the view of the first method."""
    view = root(data)
    assert isinstance(view, schema.Program)
    return (view.execution_plan or ())[0]


def value(data: bytes | bytearray, number: int) -> object:
    """Return the view of a value of the first method."""
    return (plan(data).values or ())[number].val


def instruction(data: bytes | bytearray, number: int) -> schema.Instruction:
    """Return the view of an instruction of the first method."""
    chain = (plan(data).chains or ())[0]
    return (chain.instructions or ())[number]


def delegate(data: bytes | bytearray) -> schema.BackendDelegate:
    """Return the view of the delegate of the first method."""
    return (plan(data).delegates or ())[0]


def entries(data: bytes | bytearray) -> Sequence[ptd_schema.NamedData]:
    """Return the views of the named data of weights."""
    view = root(data)
    assert isinstance(view, ptd_schema.FlatTensor)
    return view.named_data or ()


def large_input(data: bytes | bytearray) -> bpte_schema.Tensor:
    """Return the view of the large input of a bundle."""
    view = root(data)
    assert isinstance(view, bpte_schema.BundledProgram)
    case = ((view.method_test_suites or ())[0].test_cases or ())[0]
    tensor = (case.inputs or ())[1].val
    assert isinstance(tensor, bpte_schema.Tensor)
    return tensor


def at(view: object, name: str, *, tag: bool = False) -> int:
    """Return where the inline value of a field stands, which is stored; of a union, or its tag."""
    checked = checked_view(view)
    offset = checked._offsets[checked._table.field(name).slot - tag]
    assert offset, f"{name} is not stored"
    return checked._at + offset


def target_at(view: object, name: str) -> int:
    """Return where the vector, string or table of a field begins."""
    place = at(view, name)
    return place + checked_view(view)._reader.u32(place, name)


def element_at(view: object, name: str, number: int) -> int:
    """Return where an element of a vector stands."""
    field = checked_view(view)._table.field(name)
    width = 1 if field.kind is Kind.STRING else field.scalar.size
    return target_at(view, name) + 4 + number * width


def vtable_at(view: object) -> int:
    """Return where the vtable of a table begins."""
    checked = checked_view(view)
    (back,) = struct.unpack("<i", checked._reader.read(checked._at, 4))
    return checked._at - int(back)


# Cutting ----------------------------------------------------------------------------------------


def put(data: bytearray, view: object, name: str, number: int) -> None:
    """Overwrite a scalar of a table."""
    code = checked_view(view)._table.field(name).scalar.code
    struct.pack_into("<" + code, data, at(view, name), number)


def put_element(data: bytearray, view: object, name: str, index: int, number: int) -> None:
    """Overwrite an element of a vector of scalars, or an offset in one of tables."""
    code = checked_view(view)._table.field(name).scalar.code
    struct.pack_into("<" + code, data, element_at(view, name, index), number)


def put_u32(data: bytearray, place: int, number: int) -> None:
    """Overwrite four bytes with an unsigned number."""
    struct.pack_into("<I", data, place, number)


def put_u16(data: bytearray, place: int, number: int) -> None:
    """Overwrite two bytes with an unsigned number."""
    struct.pack_into("<H", data, place, number)


def put_bytes(data: bytearray, place: int, run: bytes) -> None:
    """Overwrite bytes with others."""
    data[place : place + len(run)] = run


def put_header(data: bytearray, **values: int) -> int:
    """Overwrite fields of the extended header; return the place of the last one."""
    form = next(kind.header for kind in KINDS if kind.identifier == bytes(data[4:8]))
    place = 0
    for name, number in values.items():
        place = 12 if name == "length" else form.offset_of(name)
        struct.pack_into("<I" if name == "length" else "<Q", data, place, number)
    return place


def point_to_first(data: bytearray, vector: object) -> None:
    """Make all elements of a vector of tables point to the first one's table."""
    assert isinstance(vector, VectorView)
    first = vector._first
    target = first + int.from_bytes(data[first : first + 4], "little")
    for place in range(first, first + 4 * len(vector), 4):
        put_u32(data, place, target - place)
