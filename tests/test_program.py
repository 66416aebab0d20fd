"""The schemas of the formats against ExecuTorch: same fields, same bytes, same meaning."""

from __future__ import annotations

import dataclasses
import importlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordbundle import bpte_schema, program, ptd_schema
from cordbundle.cord import Cord
from cordbundle.flatbuffer import Reader, decode, encode, verify
from cordbundle.flatbuffer.schema import Field, Kind, reachable, table_of
from tests.flatbuffer_samples import tables

PROGRAMS = [
    "add.pte",
    "add_no_extended_header.pte",
    "const_methods.pte",
    "dtypes.pte",
    "dynamic.pte",
    "keyword_spotting.pte",
    "linear.pte",
    "linear_constant_buffer.pte",
    "lstm.pte",
    "multi.pte",
    "quantized.pte",
    "softmax.pte",
    "stories260k_qnn.pte",
    "xor.pte",
]

SCALARS = {
    "bool": "bool",
    "byte": "int8",
    "ubyte": "uint8",
    "uint8": "uint8",
    "int": "int32",
    "int32": "int32",
    "uint": "uint32",
    "uint32": "uint32",
    "long": "int64",
    "int64": "int64",
    "uint64": "uint64",
    "double": "float64",
}


def installed(name: str) -> Any:
    """Import a module of ExecuTorch, or skip."""
    pytest.importorskip("executorch.exir", exc_type=ImportError)
    return importlib.import_module(f"executorch.{name}")


def test_a_small_program_has_these_bytes() -> None:
    small = program.Program(
        execution_plan=[
            program.ExecutionPlan(name="f", values=[program.EValue(program.Int(2))], inputs=[0])
        ],
        segments=[program.DataSegment(size=16)],
    )

    data = bytes(encode(small, program.PROGRAM_IDENTIFIER).cord)

    assert data == bytes.fromhex(
        "18000000 45543132"  # root offset, ET12
        "0000 0e00 0c00 0000 0800 0000 0000 0400"  # vtable of Program
        "0e000000 08000000 20000000"  # segments, execution_plan
        "01000000 0c000000 0800 0c00 0000 0400"  # one segment; its vtable
        "08000000 1000000000000000"  # size 16
        "01000000 10000000 0c00 1000 0c00 0000 0800 0400"  # one plan; its vtable
        "0c000000 0c000000 10000000 38000000"  # inputs, values, name
        "01000000 00000000"  # inputs
        "01000000 0c000000 0800 0a00 0900 0400"  # one value; its vtable
        "08000000 0c000000 00 02 0600 0c00 0400"  # an Int; its vtable
        "06000000 0200000000000000"  # 2
        "01000000 66000000"  # "f"
    )
    assert decode(Reader(data).root(program.Program)) == small


