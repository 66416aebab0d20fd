"""What one part of a program says of another: all that is allowed has no finding.

What is not allowed is in tests/attacks, a file for each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle import ptd_schema
from cordbundle.cli import main
from cordbundle.flatbuffer import position_of
from cordbundle.flatbuffer.verify import MAX_FINDINGS
from cordbundle.record_check import Shapes
from tests.attacks.surgery import (
    entries,
    findings,
    metadata,
    program,
    put,
    put_bytes,
    put_element,
    put_header,
    read,
    target_at,
    value,
    weights,
    weights_with,
    whole_plan,
)
from tests.attacks.surgery import (
    plan as plan_of,
)
from tests.support import tensor


def of_value(item: schema.KernelTypes, **changes: object) -> list[tuple[int, str, str, str]]:
    """Verify a method of one value of this kind and an int."""
    values = [schema.EValue(item), schema.EValue(schema.Int(1))]
    return findings(metadata(schema.Program(execution_plan=[whole_plan(values=values, **changes)])))


@pytest.mark.parametrize(
    "item",
    [
        tensor([]),
        tensor([0, 2**31 - 1, 2**31 - 1, 2**31 - 1]),
        tensor([1] * 16),
        tensor([2**31 - 1, 2**30]),
        tensor([4], data_buffer_idx=7, extra_tensor_info=schema.ExtraTensorInfo(0, "w", 1)),
        tensor([16], allocation_info=schema.AllocationDetails(1, 0, 0)),
        tensor([1], allocation_info=schema.AllocationDetails(1, 60, 0)),
        schema.IntList([]),
        schema.IntList([1, 1]),
        schema.TensorList([]),
        schema.OptionalTensorList([-1, -1]),
        schema.BoolList([]),
        schema.DoubleList([1.0]),
        schema.String(""),
        schema.Null(),
        schema.Double(0.0),
    ],
)
def test_a_value_that_is_allowed_has_no_finding(item: schema.KernelTypes) -> None:
    assert of_value(item) == []


@pytest.mark.parametrize(
    ("item", "what"),
    [
        (tensor([2**31 - 1] * 3), "sizes of the tensor overflow"),
        (tensor([2**31 - 1] * 3, dynamism=1), "sizes of the tensor overflow"),
        (tensor([2**31 - 1] * 3, dynamism=2), "sizes of the tensor overflow"),
        (tensor([2**30, 2**30, 2]), "sizes of the tensor overflow"),
        (tensor([1] * 17), "too many dimensions"),
        (tensor([-1, 0], dynamism=1), "negative size"),
        (tensor([1], dynamism=3), "unknown shape dynamism"),
        (tensor([1], dynamism=-1), "unknown shape dynamism"),
        (
            tensor([1], extra_tensor_info=schema.ExtraTensorInfo(0, "w", 2)),
            "unknown location of data",
        ),
        (
            tensor([17], allocation_info=schema.AllocationDetails(1, 0, 0)),
            "planned memory passes the end of buffer 1",
        ),
        (
            tensor([1], allocation_info=schema.AllocationDetails(1, 61, 0)),
            "planned memory passes the end of buffer 1",
        ),
    ],
)
def test_a_value_just_beyond_has_one(item: schema.KernelTypes, what: str) -> None:
    assert [said for _, said, _, _ in of_value(item)] == [f"value 0 of method 'f': {what}"]


@pytest.mark.parametrize("target", [0, 5])
def test_a_jump_may_go_to_any_instruction_and_to_the_end(target: int) -> None:
    data = program()
    chain = (plan_of(data).chains or ())[0]
    put(data, (chain.instructions or ())[3].instr_args, "destination_instruction", target)

    assert findings(data) == []


def test_a_planned_buffer_of_a_device_has_to_be_one() -> None:
    sound, bad = schema.NonConstBufferDevice(1, 1, 0), schema.NonConstBufferDevice(2, 1, 0)

    assert of_value(schema.Null(), non_const_buffer_device=[sound]) == []
    assert [said[1:] for said in of_value(schema.Null(), non_const_buffer_device=[bad])] == [
        ("method 'f': planned buffer of a device", "an index below 2", "2")
    ]


def test_an_operator_without_a_name_and_no_chains_are_found() -> None:
    said = of_value(schema.Null(), operators=[schema.Operator()], chains=[])

    assert [what for _, what, _, _ in said] == [
        "method 'f': chains",
        "method 'f': operator without a name",
    ]


def test_findings_are_sorted_by_offset_and_of_every_method() -> None:
    def plan(name: str) -> schema.ExecutionPlan:
        return whole_plan(name=name, inputs=[3], outputs=[-1])

    said = findings(metadata(schema.Program(execution_plan=[plan("f"), plan("g")])))

    assert [offset for offset, _, _, _ in said] == sorted(offset for offset, _, _, _ in said)
    assert {what for _, what, _, _ in said} == {
        f"method '{name}': {what}: index of a value"
        for name in "fg"
        for what in ("inputs", "outputs")
    }


def test_only_the_first_bad_index_of_a_list_is_told_and_only_so_many_findings() -> None:
    lists = [schema.EValue(schema.IntList([0, 9, 8, 7])) for _ in range(3)]
    plans = [whole_plan(values=[schema.EValue(schema.Int(1)), *lists])]
    many = [whole_plan(values=[schema.EValue(schema.IntList([-1])) for _ in range(1200)])]

    said = findings(metadata(schema.Program(execution_plan=plans)))

    assert [actual for _, _, _, actual in said] == ["9", "9", "9"]
    assert len(findings(metadata(schema.Program(execution_plan=many)))) == MAX_FINDINGS


def test_an_unsound_flatbuffer_hides_no_finding_on_the_file() -> None:
    data = program() + b"more"
    place = data.index(b"forward\0")
    put_bytes(data, place, b"\xff")

    assert [(offset, what) for offset, what, _, _ in findings(data)] == [
        (place, "ExecutionPlan.name is not UTF-8"),
        (1412, "bytes after the last segment"),
    ]


def test_a_misplaced_segment_hides_no_finding_on_the_contents() -> None:
    data = program()
    put_header(data, segment_data_size=258)
    put_element(data, plan_of(data), "inputs", 0, 9)

    assert [what for _, what, _, _ in findings(data)] == [
        "method 'forward': inputs: index of a value",
        "segment 2 ends after the segment data",
        "bytes after the last segment",
    ]


def test_the_structure_may_be_sound_where_the_contents_are_not() -> None:
    data = program() + b"more"
    put_element(data, plan_of(data), "inputs", 0, 9)
    file = cb.open(bytes(data))

    file.check_structure()
    with pytest.raises(cb.FormatError, match=r"inputs: index of a value at offset \d+: found 9"):
        file.check()
    assert bytes(cb.PteEditor(file).finish().cord) == data


def test_tables_that_the_runtime_follows_unasked_are_found_missing() -> None:
    of_weights = findings(weights_with(ptd_schema.FlatTensor()))
    record = schema.Program(execution_plan=[whole_plan()], named_data=[])
    of_program = findings(metadata(record))

    assert [said[1:] for said in of_weights] == [
        ("FlatTensor.segments missing", "a vector", "none"),
        ("FlatTensor.named_data missing", "a vector", "none"),
    ]
    assert [said[1:] for said in of_program] == [
        ("named data without a table of segments", "a vector", "none")
    ]


def test_the_check_stops_at_so_many_findings_in_all() -> None:
    many = [whole_plan(values=[schema.EValue(schema.IntList([-1])) for _ in range(1200)])]

    assert len(findings(metadata(schema.Program(execution_plan=many)) + b"more")) == MAX_FINDINGS


@pytest.mark.parametrize("size", [23, 25])
def test_the_bytes_of_weights_are_neither_fewer_nor_more_than_their_sizes_ask_for(
    size: int,
) -> None:
    layout = ptd_schema.TensorLayout(6, [2, 3], [0, 1])
    entry, place = ptd_schema.NamedData("k", 0, layout), ptd_schema.DataSegment(0, size)
    data = weights_with(ptd_schema.FlatTensor(0, [place], [entry]), bytes(size))

    assert [said[1:] for said in findings(data)] == [
        ("key 'k': bytes of its segment", "24", str(size))
    ]
    with pytest.raises(cb.FormatError, match="has other bytes"):
        cb.load_ptd(bytes(data))


def test_padding_is_looked_at_everywhere_however_far_apart_it_is() -> None:
    blobs = {name: b"x" * 9000 for name in "abc"} | {"d": b"y"}
    data = bytearray(bytes(cb.serialize_ptd(blobs, segment_alignment=4096)))
    ends = [place.end for place in read(data).segment_ranges[:-1]]
    for end in ends:
        data[end + 5] = 1

    assert findings(data) == [(end + 5, "padding", "0", "1") for end in ends]


def test_padding_longer_than_any_alignment_is_not_read_in_programs() -> None:
    data = program()
    end, base = read(data).metadata_end, read(data).header.segment_base_offset
    put_header(data, segment_base_offset=end + (1 << 20))
    filled = data[:end] + b"x" * (1 << 20) + data[base:]

    assert findings(filled) == [(end, "padding", "0", "120")]
    put_header(filled, segment_base_offset=end + (1 << 20) + 1)
    assert findings(filled[:end] + b"x" + filled[end:]) == []


def test_names_are_shortened_in_findings() -> None:
    said = findings(
        metadata(schema.Program(execution_plan=[whole_plan(name="n" * 5000, inputs=[0])]))
    )

    assert all(len(what) < 200 for _, what, _, _ in said)
    assert said[0][1].startswith(f"method '{'n' * 80}...'")


def test_a_shape_is_worked_out_once() -> None:
    shapes = Shapes()
    facts = (6, (2, 3), (1, 0))

    assert shapes[facts] == (24, None)
    assert shapes[facts] is shapes[facts]
    assert shapes[6, (), ()].nbytes == 4
    assert shapes[0, (454279, 31252369, 649657), (0, 1, 2)].nbytes == 2**63 - 1
    assert shapes[6, (0, 2**31 - 1), (0, 1)].nbytes == 0


@pytest.mark.parametrize("make", [program, weights])
def test_the_command_prints_every_finding_with_place_found_and_expected(
    make: Callable[[], bytearray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("typer", reason="the command line needs the extra cli")
    data = make() + b"more"
    if make is program:
        view = value(data, 0)
        put_element(data, view, "sizes", 1, -1)
    else:
        view = entries(data)[1]
        put_bytes(data, target_at(view, "key") + 4, b"aa")
    path = tmp_path / "file"
    path.write_bytes(bytes(data))

    code = main(["verify", str(path)])

    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert lines[0].startswith(f"offset {position_of(view)}: ")
    assert lines[1] == (
        f"offset {len(data) - 4}: bytes after the last segment: found 4, expected none"
    )
    assert "2 findings" in lines[2]
