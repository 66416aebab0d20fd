"""Decoding by columns: the same records, and the same errors, as decoding one by one."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb
from cordbundle import bpte_schema, program, ptd_schema
from cordbundle.flatbuffer import ROWS, Reader, encode
from cordbundle.flatbuffer.columns import ColumnDecoder, Making, UnusualError
from tests.flatbuffer_samples import DECODE, both, columns_from

pytest.importorskip("numpy")


def names(count: int) -> ptd_schema.FlatTensor:
    """Return named data of several shapes: with and without tensor, with text of all kinds."""
    return ptd_schema.FlatTensor(
        segments=[ptd_schema.DataSegment(16 * number, number) for number in range(count)],
        named_data=[
            ptd_schema.NamedData(
                key=f"{'blöb' if number % 5 == 0 else 'blob'}_{number}",
                segment_index=number,
                tensor_layout=ptd_schema.TensorLayout(
                    6, [number] * (number % 4), [0] * (number % 3)
                )
                if number % 7
                else None,
            )
            for number in range(count)
        ],
    )


def decoded(data: Any, left: int = 1 << 30, many: int = 1) -> list[object]:
    """Decode the named data of a flat tensor file by columns and nothing else."""
    reader = Reader(data)
    view: Any = reader.root(ptd_schema.FlatTensor)
    field = view._table.field("named_data")
    at = reader.follow(view._at + view._offsets[field.slot], field.path)
    return ColumnDecoder(reader, Making(False, {}, list)).vector(field, at, left)


def test_a_vector_of_tables_of_several_shapes_is_decoded_by_columns() -> None:
    expected = names(300)

    assert decoded(encode(expected, b"FT01").cord) == expected.named_data


def test_what_is_visited_is_counted_as_one_by_one() -> None:
    data = encode(names(100), b"FT01").cord
    lefts = []
    for many in (1, 2**32):
        with columns_from(many):
            reader = Reader(data)
            view: Any = reader.root(ptd_schema.FlatTensor)
            decoder = DECODE._Decoder(reader, view._table, Making(False, {}, list))
            decoder.table(ptd_schema.FlatTensor)(view._at)
            lefts.append(decoder.left)

    assert lefts[0] == lefts[1] < reader.budget()


def test_more_than_may_be_visited_is_refused() -> None:
    with pytest.raises(UnusualError):
        decoded(encode(names(100), b"FT01").cord, left=1000)


def test_every_kind_of_field_is_decoded_by_columns() -> None:
    values = [
        program.EValue(program.Int(-(2**63))),
        program.EValue(program.Bool(True)),
        program.EValue(program.Double(float("-inf"))),
        program.EValue(program.String("ünïcode")),
        program.EValue(program.Null()),
        program.EValue(program.BoolList([True, False])),
        program.EValue(program.DoubleList([0.5, -0.0])),
        program.EValue(None),
        program.EValue(program.Tensor(sizes=[2, 3], dim_order=[0, 1])),
    ] * 20
    plan = program.ExecutionPlan(
        name="forward",
        values=values,
        chains=[
            program.Chain(
                instructions=[program.Instruction(program.KernelCall(op_index=n, args=[n]))] * n
            )
            for n in range(9)
        ],
    )
    root = program.Program(execution_plan=[plan], constant_buffer=[program.Buffer(b"abc")] * 9)

    by_columns, one_by_one = both(encode(root, b"ET12").cord, program.Program)

    assert by_columns == one_by_one == root


def test_rows_and_tuples_are_made_by_columns_as_one_by_one() -> None:
    data = encode(names(100), b"FT01").cord
    factories = dict.fromkeys((ptd_schema.NamedData, ptd_schema.TensorLayout), ROWS)

    by_columns, one_by_one = both(data, ptd_schema.FlatTensor, factories=factories, scalars=tuple)

    assert by_columns == one_by_one
    assert by_columns.named_data[2] == ("blob_2", 2, (6, (2, 2), (0, 0)))  # type: ignore[attr-defined]


def test_byte_vectors_stay_references() -> None:
    root = program.Program(constant_buffer=[program.Buffer(bytes([n])) for n in range(9)])

    by_columns, one_by_one = both(encode(root, b"ET12").cord, program.Program, by_reference=True)

    assert by_columns == one_by_one
    assert by_columns.constant_buffer[3].storage == cb.Cord(b"\3")  # type: ignore[attr-defined]


def test_an_odd_begin_in_memory_makes_no_difference() -> None:
    data = bytes(encode(names(100), b"FT01").cord)
    moved = memoryview(b"x" + data)[1:]

    assert decoded(moved) == decoded(data)


def test_text_in_a_sea_of_other_bytes_is_decoded() -> None:
    root = names(2)
    fill = program.Program(constant_buffer=[program.Buffer(bytes(2 << 20))])
    fill.execution_plan = [
        program.ExecutionPlan(name=name, operators=[program.Operator("aten::add", name)] * 2)
        for name in ("first", "sécond")
    ]

    by_columns, one_by_one = both(encode(fill, b"ET12").cord, program.Program)

    assert by_columns == one_by_one == fill
    assert decoded(encode(root, b"FT01").cord) == root.named_data


def unions() -> program.Program:
    """Return values of several kinds."""
    values = [program.EValue(one) for one in (program.Int(7), program.Null(), program.Bool(True))]
    return program.Program(execution_plan=[program.ExecutionPlan(values=values * 2)])


@pytest.mark.parametrize("root", [names(8), unions()], ids=["names", "unions"])
def test_any_change_of_any_byte_gives_what_decoding_one_by_one_gives(root: object) -> None:
    sound = bytes(encode(root, b"TEST").cord)
    failed = 0
    for at in range(len(sound)):
        for value in {0, 1, 4, 0x7F, 0x80, 0xFF, sound[at] ^ 1, (sound[at] + 4) % 256}:
            damaged = sound[:at] + bytes([value]) + sound[at + 1 :]

            by_columns, one_by_one = both(damaged, type(root))

            assert repr(by_columns) == repr(one_by_one), (at, value)
            failed += isinstance(by_columns, tuple)
    assert failed > 100


def test_a_file_cut_anywhere_gives_what_decoding_one_by_one_gives() -> None:
    sound = bytes(encode(names(8), b"FT01").cord)
    for end in range(8, len(sound)):
        by_columns, one_by_one = both(sound[:end], ptd_schema.FlatTensor)

        assert by_columns == one_by_one, end


def test_real_files_are_decoded_alike(real_files: Path) -> None:
    roots = {b"ET12": program.Program, b"FT01": ptd_schema.FlatTensor}
    roots[b"BP08"] = bpte_schema.BundledProgram
    decoded = 0
    for path in sorted(real_files.iterdir()):
        data = path.read_bytes()
        root = roots.get(data[4:8])
        if root is None:
            continue

        by_columns, one_by_one = both(data, root)

        assert repr(by_columns) == repr(one_by_one), path.name  # nan is not equal to itself
        decoded += not isinstance(by_columns, tuple)
    assert decoded >= 10


def test_without_numpy_everything_is_decoded_one_by_one() -> None:
    script = """