def fbs_tables(text: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield each table or union of a schema file with its (name, type, rest) fields."""
    text = re.sub(r"//[^\n]*", "", text)
    for name, body in re.findall(r"table\s+(\w+)\s*{([^}]*)}", text):
        yield name, re.findall(r"(\w+)\s*:\s*([\[\]\w.]+)\s*([^;]*);", body)


def fbs_unions(text: str) -> dict[str, list[str]]:
    """Return the members of each union."""
    text = re.sub(r"//[^\n]*", "", text)
    found = re.findall(r"union\s+(\w+)\s*{([^}]*)}", text)
    return {name: re.findall(r"\w+", body) for name, body in found}


def fbs_type(text: str, kind: str) -> str:
    """Name a type of a schema file as `described` does."""
    kind = kind.replace("executorch_flatbuffer.", "")
    enums = [*re.findall(r"enum\s+(\w+)\s*:\s*byte", text), "ScalarType"]
    if kind in enums:
        return "int8"
    if kind in fbs_unions(text):
        return " | ".join(fbs_unions(text)[kind])
    if kind.startswith("["):
        return f"[{fbs_type(text, kind[1:-1])}]"
    return SCALARS.get(kind, kind)


def described(field: Field) -> str:
    """Name what a field of a description holds."""
    scalar = field.scalar.name
    names = " | ".join(member.__name__ for member in field.members)
    return {
        Kind.SCALAR: scalar,
        Kind.STRING: "string",
        Kind.BYTES: "[uint8]",
        Kind.SCALARS: f"[{scalar}]",
        Kind.TABLE: names,
        Kind.TABLES: f"[{names}]",
        Kind.UNION: names,
    }[field.kind]


@pytest.mark.executorch
@pytest.mark.parametrize(
    ("module", "root", "file", "appended"),
    [
        (program, program.Program, "exir/_serialize/program.fbs", {}),
        (
            ptd_schema,
            ptd_schema.FlatTensor,
            "extension/flat_tensor/serialize/flat_tensor.fbs",
            {},
        ),
        (
            bpte_schema,
            bpte_schema.BundledProgram,
            "devtools/bundled_program/serialize/bundled_program_schema.fbs",
            {"Tensor": 1, "BundledProgram": 3, "DataSegment": 3, "NamedData": 2},
        ),
    ],
    ids=["pte", "ptd", "bpte"],
)
def test_tables_and_ids_are_those_of_the_installed_schema(
    module: ModuleType, root: type, file: str, appended: dict[str, int]
) -> None:
    text = (Path(installed("exir").__file__).parent.parent / file).read_text()
    expected = {
        name: [(field, fbs_type(text, kind)) for field, kind, _ in fields]
        for name, fields in fbs_tables(text)
    }

    found = {
        table.name: [(field.name, described(field)) for field in table.fields]
        for table in reachable(root)
    }

    for name, count in appended.items():
        assert len(found[name]) == len(expected.get(name, [])) + count
        found[name] = found[name][: len(found[name]) - count]
    assert {
        name: fields for name, fields in found.items() if fields or name in expected
    } == expected
    assert f'file_identifier "{module.__dict__[_identifier(module)].decode()}"' in text


def _identifier(module: ModuleType) -> str:
    return str(next(name for name in module.__all__ if name.endswith("_IDENTIFIER")))


@pytest.mark.executorch
def test_forced_alignments_are_those_of_the_installed_schema() -> None:
    folder = Path(installed("exir").__file__).parent.parent
    text = (folder / "exir/_serialize/program.fbs").read_text()
    text += (folder / "devtools/bundled_program/serialize/bundled_program_schema.fbs").read_text()
    forced = dict(re.findall(r"(\w+)\s*:\s*\[ubyte\]\s*\(force_align: (\d+)\)", text))

    found = {
        field.name: str(field.layout.align)
        for root in (program.Program, bpte_schema.BundledProgram)
        for table in reachable(root)
        for field in table.fields
        if field.layout.align > 1
    }

    assert found == forced


def as_executorch(value: Any, module: Any) -> Any:
    """Rebuild one of our objects from ExecuTorch's classes."""
    if isinstance(value, list):
        return [as_executorch(item, module) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    name = type(value).__name__
    cls = getattr(module, name, None)
    if cls is None:
        cls = installed("exir.backend.compile_spec_schema").CompileSpec
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(cls)}
    return cls(**{key: as_executorch(item, module) for key, item in fields.items()})


def same(ours: Any, theirs: Any, path: str = "root") -> None:
    """Assert that a decoded object has the values of ExecuTorch's."""
    if isinstance(theirs, list):
        assert len(ours) == len(theirs), path
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            same(mine, other, f"{path}[{number}]")
    elif dataclasses.is_dataclass(theirs):
        assert type(ours).__name__ == type(theirs).__name__, path
        for field in dataclasses.fields(theirs):
            name = field.name
            same(getattr(ours, name), getattr(theirs, name), f"{path}.{name}")
    elif isinstance(ours, float):
        assert struct.pack("<d", ours) == struct.pack("<d", float(theirs)), path
    else:
        assert ours == theirs, path


@pytest.mark.executorch
@given(value=tables(program.Program, 4), tensor=st.sampled_from([16, 64]))
def test_generated_programs_have_executorchs_bytes(value: program.Program, tensor: int) -> None:
    internals = installed("exir._serialize._flatbuffer_program")
    theirs = as_executorch(value, installed("exir.schema"))

    expected = internals._program_to_flatbuffer(
        theirs, constant_tensor_alignment=tensor, delegate_alignment=32
    ).data

    alignments = {"tensor": tensor, "delegate": 32}
    for given_value in (value, theirs):
        result = encode(
            given_value,
            program.PROGRAM_IDENTIFIER,
            schema=program.Program,
            alignments=alignments,
        )
        assert bytes(result.cord) == expected


@pytest.mark.executorch
@given(value=tables(bpte_schema.BundledProgram, 5))
def test_generated_bundles_have_executorchs_bytes(value: bpte_schema.BundledProgram) -> None:
    internals = installed("devtools.bundled_program.serialize")
    schema = installed("devtools.bundled_program.schema.bundled_program_schema")
    plain = _executorchs_part(value)

    expected = internals._bundled_program_schema_to_flatbuffer(as_executorch(plain, schema))

    assert bytes(encode(plain, bpte_schema.BUNDLED_PROGRAM_IDENTIFIER).cord) == expected


def _executorchs_part(value: Any) -> Any:
    """Return a bundle without the appended fields and without absent parts, which crash there."""
    if isinstance(value, list):
        return [_executorchs_part(item) for item in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    filled: dict[str, Any] = {}
    for field in table_of(type(value)).fields:
        item = _executorchs_part(getattr(value, field.name))
        if field.name in ("data_segment", "segments", "named_data", "program_segment"):
            item = field.default
        elif item is None and field.kind in (Kind.TABLES, Kind.SCALARS):
            item = []
        elif item is None and field.kind is Kind.BYTES:
            item = b""
        filled[field.name] = item
    return type(value)(**filled)


FLAT = st.builds(
    ptd_schema.FlatTensor,
    version=st.integers(0, 3),
    segments=st.lists(tables(ptd_schema.DataSegment), max_size=4),
    named_data=st.lists(
        st.builds(
            ptd_schema.NamedData,
            key=st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=9),
            segment_index=st.integers(0, 5),
            tensor_layout=st.none()
            | st.builds(
                ptd_schema.TensorLayout,
                scalar_type=st.sampled_from([0, 6, 7, 11, 29]),
                sizes=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
                dim_order=st.lists(st.integers(0, 255), max_size=5),
            ),
        ),
        max_size=4,
    ),
)


@pytest.mark.executorch
def test_flat_tensors_have_the_bytes_of_flatc(request: pytest.FixtureRequest) -> None:
    serialize = installed("extension.flat_tensor.serialize.serialize")
    schema = installed("extension.flat_tensor.serialize.flat_tensor_schema")
    layout = installed("exir.tensor_layout").TensorLayout
    module = type("Module", (), {**vars(schema), "TensorLayout": layout})

    @given(value=FLAT)
    def check(value: ptd_schema.FlatTensor) -> None:
        expected = serialize._serialize_to_flatbuffer(as_executorch(value, module))
        result = encode(value, ptd_schema.FLAT_TENSOR_IDENTIFIER, order="flatc")
        assert bytes(result.cord) == bytes(expected)

    check()


@pytest.mark.executorch
@pytest.mark.parametrize("name", PROGRAMS)
def test_real_programs_decode_as_executorch_decodes_them(real_files: Path, name: str) -> None:
    internals = installed("exir._serialize._flatbuffer_program")
    data = (real_files / name).read_bytes()
    theirs = internals._flatbuffer_to_program(data)

    decoded = decode(Reader(data).root(program.Program))
    again = encode(theirs, program.PROGRAM_IDENTIFIER, schema=program.Program)

    same(decoded, theirs)
    assert bytes(again.cord) == internals._program_to_flatbuffer(theirs).data


@pytest.mark.parametrize("name", PROGRAMS)
def test_real_programs_are_sound_and_survive_encoding(real_files: Path, name: str) -> None:
    reader = Reader(Cord.from_file(real_files / name))

    decoded = decode(reader.root(program.Program))
    again = encode(decoded, program.PROGRAM_IDENTIFIER).cord

    assert verify(reader, program.Program) == []
    assert decode(Reader(again).root(program.Program)) == decoded


@pytest.mark.parametrize("name", ["bundled_program.bpte", "tutorial_bundled_program.bp"])
def test_real_bundles_are_sound_and_survive_encoding(real_files: Path, name: str) -> None:
    reader = Reader(Cord.from_file(real_files / name))

    decoded = decode(reader.root(bpte_schema.BundledProgram))
    again = encode(decoded, bpte_schema.BUNDLED_PROGRAM_IDENTIFIER).cord

    assert verify(reader, bpte_schema.BundledProgram) == []
    assert decode(Reader(again).root(bpte_schema.BundledProgram)) == decoded


def test_a_real_flat_tensor_file_is_sound_and_one_of_an_older_schema_is_not(
    real_files: Path,
) -> None:
    sound = Reader(Cord.from_file(real_files / "xor.ptd"))
    old = Reader(Cord.from_file(real_files / "linear_old_schema.ptd"))

    assert verify(sound, ptd_schema.FlatTensor) == []
    assert verify(old, ptd_schema.FlatTensor) != []


def test_a_memory_offset_has_64_bits() -> None:
    details = program.AllocationDetails(1, memory_offset_low=5, memory_offset_high=2)

    assert details.memory_offset == 2 * 2**32 + 5
