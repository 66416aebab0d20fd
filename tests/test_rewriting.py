"""Rewriting: the same file where nothing is asked for, and only what was asked for where it is."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.cord import FileRange
from cordbundle.flatbuffer import Reader, encode, position_of
from cordbundle.flatbuffer.patch import Patch, tables_of
from cordbundle.flatbuffer.schema import UInt32, UInt64
from cordbundle.headers import FLAT_TENSOR_HEADER, PROGRAM_HEADER, ExtendedHeader, insert_header

REAL = [
    "add.pte",
    "add_no_extended_header.pte",
    "bundled_program.bpte",
    "const_methods.pte",
    "dtypes.pte",
    "dynamic.pte",
    "keyword_spotting.pte",
    "linear.pte",
    "linear_constant_buffer.pte",
    "linear_old_schema.ptd",
    "lstm.pte",
    "multi.pte",
    "quantized.pte",
    "softmax.pte",
    "stories260k_qnn.pte",
    "tutorial_bundled_program.bp",
    "xor.ptd",
    "xor.pte",
]
EXAMPLES = ["conv_xnnpack", "counter", "dynamic", "mlp", "scalars", "two_methods"]


def opened(data: bytes | cb.Cord | Path) -> cb.PteFile:
    file = cb.open(data)
    assert isinstance(file, cb.PteFile)
    file.check_structure()
    return file


def editor(data: bytes | cb.Cord | Path) -> cb.PteEditor:
    return cb.PteEditor(cb.open(data))


def segments(data: bytes | cb.Cord) -> list[bytes]:
    return [bytes(segment) for segment in opened(data).segments]


def places(data: bytes | cb.Cord) -> list[tuple[int, int]]:
    return [(place.offset, place.size) for place in opened(data).segment_ranges]


def table(data: bytes | cb.Cord) -> list[tuple[int, int]]:
    """Return the segment table as it is stored."""
    return [(s.offset, s.size) for s in opened(data).program().segments or ()]


def tensor(index: int, sizes: Sequence[int]) -> schema.EValue:
    """Return a constant of bytes."""
    value = schema.Tensor(scalar_type=0, sizes=list(sizes), data_buffer_idx=index)
    return schema.EValue(value)


def stored(blobs: dict[str, bytes], alignment: int = 1) -> cb.NamedDataStoreOutput:
    store = cb.NamedDataStore()
    for key, data in blobs.items():
        store.add_named_data(key, data, alignment)
    return store.get_named_data_store_output()


PLAN = schema.ExecutionPlan(name="f", values=[tensor(1, [3]), tensor(1, [2]), tensor(2, [5])])


def made(
    *,
    named: dict[str, bytes] | None = None,
    constants: Sequence[bytes] = (b"", b"abc", b"defgh"),
    plans: Sequence[schema.ExecutionPlan] = (PLAN,),
    payloads: Sequence[bytes] = (),
    **options: Any,
) -> bytes:
    """Return a program with constants, and with named data in segments 1, 2, ..."""
    program = schema.Program(
        execution_plan=list(plans),
        constant_buffer=[schema.Buffer(data) for data in constants],
        backend_delegate_data=[schema.BackendDelegateInlineData(data) for data in payloads],
    )
    named = {"a": b"A" * 100, "b": b"B" * 200} if named is None else named
    store = stored(named) if named else None
    return bytes(cb.serialize_pte(program, named_data=store, **options))


def with_payloads(*payloads: bytes, alignment: int | None = None) -> bytes:
    """Return a program with inline payloads, of which method g uses the first one too."""

    def plan(name: str, *indices: int) -> schema.ExecutionPlan:
        places = (schema.BackendDelegateDataReference(0, index) for index in indices)
        return schema.ExecutionPlan(
            name=name, delegates=[schema.BackendDelegate("xnn", place) for place in places]
        )

    return made(
        plans=[plan("f", *range(len(payloads))), plan("g", 0)],
        payloads=payloads,
        extract_delegate_segments=False,
        delegate_alignment=alignment,
    )


def differing(old: bytes, new: bytes) -> set[int]:
    assert len(old) == len(new)
    return {at for at, (a, b) in enumerate(zip(old, new, strict=True)) if a != b}


# Unchanged -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_a_real_file_is_put_together_again_byte_for_byte(real_files: Path, name: str) -> None:
    data = (real_files / name).read_bytes()
    with cb.open(real_files / name) as file:
        found = cb.rewrite(file)

    assert bytes(found.cord) == data
    assert found.changes == ()
    assert found.layout.end == len(data)
    assert len(found.layout.segments) > 0 or name in (
        "add_no_extended_header.pte",
        "dtypes.pte",
        "linear.pte",
        "linear_constant_buffer.pte",
        "softmax.pte",
    )


def test_every_real_file_is_in_the_list(real_files: Path) -> None:
    assert sorted(path.name for path in real_files.iterdir() if path.suffix != ".md") == REAL


@pytest.mark.parametrize("name", [name for name in REAL if name.endswith(".pte")])
def test_an_editor_that_is_asked_for_nothing_gives_the_same_file(
    real_files: Path, name: str
) -> None:
    found = editor(real_files / name).finish()

    assert bytes(found.cord) == (real_files / name).read_bytes()
    assert found.changes == ()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_layout_of_an_unchanged_program_is_that_of_its_segment_table(
    examples: Path, name: str
) -> None:
    file = opened(examples / f"{name}.pte")
    found = cb.rewrite(file)

    assert file.header is not None
    assert bytes(found.cord) == (examples / f"{name}.pte").read_bytes()
    assert found.layout.base == file.header.segment_base_offset
    assert found.layout.segment_data_size == file.header.segment_data_size
    assert [(p.offset, p.size) for p in found.layout.placements] == [
        (place.offset, place.size) for place in file.segment_ranges if place.size
    ]


def test_bundles_of_every_form_are_put_together_again_byte_for_byte(examples: Path) -> None:
    case = cb.MethodTestCase([memoryview(bytes(32)).cast("f", (1, 8))])
    for form in ("bp08", "segmented", "detached"):
        suites = [cb.MethodTestSuite("forward", [case])]
        data = cb.bundle(
            examples / "mlp.pte",
            suites,
            form=form,
            named_data={"tokenizer": b"t" * 5000},
        )
        found = cb.rewrite(cb.open(data.cord))

        assert bytes(found.cord) == bytes(data.cord)
        assert [p.offset for p in found.layout.placements] == [
            p.offset for p in data.layout.placements
        ]


@dataclass(slots=True)
class OldWeights:
    """The root of weights in the first schema, without its tensors."""

    version: UInt32 = 0
    tensor_alignment: UInt32 = 0
    tensors: Sequence[schema.Null] | None = None
    segments: Sequence[schema.DataSegment] | None = None


def test_segments_of_weights_of_the_first_schema_are_placed_one_by_one() -> None:
    table = [schema.DataSegment(0, 4), schema.DataSegment(16, 3)]
    metadata = bytes(encode(OldWeights(0, 16, (), table), b"FT01").cord)
    base = 48 + len(metadata) + -len(metadata) % 16
    header = FLAT_TENSOR_HEADER.pack(ExtendedHeader(48, len(metadata), base, 19), 48)
    head = insert_header(metadata[:8], header) + metadata[8:]
    data = head.ljust(base, b"\0") + b"AAAA".ljust(16, b"\0") + b"BBB"

    found = cb.rewrite(cb.open(data))

    assert bytes(found.cord) == data
    assert [(p.offset, p.size) for p in found.layout.placements] == [(base, 4), (base + 16, 3)]


def test_the_segment_of_real_weights_of_the_first_schema_is_found(real_files: Path) -> None:
    with cb.open(real_files / "linear_old_schema.ptd") as file:
        layout = cb.rewrite(file).layout

    assert [(p.name, p.offset, p.size) for p in layout.placements] == [("segment 0", 272, 64)]


def test_bytes_in_gaps_and_after_the_end_are_kept() -> None:
    data = bytearray(made() + b"trailing")
    (first, size), (second, _), _ = places(bytes(data))
    data[first - 1] = data[first + size] = data[second - 2] = 0xEE

    found = editor(bytes(data)).finish()

    assert bytes(found.cord) == data
    assert [p.name for p in found.layout.placements] == [
        "segment 0 (constants)",
        "bytes before segment 1 (key 'a')",
        "segment 1 (key 'a')",
        "segment 2 (key 'b')",
        "bytes after the last segment",
    ]


def test_the_source_stays_referred_to_and_no_payload_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(made(named={"a": b"A" * 100_000}))
    edit = editor(path)
    edit.align_segments(4096)

    ranges = [chunk for chunk in edit.finish().cord._chunks if isinstance(chunk, FileRange)]

    assert (places(path.read_bytes())[1]) in [(chunk.offset, chunk.size) for chunk in ranges]


def test_segments_that_overlap_are_refused_by_name() -> None:
    data = bytearray(made())
    at = data.find(struct.pack("<Q", 200))
    data[at : at + 8] = struct.pack("<Q", 201)

    with pytest.raises(cb.FormatError, match="segment 2 ends after the file"):
        editor(bytes(data))
    with pytest.raises(cb.FormatError, match="segment 2 overlaps"):
        cb.rewrite(cb.open(bytes(data)))


def test_an_editor_takes_programs_alone() -> None:
    with pytest.raises(TypeError, match="no program"):
        editor(cb.serialize_ptd({"a": b"a"}))


# Segments ------------------------------------------------------------------------------------


def test_a_replacement_of_the_same_size_changes_these_bytes_alone() -> None:
    data = made()
    (_, _), (offset, size), _ = places(data)
    edit = editor(data)
    edit.replace_segment(1, b"Z" * 100)

    found = edit.finish()

    assert differing(data, bytes(found.cord)) == set(range(offset, offset + size))
    assert found.changes == ("segment 1 (key 'a'): data replaced, 100 bytes",)


def test_a_larger_segment_moves_what_follows_by_what_the_alignment_allows() -> None:
    data = made(segment_alignment=64)
    base = places(data)[0][0]
    assert table(data) == [(0, 21), (64, 100), (192, 200)]
    edit = editor(data)
    edit.replace_segment(1, b"Z" * 130)

    found = edit.finish()

    assert table(found.cord) == [(0, 21), (64, 130), (256, 200)]
    assert segments(found.cord) == [segments(data)[0], b"Z" * 130, b"B" * 200]
    assert found.changes == (
        "segment 1 (key 'a'): data replaced, 130 bytes",
        "segment data: 392 -> 456 bytes",
        "segment 1 (key 'a'): size 100 -> 130",
        f"segment 2 (key 'b'): offset {base + 192} -> {base + 256}",
        f"file: {base + 392} -> {base + 456} bytes",
    )


def test_a_smaller_segment_lets_what_follows_move_up() -> None:
    edit = editor(made(segment_alignment=64))
    edit.replace_segment(1, b"Z")

    assert table(edit.finish().cord) == [(0, 21), (64, 1), (128, 200)]


def test_a_segment_that_becomes_empty_stays_in_the_table() -> None:
    edit = editor(made(segment_alignment=64))
    edit.replace_segment(1, b"")

    found = edit.finish().cord

    assert table(found) == [(0, 21), (64, 0), (64, 200)]
    assert opened(found).named_data["a"] == b""


def test_the_last_segment_that_becomes_empty_is_inside_the_file() -> None:
    edit = editor(made(segment_alignment=64))
    edit.replace_segment(2, b"")

    found = edit.finish().cord

    assert table(found) == [(0, 21), (64, 100), (164, 0)]
    assert places(found)[2][0] == len(found)


def test_an_alignment_that_a_single_segment_has_is_kept() -> None:
    data = made(segment_alignment=16, named={"a": b"A" * 100})
    program = opened(data)
    assert program.header is not None
    store = cb.NamedDataStore()
    store.add_named_data("a", b"A" * 100)
    store.add_named_data("b", b"B" * 200, 4096)
    source = cb.serialize_pte(
        schema.Program(execution_plan=[PLAN], constant_buffer=[schema.Buffer(b"c" * 5)]),
        named_data=store.get_named_data_store_output(),
        segment_alignment=16,
    )
    assert places(source)[2][0] % 4096 == 0
    edit = editor(source)
    edit.replace_segment(1, b"Z" * 5000)

    moved = edit.finish().cord

    assert places(moved)[2][0] == places(source)[2][0] + 4096


def test_bytes_of_no_segment_move_along() -> None:
    data = bytearray(made(segment_alignment=64) + b"trailing")
    data[places(bytes(data))[1][0] - 1] = 0xEE
    edit = editor(bytes(data))
    edit.replace_segment(0, segments(bytes(data))[0])
    edit.replace_segment(1, b"Z" * 300)

    found = edit.finish()

    assert bytes(found.cord).endswith(b"B" * 200 + b"trailing")
    assert bytes(found.cord)[places(found.cord)[1][0] - 1] == 0xEE
    assert found.changes[-2].startswith("bytes after the last segment: offset ")


def test_the_size_of_a_segment_that_tensors_are_cut_from_cannot_change() -> None:
    with pytest.raises(cb.LayoutError, match="found 5 bytes, expected 21 bytes"):
        editor(made()).replace_segment(0, b"small")


@pytest.mark.parametrize("index", [-1, 3])
def test_a_segment_that_does_not_exist_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError, match="there are 0 to 2"):
        editor(made()).replace_segment(index, b"")


def test_a_value_that_is_not_stored_gets_a_table_behind_the_metadata() -> None:
    data = made(constants=(), named={"a": b"", "b": b"B"}, segment_alignment=64)
    assert table(data) == [(0, 0), (0, 0), (0, 1)]  # none of these zeros has a place
    edit = editor(data)
    edit.replace_named_data("a", b"Z" * 10)

    found = edit.finish()

    assert table(found.cord) == [(0, 0), (0, 10), (64, 1)]
    assert opened(found.cord).named_data == {"a": b"Z" * 10, "b": b"B"}
    assert any("bytes appended" in change for change in found.changes)


def test_metadata_that_grows_into_the_padding_moves_nothing() -> None:
    data = made(constants=(), named={"a": b"", "b": b"B"}, segment_alignment=4096)
    edit = editor(data)
    edit.move_in({"c": b"C"})

    found = edit.finish()

    assert places(found.cord)[:3] == places(data)
    assert not [change for change in found.changes if "segment base" in change]


def test_metadata_that_outgrows_the_padding_moves_the_base_to_a_multiple_of_all_alignments() -> (
    None
):
    data = made(segment_alignment=256)
    edit = editor(data)
    edit.move_in({f"key {number}": bytes([number]) for number in range(100)})

    found = edit.finish()

    old, new = places(data)[0][0], found.layout.base
    assert new % 256 == 0
    assert new > old
    assert f"segment base: {old} -> {new}" in found.changes
    assert table(found.cord)[:3] == table(data)


def test_an_empty_segment_between_others_moves_with_the_next() -> None:
    data = made(named={"a": b"A", "b": b"", "c": b"C"}, segment_alignment=64)
    assert table(data) == [(0, 21), (64, 1), (128, 0), (128, 1)]
    edit = editor(data)
    edit.replace_segment(1, b"Z" * 100)

    assert table(edit.finish().cord) == [(0, 21), (64, 100), (192, 0), (192, 1)]


def test_a_table_that_two_segments_share_is_changed_for_one_of_them() -> None:
    data = made()
    root = opened(data).root
    first = position_of((root.segments or ())[1])
    patch = Patch(cb.Cord(data))
    patch.set((root.segments or ())[1], offset=0, size=0)
    patch.point(tables_of(root, "segments")[2], first)
    shared = patch.finish()
    assert table(shared) == [(0, 21), (0, 0), (0, 0)]
    edit = editor(shared)
    edit.replace_named_data("a", b"Z" * 9)

    found = edit.finish().cord

    assert opened(found).named_data == {"a": b"Z" * 9, "b": b""}


# Alignment -----------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [4096, 16384, 100])
def test_a_raised_alignment_holds_from_the_start_of_the_file(alignment: int) -> None:
    data = made()
    edit = editor(data)
    edit.align_segments(alignment)

    found = edit.finish()

    assert [offset % alignment for offset, _ in places(found.cord)] == [0, 0, 0]
    assert [offset % 128 for offset, _ in places(found.cord)] == [0, 0, 0]
    assert found.layout.base % alignment == 0
    assert segments(found.cord) == segments(data)
    assert opened(found.cord).program().execution_plan == opened(data).program().execution_plan


def test_an_alignment_that_the_file_has_changes_nothing() -> None:
    data = made(segment_alignment=4096)
    edit = editor(data)
    edit.align_segments(64)
    edit.align_segments(4096)

    found = edit.finish()

    assert bytes(found.cord) == data
    assert found.changes == ()


def test_alignments_whose_common_multiple_is_absurd_are_refused() -> None:
    edit = editor(made())
    edit.align_segments(65536)
    edit.align_segments(65537)

    with pytest.raises(cb.LayoutError, match="1048576"):
        edit.finish()


@pytest.mark.parametrize("alignment", [0, -1, True, 1.5])
def test_an_alignment_that_is_no_positive_number_is_refused(alignment: Any) -> None:
    with pytest.raises(cb.LayoutError, match="alignment of segments"):
        editor(made()).align_segments(alignment)


def test_an_empty_first_segment_keeps_the_offset_of_the_second() -> None:
    edit = editor(made(constants=()))
    edit.align_segments(4096)

    (first, size), (second, _), _ = places(edit.finish().cord)

    assert (first, size) == (second, 0)


# Named data ----------------------------------------------------------------------------------


def test_named_data_that_is_moved_out_leaves_an_empty_segment() -> None:
    edit = editor(made(segment_alignment=64))
    moved = edit.move_out(["a"])

    found = edit.finish()

    assert {key: bytes(blob) for key, blob in moved.items()} == {"a": b"A" * 100}
    assert opened(found.cord).named_data == {"b": b"B" * 200}
    assert table(found.cord) == [(0, 21), (64, 0), (64, 200)]
    assert found.changes[0] == ("key 'a': moved out, 100 bytes; segment 1 (key 'a') is left empty")


def test_a_segment_stays_while_another_key_needs_it() -> None:
    data = made(named={"a": b"same", "b": b"same", "c": b"C"})
    edit = editor(data)
    first = edit.move_out(["b"])
    kept = edit.finish()
    edit.move_out(["a"])

    assert opened(kept.cord).named_data == {"a": b"same", "c": b"C"}
    assert places(kept.cord) == places(data)
    assert "stays for others" in kept.changes[0]
    assert first == {"b": b"same"}
    assert table(edit.finish().cord)[1][1] == 0


def test_nothing_is_moved_where_one_key_is_unknown() -> None:
    data = made()
    edit = editor(data)

    with pytest.raises(KeyError, match="nobody"):
        edit.move_out(["a", "nobody"])
    with pytest.raises(KeyError, match="nobody"):
        edit.replace_named_data("nobody", b"")
    with pytest.raises(TypeError, match="one string"):
        edit.move_out("ab")

    assert edit.finish().changes == ()


def test_blobs_go_out_to_weights_and_come_back() -> None:
    data = made()
    out = editor(data)
    weights = cb.serialize_ptd(out.move_out(["a", "b"]))
    alone = out.finish().cord
    assert opened(alone).named_data == {}

    back = editor(alone)
    with cb.open(weights) as file:
        assert isinstance(file, cb.PtdFile)
        back.move_in(file)
    found = back.finish().cord

    assert opened(found).named_data == opened(data).named_data
    assert table(found) == table(data)
    assert segments(found) == segments(data)


def test_blobs_that_are_moved_in_follow_the_others_and_equal_ones_share_a_segment() -> None:
    edit = editor(made(segment_alignment=64))
    edit.move_in({"c": b"new", "d": memoryview(b"other"), "e": b"new"}, alignment=512)

    found = edit.finish()

    entries = [(e.key, e.segment_index) for e in opened(found.cord).program().named_data or ()]
    assert entries == [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 3)]
    assert segments(found.cord)[3:] == [b"new", b"other"]
    assert [offset % 512 for offset, _ in places(found.cord)[3:]] == [0, 0]
    assert "key 'e': moved in, 3 bytes in segment 3 (key 'c')" in found.changes


def test_a_key_that_is_there_is_not_moved_in() -> None:
    edit = editor(made())

    with pytest.raises(cb.DuplicateKeyError, match="key 'b'"):
        edit.move_in({"new": b"x", "b": b"y"})

    assert edit.finish().changes == ()


def test_a_key_that_no_file_can_hold_is_not_moved_in() -> None:
    with pytest.raises(cb.LayoutError, match="key cannot be stored"):
        editor(made()).move_in({"": b"x"})


def test_metadata_without_a_place_for_named_data_is_encoded_anew_and_says_so() -> None:
    data = made(named={})
    program = opened(data).program()
    edit = editor(data)
    edit.move_in({"c": b"C"})

    found = edit.finish()

    assert opened(found.cord).named_data == {"c": b"C"}
    assert opened(found.cord).program().execution_plan == program.execution_plan
    assert "encoded anew, since its root table has no place for named_data" in found.changes[1]
    assert segments(found.cord) == [*segments(data), b"C"]


def test_a_program_without_a_header_gets_one() -> None:
    data = made(named={}, constants=())
    assert opened(data).header is None
    edit = editor(data)
    edit.replace_segment(0, b"not constants")

    found = edit.finish()

    header = opened(found.cord).header
    assert header is not None
    assert (header.flatbuffer_size, header.length) == (found.layout.head_size, 32)
    assert segments(found.cord) == [b"not constants"]
    assert "extended header: added, 32 bytes" in found.changes
    assert opened(found.cord).program().execution_plan == opened(data).program().execution_plan


def test_replaced_named_data_leaves_what_shares_its_segment() -> None:
    edit = editor(made(named={"a": b"same", "b": b"same"}))
    edit.replace_named_data("b", b"longer than before")

    found = edit.finish()

    assert opened(found.cord).named_data == {"a": b"same", "b": b"longer than before"}
    assert found.changes[0] == (
        "key 'b': data replaced, 18 bytes; segment 1 (key 'a', key 'b') stays as it is"
    )


def shared_with_a_delegate() -> cb.Cord:
    """Return a program in which key "a" names the segment of a delegate."""
    place = schema.BackendDelegateDataReference(0, 0)
    plan = schema.ExecutionPlan(name="f", delegates=[schema.BackendDelegate("xnn", place)])
    data = made(plans=[plan], payloads=(b"payload",), named={"a": b"A"})
    patch = Patch(cb.Cord(data))
    entry = (opened(data).root.named_data or ())[0]
    assert patch.set(entry, segment_index=1)
    return patch.finish()


def test_a_segment_stays_while_a_delegate_needs_it() -> None:
    out, replaced = editor(shared_with_a_delegate()), editor(shared_with_a_delegate())
    out.move_out(["a"])
    replaced.replace_named_data("a", b"new")

    assert segments(out.finish().cord)[1] == b"payload"
    assert segments(replaced.finish().cord)[1] == b"payload"
    assert opened(replaced.finish().cord).named_data == {"a": b"new"}


# Constants -----------------------------------------------------------------------------------


def test_a_constant_is_replaced_in_its_segment() -> None:
    data = made()
    base = places(data)[0][0]
    edit = editor(data)
    edit.replace_constant(2, b"12345")

    found = edit.finish()

    assert differing(data, bytes(found.cord)) == set(range(base + 16, base + 21))
    assert found.changes == (f"constant 2: data replaced, 5 bytes at offset {base + 16}",)


def inline_constants(*buffers: bytes) -> bytes:
    """Return a program of the old kind, with constants in the metadata and no segments."""
    program = schema.Program(
        execution_plan=[PLAN], constant_buffer=[schema.Buffer(data) for data in buffers]
    )
    return bytes(encode(program, schema.PROGRAM_IDENTIFIER).cord)


def test_a_constant_is_replaced_inside_the_metadata() -> None:
    data = inline_constants(b"", b"abc", b"defgh")
    edit = editor(data)
    edit.replace_constant(2, b"12345")

    found = edit.finish()

    start = data.index(b"defgh")
    assert differing(data, bytes(found.cord)) == set(range(start, start + 5))
    assert found.changes == (f"constant 2: data replaced, 5 bytes at offset {start}",)


@pytest.mark.parametrize("data", [b"", b"1234", b"123456"])
def test_a_constant_of_another_size_than_its_tensors_need_is_refused(data: bytes) -> None:
    expected = f"constant 2 .*found {len(data)} bytes, expected 5 bytes"
    with pytest.raises(cb.LayoutError, match=expected):
        editor(made()).replace_constant(2, data)


def test_a_constant_is_as_large_as_the_largest_tensor_that_refers_to_it() -> None:
    edit = editor(made())
    edit.replace_constant(1, b"xyz")

    assert segments(edit.finish().cord)[0].startswith(b"xyz\0")


@pytest.mark.parametrize("index", [-1, 0, 3])
def test_a_constant_that_does_not_exist_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError, match="there are 1 to 2"):
        editor(made()).replace_constant(index, b"")


def test_a_constant_that_no_tensor_refers_to_is_refused() -> None:
    with pytest.raises(cb.LayoutError, match="no tensor refers to it"):
        editor(made(constants=(b"", b"abc", b"defgh", b"unused"))).replace_constant(3, b"unused")


def test_a_tensor_with_planned_memory_says_nothing_about_constants() -> None:
    planned = schema.Tensor(
        scalar_type=0, sizes=[9], data_buffer_idx=1, allocation_info=schema.AllocationDetails(1)
    )
    plan = schema.ExecutionPlan(name="f", values=[*(PLAN.values or ()), schema.EValue(planned)])
    edit = editor(made(plans=[plan]))
    edit.replace_constant(1, b"xyz")

    assert edit.finish().changes[0].startswith("constant 1: data replaced, 3 bytes")


def test_a_constant_that_is_stored_too_short_is_refused() -> None:
    with pytest.raises(cb.FormatError, match="constant 2 passes the end"):
        editor(inline_constants(b"", b"abc", b"def")).replace_constant(2, b"12345")


# Delegates -----------------------------------------------------------------------------------


def test_payloads_become_segments_and_equal_ones_become_one() -> None:
    data = with_payloads(b"one" * 50, b"two" * 50, b"one" * 50)
    edit = editor(data)
    edit.extract_delegates()

    found = edit.finish()

    methods = opened(found.cord).methods
    assert [[d.segment for d in m.delegates] for m in methods.values()] == [[3, 4, 3], [3]]
    assert segments(found.cord) == [*segments(data), b"one" * 50, b"two" * 50]
    assert opened(found.cord).named_data == opened(data).named_data
    assert opened(found.cord).program().backend_delegate_data == []
    assert found.changes[1] == (
        "delegate 'xnn' of method 'f': payload moved from the metadata, 150 bytes, to"
        " segment 4 (delegate 'xnn' of method 'f')"
    )
    assert "metadata: encoded anew, since delegate payloads are taken out" in found.changes[4]


def test_payloads_that_are_empty_or_nobodys_stay_under_new_numbers() -> None:
    edit = editor(with_payloads(b"one", b"", b"three"))
    edit.extract_delegates()
    edit.extract_delegates()  # the second one finds nothing

    program = opened(edit.finish().cord).program()

    plan = (program.execution_plan or ())[0]
    found = [delegate.processed for delegate in plan.delegates or ()]
    assert [(p.location, p.index) for p in found if p] == [(1, 3), (0, 0), (1, 4)]
    assert program.backend_delegate_data == [schema.BackendDelegateInlineData(b"")]


def test_payloads_are_moved_without_a_copy_and_keep_their_alignment() -> None:
    data = memoryview(with_payloads(b"p" * 100_000, alignment=1024))
    start = bytes(data).index(b"p" * 100)
    edit = cb.PteEditor(cb.open(data))
    edit.extract_delegates()

    found = edit.finish()

    (segment,) = found.layout.segments[3:]
    assert segment.data.identity() == cb.Cord(data)[start : start + 100_000].identity()
    assert found.layout.placements[3].offset % 1024 == 0
    assert len(found.cord) < len(data) + 8192


def test_payloads_that_stay_inline_are_not_copied_by_changes_around_them() -> None:
    data = memoryview(with_payloads(b"p" * 100_000))
    edit = cb.PteEditor(cb.open(data))
    edit.replace_segment(1, b"Z" * 1000)

    chunks = [c for c in edit.finish().cord._chunks if isinstance(c, memoryview)]

    assert max(chunk.nbytes for chunk in chunks if chunk.obj is data.obj) > 100_000
    assert sum(chunk.nbytes for chunk in chunks if chunk.obj is not data.obj) < 10_000


def test_metadata_that_is_encoded_anew_keeps_a_negative_zero() -> None:
    place = schema.BackendDelegateDataReference(0, 0)
    plan = schema.ExecutionPlan(
        name="f",
        values=[schema.EValue(schema.Double(-0.0))],
        delegates=[schema.BackendDelegate("xnn", place)],
    )
    program = schema.Program(
        execution_plan=[plan], backend_delegate_data=[schema.BackendDelegateInlineData(b"p")]
    )
    edit = editor(encode(program, schema.PROGRAM_IDENTIFIER, signed_zero=True).cord)
    edit.extract_delegates()

    (method,) = opened(edit.finish().cord).program().execution_plan or ()

    assert repr((method.values or ())[0].val) == "Double(double_val=-0.0)"


def test_a_program_without_inline_payloads_stays_the_same() -> None:
    data = made()
    edit = editor(data)
    edit.extract_delegates()

    assert bytes(edit.finish().cord) == data


# Old headers, newer schemas ------------------------------------------------------------------


def short_header(data: bytes) -> bytes:
    """Return a program whose header is that of before ExecuTorch 1.0."""
    return data[:12] + struct.pack("<I", 24) + data[16:32] + bytes(8) + data[40:]


def test_a_header_of_24_bytes_stays_one() -> None:
    data = short_header(made())
    edit = editor(data)
    edit.replace_segment(2, b"Z")

    found = edit.finish()

    header = opened(found.cord).header
    assert header is not None
    assert (header.length, header.segment_data_size) == (24, None)
    assert bytes(found.cord)[32:40] == bytes(8)


@dataclass(slots=True)
class NewerSegment:
    """A segment of a schema to come."""

    offset: UInt64 = 0
    size: UInt64 = 0
    checksum: UInt32 = 0


@dataclass(slots=True)
class NewerProgram:
    """A program of a schema to come."""

    version: UInt32 = 0
    execution_plan: Sequence[schema.ExecutionPlan] | None = None
    constant_buffer: Sequence[schema.Buffer] | None = None
    backend_delegate_data: Sequence[schema.BackendDelegateInlineData] | None = None
    segments: Sequence[NewerSegment] | None = None
    constant_segment: schema.SubsegmentOffsets | None = None
    mutable_data_segments: Sequence[schema.SubsegmentOffsets] | None = None
    named_data: Sequence[schema.NamedData] | None = None


def newer(second: bytes = b"BBBB") -> bytes:
    """Return a program of a newer schema, whose two segments have checksums."""
    place = schema.BackendDelegateDataReference(0, 0)
    plan = schema.ExecutionPlan(name="f", delegates=[schema.BackendDelegate("xnn", place)])
    program = NewerProgram(
        execution_plan=[plan],
        backend_delegate_data=[schema.BackendDelegateInlineData(b"payload")],
        segments=[NewerSegment(0, 4, 7), NewerSegment(64, len(second), 8)],
        named_data=[schema.NamedData("a", 0), schema.NamedData("b", 1)],
    )
    metadata = bytes(encode(program, schema.PROGRAM_IDENTIFIER).cord)
    size = len(metadata) + 32
    base = size + -size % 64
    header = PROGRAM_HEADER.pack(ExtendedHeader(0, size, base, 64 + len(second)), 32)
    head = insert_header(metadata[:8], header) + metadata[8:]
    return head.ljust(base, b"\0") + b"AAAA".ljust(64, b"\0") + second


def checksums(data: cb.Cord) -> list[int]:
    root = Reader(data).root(NewerProgram)
    return [segment.checksum for segment in root.segments or ()]


def test_fields_of_a_newer_schema_survive_a_change_in_place() -> None:
    edit = editor(newer())
    edit.replace_segment(0, b"A" * 100)

    found = edit.finish().cord

    assert table(found) == [(0, 100), (128, 4)]
    assert checksums(found) == [7, 8]


def test_fields_of_a_newer_schema_that_would_be_lost_are_refused_by_name() -> None:
    edit = editor(newer())
    edit.move_in({"c": b"C"})

    with pytest.raises(cb.LayoutError, match="fields of a newer schema in table DataSegment"):
        edit.finish()


def test_metadata_of_a_newer_schema_is_not_encoded_anew() -> None:
    edit = editor(newer())
    edit.extract_delegates()

    with pytest.raises(cb.LayoutError, match="fields of a newer schema in table DataSegment"):
        edit.finish()


def test_a_table_of_a_newer_schema_that_lacks_a_place_for_a_value_is_not_replaced() -> None:
    edit = editor(newer(second=b""))
    edit.replace_segment(1, b"B")  # its size was 0, which is not stored

    with pytest.raises(cb.LayoutError, match="fields of a newer schema in table DataSegment"):
        edit.finish()


def test_a_base_inside_the_metadata_is_kept_or_moved_behind_it() -> None:
    named = [schema.NamedData("a", 0), schema.NamedData("b", 1)]
    table_of_segments = [schema.DataSegment(512, 4), schema.DataSegment(576, 4)]
    metadata = bytes(
        encode(schema.Program(segments=table_of_segments, named_data=named), b"ET12").cord
    )
    header = PROGRAM_HEADER.pack(ExtendedHeader(0, len(metadata) + 32, 0, 580), 32)
    head = insert_header(metadata[:8], header) + metadata[8:]
    data = head.ljust(512, b"\0") + b"AAAA".ljust(64, b"\0") + b"BBBB"
    edit = editor(data)
    assert bytes(edit.finish().cord) == data

    edit.move_in({f"key {number}": bytes([number]) for number in range(9)})
    found = edit.finish()

    assert segments(found.cord)[:2] == [b"AAAA", b"BBBB"]
    assert found.layout.base >= found.layout.head_size


def test_what_stands_between_two_writes_far_apart_is_not_copied() -> None:
    source = memoryview(bytes(100_000))
    patch = Patch(cb.Cord(source))
    patch.write(99_990, b"late")
    patch.write(10, b"early")
    patch.write(20, b"near")

    found = patch.finish()

    assert bytes(found) == (
        bytes(10) + b"early" + bytes(5) + b"near" + bytes(99_966) + b"late" + bytes(6)
    )
    views = [memoryview(chunk) for chunk in found._chunks if isinstance(chunk, bytes | memoryview)]
    copied = [view for view in views if view.obj is not source.obj]
    assert [view.nbytes for view in copied] == [14, 4]


# Use -----------------------------------------------------------------------------------------


def test_an_editor_outlives_its_file_and_finishes_again(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(made())
    with cb.open(tmp_path / "m.pte") as file:
        edit = cb.PteEditor(file)
    first = edit.finish()
    edit.replace_segment(1, b"Z")
    second = edit.finish()

    second.write(tmp_path / "new.pte")

    assert bytes(first.cord) == made()
    assert (tmp_path / "new.pte").read_bytes() == bytes(second.cord)
    assert len(second) == len(second.cord) == second.layout.end


def test_padding_of_the_source_does_not_grow_with_changes() -> None:
    data = made(segment_alignment=65536)
    edit = editor(data)
    edit.move_in({f"key {number}": b"x" for number in range(20)}, alignment=1)

    found = edit.finish()

    assert len(found) < len(data) + 65536
