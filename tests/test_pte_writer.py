"""Writing `.pte` files: golden bytes, segments, what is shared, and what is refused."""

from __future__ import annotations

import copy
from array import array
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.cord import Cord, Fill

GOLDEN = (
    b"8\0\0\0ET12eh00 \0\0\0"
    b"\xc0\0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0"  # flatbuffer: 192 bytes; segments at 192
    b"\5\0\0\0\0\0\0\0\x10\0\x14\0\0\0\x10\0"  # 5 bytes of segments
    b"\f\0\0\0\b\0\4\0\x10\0\0\0\x18\0\0\0"
    b"<\0\0\0X\0\0\0X\0\0\0\b\0\b\0"
    b"\0\0\4\0\b\0\0\0\4\0\0\0\3\0\0\0"
    b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    b"\4\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0"
    b"\f\0\0\0\b\0\x10\0\0\0\4\0\b\0\0\0"
    b"\5\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
    b"\1\0\0\0\f\0\0\0\0\0\6\0\b\0\4\0"
    b"\6\0\0\0\4\0\0\0\1\0\0\0f\0\0\0"
    b"ab\0\0c"
)


def plan(*payloads: int, name: str = "f", location: int = 0) -> schema.ExecutionPlan:
    """Return a method whose delegates refer to these payloads."""
    return schema.ExecutionPlan(
        name=name,
        delegates=[
            schema.BackendDelegate("backend", schema.BackendDelegateDataReference(location, index))
            for index in payloads
        ],
    )


def program(
    *constants: object, payloads: tuple[object, ...] = (), plans: tuple[Any, ...] = (), **more: Any
) -> schema.Program:
    return schema.Program(
        execution_plan=list(plans or (schema.ExecutionPlan(name="f"),)),
        constant_buffer=[schema.Buffer(data) for data in constants],  # type: ignore[arg-type]
        backend_delegate_data=[schema.BackendDelegateInlineData(data) for data in payloads],  # type: ignore[arg-type]
        **more,
    )


def opened(cord: Cord) -> cb.PteFile:
    file = cb.open(cord)
    assert isinstance(file, cb.PteFile)
    file.check_structure()
    return file


def segments(file: cb.PteFile) -> list[bytes]:
    return [bytes(file.cord[s.offset : s.offset + s.size]) for s in file.segment_ranges]


def test_a_program_with_three_constants_has_these_bytes() -> None:
    given = schema.Program(
        execution_plan=[schema.ExecutionPlan(name="f")],
        constant_buffer=[schema.Buffer(b""), schema.Buffer(b"ab"), schema.Buffer(b"c")],
    )

    cord = cb.serialize_pte(
        given, segment_alignment=16, constant_tensor_alignment=4, delegate_alignment=4
    )

    assert bytes(cord) == GOLDEN


def test_the_program_that_was_given_is_not_changed() -> None:
    given = program(b"", b"abc", payloads=(b"one", b""), plans=(plan(0, 1),))
    before = copy.deepcopy(given)

    cb.serialize_pte(given, mutable_data=[schema.Buffer(b"x")])

    assert given == before


# Constants and mutable data ------------------------------------------------------------------


def test_constants_are_aligned_in_their_segment_without_padding_after_the_last() -> None:
    file = opened(cb.serialize_pte(program(b"", b"abc", b"defgh"), constant_tensor_alignment=64))

    table = file.program().constant_segment
    assert table is not None
    assert (table.segment_index, table.offsets) == (0, [0, 0, 64])
    assert segments(file) == [b"abc".ljust(64, b"\0") + b"defgh"]
    assert file.program().constant_buffer == []


def test_constants_are_aligned_from_the_start_of_the_file() -> None:
    cord = cb.serialize_pte(program(b"", b"abc"), segment_alignment=3, constant_tensor_alignment=64)

    assert opened(cord).segment_ranges[0].offset % (3 * 64) == 0


def test_a_program_without_constants_gets_the_offset_that_the_runtime_reads() -> None:
    file = opened(cb.serialize_pte(program()))

    table = file.program().constant_segment
    assert table is not None
    assert table.offsets == [0]
    assert file.header is None  # nothing follows the flatbuffer


