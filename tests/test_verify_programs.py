"""The findings of programs by themselves, word for word, and what is just allowed."""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, metadata, read, root, whole_plan, with_segments
from tests.support import peak, tensor

PLACE = schema.BackendDelegateDataReference


def said(plan: schema.ExecutionPlan, **more: object) -> list[str]:
    """Verify a program of one method; return what, found and expected of each finding."""
    record = schema.Program(execution_plan=[plan], **more)  # type: ignore[arg-type]  # by name
    data = with_segments(record, b"data") if more.get("segments") else metadata(record)
    return [f"{what}: found {found}, expected {room}" for _, what, room, found in findings(data)]


def holding(*values: schema.KernelTypes, **more: object) -> schema.ExecutionPlan:
    return whole_plan(values=[schema.EValue(value) for value in values], **more)


def external(location: int, name: str | None = None) -> schema.Tensor:
    return tensor([1], extra_tensor_info=schema.ExtraTensorInfo(0, name, location))


def planned(number: int, offset: int = 0, sizes: tuple[int, ...] = (1,)) -> schema.Tensor:
    return tensor([*sizes], allocation_info=schema.AllocationDetails(number, offset, 0))


def delegating(name: str, place: schema.BackendDelegateDataReference) -> schema.ExecutionPlan:
    return whole_plan(delegates=[schema.BackendDelegate(name, place, [])])


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (whole_plan(chains=[]), "chains: found none, expected one or more"),
        (
            whole_plan(operators=[schema.Operator(None, "")]),
            "operator without a name: found none, expected text",
        ),
    ],
)
def test_a_method_is_told_in_these_words(plan: schema.ExecutionPlan, text: str) -> None:
    assert said(plan) == [f"method 'f': {text}"]


def test_an_operator_behind_one_without_a_name_is_looked_at_too() -> None:
    operators = [schema.Operator(None, "out"), schema.Operator("n" * 96, "out")]

    assert said(whole_plan(operators=operators)) == [
        "method 'f': operator without a name: found none, expected text",
        f"method 'f': name of operator '{'n' * 80}...': found 100, expected at most 99 bytes",
    ]


NO_BUFFERS = "planned buffer does not exist: found 1, expected none, there are no planned buffers"


@pytest.mark.parametrize(
    ("value", "buffers", "text"),
    [
        (
            tensor([1], dynamism=7),
            [0],
            "unknown shape dynamism: found 7, expected 0, 1 or 2",
        ),
        (external(2), [0], "unknown location of data: found 2, expected 0 or 1"),
        (external(1), [0], "external data without a name: found None, expected text"),
        (external(1, ""), [0], "external data without a name: found '', expected text"),
        (planned(1), [0], NO_BUFFERS),
        (planned(1), [], NO_BUFFERS),
        (planned(2), [0, 4], "planned buffer does not exist: found 2, expected 1 to 1"),
        (
            tensor([1], data_buffer_idx=1),
            [0],
            "constant does not exist: found 1, expected an index below 1",
        ),
    ],
)
def test_a_value_is_told_in_these_words(
    value: schema.Tensor, buffers: list[int], text: str
) -> None:
    plan = holding(value, non_const_buffer_sizes=buffers)

    assert said(plan, constant_buffer=[schema.Buffer(b"")]) == [f"value 0 of method 'f': {text}"]


@pytest.mark.parametrize(
    ("name", "place", "text"),
    [
        ("", PLACE(0, 0), "backend without a name: found '', expected text"),
        ("b", PLACE(0, 1), "inline data does not exist: found 1, expected an index below 1"),
        ("b", PLACE(1, 1), "segment does not exist: found 1, expected an index below 1"),
    ],
)
def test_a_delegate_is_told_in_these_words(
    name: str, place: schema.BackendDelegateDataReference, text: str
) -> None:
    found = said(
        delegating(name, place),
        backend_delegate_data=[schema.BackendDelegateInlineData(b"x")],
        segments=[schema.DataSegment(0, 4)],
    )

    assert found == [f"delegate 0 of method 'f': {text}"]


def test_the_first_value_is_looked_at_as_the_others_are() -> None:
    calls = [schema.Instruction(schema.FreeCall(0))]
    plan = holding(schema.Int(1), chains=[schema.Chain([], [], calls)])

    assert said(plan) == [
        "instruction 0 of chain 0 of method 'f': value to free: kind of a value:"
        " found value 0 is Int, expected Tensor"
    ]


def test_what_is_just_allowed_has_no_finding() -> None:
    device = schema.NonConstBufferDevice(buffer_idx=0)

    assert said(whole_plan(non_const_buffer_device=[device])) == []
    assert said(holding(external(0))) == []
    assert said(holding(planned(1, 64, sizes=(0,)))) == []  # at the end of its buffer


def test_a_constant_segment_of_a_placeholder_alone_leaves_the_constants_where_they_are() -> None:
    found = said(
        holding(tensor([1], data_buffer_idx=1)),
        constant_buffer=[schema.Buffer(b""), schema.Buffer(b"\0" * 4)],
        constant_segment=schema.SubsegmentOffsets(0, [0]),
        segments=[schema.DataSegment(0, 4)],
    )

    assert found == []


def test_what_is_wrong_with_the_root_or_a_name_is_told_at_its_place() -> None:
    plans = [whole_plan(), whole_plan(name="")]
    record = schema.Program(execution_plan=plans, named_data=[])
    data = metadata(record)
    view: schema.Program = root(data)

    assert findings(data) == [
        (position_of(view), "named data without a table of segments", "a vector", "none"),
        (
            position_of((view.execution_plan or ())[1]),
            "name of a method",
            "a name without NUL",
            "''",
        ),
    ]


def test_a_constant_without_a_vector_has_no_byte() -> None:
    byte = schema.Tensor(1, 0, [1], [0], data_buffer_idx=1)

    assert said(holding(byte), constant_buffer=[schema.Buffer(b""), schema.Buffer()]) == [
        "value 0 of method 'f': constant is shorter than its sizes: found 0, expected 1 bytes"
    ]


def test_constants_are_not_copied() -> None:
    constants = [schema.Buffer(b""), schema.Buffer(bytes(4 << 20))]
    data = metadata(schema.Program(execution_plan=[whole_plan()], constant_buffer=constants))
    file = read(data)

    assert peak(file.verify) < 2 << 20


def test_findings_that_are_not_told_are_not_kept() -> None:
    table = [schema.DataSegment(0, 5) for _ in range(20000)]
    file = read(with_segments(schema.Program(execution_plan=[], segments=table), b"data"))
    assert len(file.segment_ranges) == 20000

    assert peak(file.verify) < 4 << 20