import sys
from cordbundle import ptd_schema as s
from cordbundle.flatbuffer import Reader, decode, encode
root = s.FlatTensor(named_data=[s.NamedData(str(n), n) for n in range(100)])
assert decode(Reader(encode(root, b"FT01").cord).root(s.FlatTensor)) == root
print("numpy" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "False"


def test_tables_of_very_many_shapes_are_left_to_the_other_way() -> None:
    tables = 65
    vtables = b"".join(struct.pack("<HHHH", 8, 8, 0, 4) for _ in range(tables))
    head = struct.pack("<I4s", 8 + len(vtables) + 16, b"FT01") + vtables
    start = len(head)  # the vtable of the root, which has its third field alone
    head += struct.pack("<5H6x", 10, 8, 0, 0, 4)
    root = len(head)
    vector = struct.pack("<iII", root - start, 4, tables)
    first = root + len(vector) + 4 * tables
    for number in range(tables):
        vector += struct.pack("<I", first + 8 * number - root - len(vector))
    for number in range(tables):
        vector += struct.pack("<iI", first + 8 * number - 8 - 8 * number, number)
    data = head + vector

    with pytest.raises(UnusualError):
        decoded(data)

    by_columns, one_by_one = both(data, ptd_schema.FlatTensor)
    assert by_columns == one_by_one
    assert [one.segment_index for one in by_columns.named_data] == list(range(tables))  # type: ignore[attr-defined]