def test_initial_data_of_mutable_tensors_is_packed_without_padding() -> None:
    data = [schema.Buffer(item) for item in (b"", b"abc", b"de")]
    file = opened(cb.serialize_pte(program(b"", b"c"), mutable_data=data))

    tables = file.program().mutable_data_segments
    assert tables is not None
    assert [(table.segment_index, table.offsets) for table in tables] == [(1, [0, 0, 3])]
    assert segments(file) == [b"c", b"abcde"]


def test_empty_mutable_data_is_left_out() -> None:
    file = opened(cb.serialize_pte(program(b"", b"c"), mutable_data=[schema.Buffer(b"")]))

    assert file.program().mutable_data_segments is None


@pytest.mark.parametrize("kind", ["bytes", "array", "path", "cord"])
def test_constants_come_from_anything_that_holds_bytes_by_reference(
    kind: str, tmp_path: Path
) -> None:
    numbers = array("f", range(3000))
    (tmp_path / "blob").write_bytes(numbers.tobytes())
    data = {
        "bytes": numbers.tobytes(),
        "array": numbers,
        "path": tmp_path / "blob",
        "cord": Cord(numbers),
    }[kind]

    assert segments(opened(cb.serialize_pte(program(b"", data)))) == [numbers.tobytes()]


def test_terabytes_of_constants_take_no_memory() -> None:
    cord = cb.serialize_pte(program(b"", *(Cord.of(Fill(1 << 40)) for _ in range(4))))

    assert len(cord) > 4 << 40


# Delegates -----------------------------------------------------------------------------------


def test_payloads_become_segments_equal_ones_one() -> None:
    file = opened(
        cb.serialize_pte(
            program(payloads=(b"one", b"two", b"one"), plans=(plan(0, 1), plan(2, name="g")))
        )
    )

    places = [d.processed for p in file.program().execution_plan or () for d in p.delegates or ()]
    assert [(p.location, p.index) for p in places if p] == [(1, 1), (1, 2), (1, 1)]
    assert segments(file) == [b"", b"one", b"two"]


def test_empty_payloads_stay_inline_under_new_numbers() -> None:
    file = opened(cb.serialize_pte(program(payloads=(b"one", b""), plans=(plan(0, 1),))))

    plans = file.program().execution_plan or ()
    places = [delegate.processed for delegate in plans[0].delegates or ()]
    assert [(p.location, p.index) for p in places if p] == [(1, 1), (0, 0)]
    assert [bytes(item.data or b"") for item in file.program().backend_delegate_data or ()] == [b""]


def test_payloads_stay_inline_aligned_and_by_reference_where_that_is_asked_for() -> None:
    payload = bytearray(b"p" * 10_000)
    cord = cb.serialize_pte(
        program(payloads=(payload,), plans=(plan(0),)),
        extract_delegate_segments=False,
        delegate_alignment=4096,
    )

    payload[0] = ord("q")

    assert cord.find(b"q" + b"p" * 9_999) % 4096 == 0


@pytest.mark.parametrize("extract", [True, False])
@pytest.mark.parametrize("index", [1, 2**32 - 1, -1])
def test_a_delegate_index_out_of_range_is_refused_by_name(index: int, extract: bool) -> None:
    given = program(payloads=(b"one",), plans=(plan(0, index),))

    with pytest.raises(cb.LayoutError, match=r"delegate 'backend' of method 'f': .* out of range"):
        cb.serialize_pte(given, extract_delegate_segments=extract)


def test_payloads_that_no_delegate_refers_to_are_refused() -> None:
    with pytest.raises(cb.LayoutError, match=r"no delegate refers to.*\[1\]"):
        cb.serialize_pte(program(payloads=(b"one", b"two"), plans=(plan(0),)))


def test_a_payload_that_is_in_a_segment_already_is_refused() -> None:
    with pytest.raises(cb.LayoutError, match="delegate data is not inline"):
        cb.serialize_pte(program(payloads=(b"one",), plans=(plan(0, location=1),)))


# Named data ----------------------------------------------------------------------------------


def stored(*items: tuple[str, bytes, int]) -> cb.NamedDataStoreOutput:
    store = cb.NamedDataStore()
    for key, data, alignment in items:
        store.add_named_data(key, data, alignment)
    store.add_named_data("outside", b"not stored", 1, "file")
    return store.get_named_data_store_output()


