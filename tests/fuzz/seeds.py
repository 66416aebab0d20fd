"""Sound files of every format, as small as they can be with everything in them.

Rules of this file: only the project's writers make them, so that they follow the formats; a seed is
a few KiB, since most of what is changed at random should matter.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.bundling import Form
from cordbundle.flatbuffer import encode
from tests.support import floats, program, suite, tensor

__all__ = ["array_files", "own_files", "real_files", "safetensors_file"]

MAX_SIZE = 64 << 10
"""Larger files are left out: what is changed in them hardly ever matters."""

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@cache
def own_files() -> dict[str, bytes]:
    """Return sound files by name."""
    files = {
        "everything.pte": bytes(_program(extract=True)),
        "inline.pte": bytes(_program(extract=False)),
        "bare.pte": program([tensor([2, 3])], [tensor([2, 3])]),
        "weights.ptd": bytes(_weights()),
        "many.ptd": bytes(cb.serialize_ptd({f"k{i}": floats([1 + i % 3]) for i in range(70)})),
        "old_vectors.bpte": _foreign_bundle(),
    }
    forms: tuple[Form, ...] = ("bp08", "segmented", "detached")
    for form in forms:
        for digest in (True, False):
            name = f"{form}{'' if digest else '_without_digest'}.bpte"
            files[name] = bytes(_bundle(form, digest=digest).cord)
    return files


def real_files() -> dict[str, bytes]:
    """Return the example programs and, where they are, public files of many versions."""
    folders = REPOSITORY / "examples", REPOSITORY.parent / "shared" / "cases" / "real"
    return {
        path.name: path.read_bytes()
        for folder in folders
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if path.suffix in (".pte", ".ptd", ".bpte", ".bp") and path.stat().st_size <= MAX_SIZE
    }


def array_files() -> dict[str, bytes]:
    """Return sound files of arrays by name: safetensors, and NumPy archives of two kinds."""
    inputs = ("mlp-0.npz", "scalars.npz")
    files = {name: (REPOSITORY / "examples" / name).read_bytes() for name in inputs}
    files["deflated.npz"] = _deflated(files["mlp-0.npz"])
    return files | {"arrays.safetensors": safetensors_file()}


def _deflated(archive: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def safetensors_file() -> bytes:
    """Return a sound safetensors file."""
    text = (
        b'{"__metadata__":{"format":"pt"},'
        b'"b":{"dtype":"I64","shape":[],"data_offsets":[24,32]},'
        b'"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}} '
    )
    return len(text).to_bytes(8, "little") + text + bytes(32)


def _values() -> list[schema.EValue]:
    """Return values of every kind; the first four are what methods take and give."""
    constant = tensor([2, 2])
    constant.data_buffer_idx = 1
    planned = tensor([4])
    planned.allocation_info = schema.AllocationDetails(1, 64, 0)
    external = tensor([3], cb.ScalarType.CHAR)
    external.extra_tensor_info = schema.ExtraTensorInfo(
        fully_qualified_name="key 0", location=schema.TensorDataLocation.EXTERNAL
    )
    mutable = tensor([1])
    mutable.data_buffer_idx = 1
    mutable.allocation_info = schema.AllocationDetails(1, 0, 0)
    mutable.extra_tensor_info = schema.ExtraTensorInfo(1, "state")
    kinds: list[schema.KernelTypes] = [
        tensor([2, 3], dim_order=[1, 0]),
        tensor([4, 1], dynamism=1),
        schema.Int(7),
        schema.Double(0.5),
        schema.Bool(True),
        schema.Null(),
        schema.String("text"),
        schema.IntList([2, 2]),
        schema.BoolList([True, False]),
        schema.DoubleList([1.0]),
        schema.TensorList([0, 1]),
        schema.OptionalTensorList([-1, 1]),
        constant,
        planned,
        external,
        mutable,
        tensor([5], dynamism=2),
    ]
    return [schema.EValue(kind) for kind in kinds]


def _chain() -> schema.Chain:
    arguments: list[schema.InstructionArguments] = [
        schema.KernelCall(0, [0, 1, 2]),
        schema.DelegateCall(0, [0, 1]),
        schema.MoveCall(2, 2),
        schema.JumpFalseCall(4, 0),
        schema.FreeCall(16),
    ]
    frames = schema.FrameList([schema.Frame("model.py", 3, "forward", "return x")])
    instructions = [schema.Instruction(argument) for argument in arguments]
    return schema.Chain(stacktrace=[frames], instructions=instructions)


def _program(*, extract: bool) -> cb.Cord:
    """Return a program with every table of the schema."""
    delegates = [
        schema.BackendDelegate(
            "Backend",
            schema.BackendDelegateDataReference(0, index),
            [schema.CompileSpec("mode", b"\1")],
        )
        for index in range(2)
    ]
    plan = schema.ExecutionPlan(
        name="forward",
        container_meta_type=schema.ContainerMetadata("in", "out"),
        values=_values(),
        inputs=[0, 1, 2],
        outputs=[0, 4],
        chains=[_chain()],
        operators=[schema.Operator("aten::add", "out"), schema.Operator("aten::mul", "")],
        delegates=delegates,
        non_const_buffer_sizes=[0, 256],
        non_const_buffer_device=[schema.NonConstBufferDevice(1, 0, 0)],
    )
    store = cb.NamedDataStore()
    store.add_named_data("key 0", b"named", 16)
    store.add_named_data("key 1", b"named", 32)
    store.add_named_data("other", b"x" * 40, 1)
    given = schema.Program(
        execution_plan=[plan],
        constant_buffer=[schema.Buffer(b""), schema.Buffer(bytes(range(16)))],
        backend_delegate_data=[
            schema.BackendDelegateInlineData(b"payload"),
            schema.BackendDelegateInlineData(b"p" * 33),
        ],
    )
    return cb.serialize_pte(
        given,
        mutable_data=[schema.Buffer(b""), schema.Buffer(bytes(4))],
        named_data=store.get_named_data_store_output(),
        segment_alignment=16,
        extract_delegate_segments=extract,
    )


def _weights() -> cb.Cord:
    row_major, column_major = (
        floats([2, 3]),
        cb.TensorView(cb.ScalarType.CHAR, (2, 3), (1, 0), cb.Cord(b"abcdef")),
    )
    return cb.serialize_ptd(
        {"w": row_major, "same": row_major, "c": column_major, "blob": b"bytes", "none": b""},
        segment_alignment=16,
    )


def _bundle(form: Form, *, digest: bool) -> cb.Bundle:
    """Return a bundle with values of every kind, of which one tensor is a segment."""
    inputs: list[schema.KernelTypes] = [
        tensor([2]),
        tensor([1024]),
        schema.Int(3),
        schema.Double(1.5),
        schema.Bool(True),
    ]
    given = program(inputs, [tensor([2])], names=("forward", "other"))
    values = [floats([2]), floats([1024]), 3, 1.5, True]
    case = cb.MethodTestCase(values, [floats([2])])
    return cb.bundle(
        given,
        [suite(case, cb.MethodTestCase(values)), suite(case, method="other")],
        named_data={"a.ptd": _weights(), "text": b"words"},
        form=form,
        alignment=16,
        digest=digest,
    )


def _foreign_bundle() -> bytes:
    """Return a bundle as ExecuTorch makes it: one flatbuffer, no header, no segments."""
    from cordbundle import bpte_schema as bundled

    values: list[bundled.ValueUnion] = [
        bundled.Tensor(6, [2], bytes(8), [0]),
        bundled.Int(1),
        bundled.Bool(True),
        bundled.Double(2.0),
    ]
    case = bundled.BundledMethodTestCase([bundled.Value(value) for value in values], [])
    given = bundled.BundledProgram(
        method_test_suites=[bundled.BundledMethodTestSuite("forward", [case])],
        program=program([tensor([2]), schema.Int(1), schema.Bool(True), schema.Double(2.0)]),
    )
    return bytes(encode(given, bundled.BUNDLED_PROGRAM_IDENTIFIER).cord)