def test_named_data_are_segments_aligned_for_all_keys_and_external_data_is_left_out() -> None:
    named = stored(("a", b"one", 3), ("b", b"two", 512), ("c", b"one", 4096))
    file = opened(cb.serialize_pte(program(b"", b"k"), named_data=named))

    entries = [(e.key, e.segment_index) for e in file.program().named_data or ()]
    assert entries == [("a", 1), ("b", 2), ("c", 1)]
    assert segments(file) == [b"k", b"one", b"two"]
    assert file.segment_ranges[1].offset % (3 * 4096) == 0
    assert file.segment_ranges[2].offset % 512 == 0
    assert {key: bytes(blob) for key, blob in file.named_data.items()} == {
        "a": b"one",
        "b": b"two",
        "c": b"one",
    }


def test_an_empty_blob_that_is_alone_keeps_its_key() -> None:
    file = opened(cb.serialize_pte(program(), named_data=stored(("empty", b"", 1))))

    assert file.header is not None
    assert {key: bytes(blob) for key, blob in file.named_data.items()} == {"empty": b""}


def test_an_empty_first_segment_shares_its_offset_with_the_second() -> None:
    named = stored(("empty", b"", 1), ("full", b"x", 1))
    file = opened(cb.serialize_pte(program(b"", b"c"), named_data=named))

    _, empty, full = file.segment_ranges
    assert (empty.size, full.size) == (0, 1)
    assert empty.offset == full.offset


def test_a_program_with_named_data_or_segments_already_is_refused() -> None:
    with pytest.raises(cb.LayoutError, match="already has named data"):
        cb.serialize_pte(
            program(named_data=[schema.NamedData("a", 0)]), named_data=stored(("b", b"x", 1))
        )
    with pytest.raises(cb.LayoutError, match="already has segments"):
        cb.serialize_pte(program(segments=[schema.DataSegment(0, 1)]))


# Alignments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [1, 3, 100, 4096, 65536])
def test_every_segment_is_aligned_from_the_start_of_the_file(alignment: int) -> None:
    file = opened(
        cb.serialize_pte(
            program(b"", b"c", payloads=(b"one",), plans=(plan(0),)),
            mutable_data=[schema.Buffer(b"m")],
            named_data=stored(("a", b"named", 7)),
            segment_alignment=alignment,
        )
    )

    assert [place.offset % alignment for place in file.segment_ranges] == [0, 0, 0, 0]
    assert file.segment_ranges[3].offset % 7 == 0
    assert file.segment_ranges[3].offset + file.segment_ranges[3].size == len(file.cord)


@pytest.mark.parametrize("alignment", [0, -1, True, 1.5])
@pytest.mark.parametrize(
    "option", ["segment_alignment", "constant_tensor_alignment", "delegate_alignment"]
)
def test_an_alignment_that_is_no_positive_number_is_refused_by_name(
    option: str, alignment: object
) -> None:
    name = option.removesuffix("_alignment")
    with pytest.raises(cb.LayoutError, match=f"alignment of {name}"):
        cb.serialize_pte(program(b"", b"c"), **{option: alignment})  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["constant_tensor_alignment", "delegate_alignment"])
def test_an_alignment_inside_the_flatbuffer_has_to_be_a_power_of_two(option: str) -> None:
    with pytest.raises(cb.LayoutError, match="power of two"):
        cb.serialize_pte(program(b"", b"c"), **{option: 24})  # type: ignore[arg-type]


def test_alignments_whose_common_multiple_is_absurd_are_refused() -> None:
    named = stored(("a", b"one", 65536), ("b", b"two", 65537))
    with pytest.raises(cb.LayoutError, match="least common multiple of at most 1048576"):
        cb.serialize_pte(program(), named_data=named, segment_alignment=1)


def test_a_value_that_the_schema_cannot_hold_is_refused_by_its_field() -> None:
    huge = schema.ExecutionPlan(values=[schema.EValue(schema.Tensor(sizes=[2**31]))])
    with pytest.raises(cb.LayoutError, match=r"Tensor\.sizes\[0\] is no int32: found 2147483648"):
        cb.serialize_pte(program(plans=(huge,)))


def test_a_file_decodes_to_the_program_it_was_made_of() -> None:
    given = program(b"", b"abc", plans=(schema.ExecutionPlan(name="größe", inputs=[1, 2]),))

    file = opened(cb.serialize_pte(given))

    decoded = file.program()
    assert decoded.execution_plan == given.execution_plan
    assert decoded.segments == [schema.DataSegment(0, 3)]
