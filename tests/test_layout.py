"""Layouts: golden cases, what is refused, and which blobs are stored once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cordbundle import layout
from cordbundle.cord import Cord, Deferred, Fill
from cordbundle.errors import LayoutError, TooLargeError
from cordbundle.layout import (
    MAX_ALIGNMENT,
    Layout,
    Placement,
    Segment,
    align_up,
    aligned_offsets,
    check_alignment,
    offsets_from_base,
    share,
)


def segment(
    size: int, alignment: int = 1, *, length_prefix: bool = False, name: str = "s"
) -> Segment:
    return Segment(name, Cord.of(Fill(size, 0xAA)), alignment, length_prefix)


class Unreadable(Deferred):
    """A blob whose bytes must not be looked at."""

    def produce(self) -> memoryview:
        raise RuntimeError("the bytes were looked at")


# Where things stand --------------------------------------------------------------------------

GOLDEN = [
    pytest.param(0, [], 0, [], 0, id="nothing"),
    pytest.param(501, [], 0, [], 501, id="a head alone is not padded"),
    pytest.param(0, [segment(5, 16)], 0, [(0, 0)], 5, id="no head"),
    pytest.param(1, [segment(5, 16)], 16, [(16, 15)], 21, id="the base is aligned"),
    pytest.param(16, [segment(5, 16)], 16, [(16, 0)], 21, id="an aligned head is not padded"),
    pytest.param(
        10,
        [segment(3, 4), segment(1, 64), segment(2, 4)],
        64,
        [(64, 54), (128, 61), (132, 3)],
        134,
        id="the base is aligned to the largest, also when it comes later",
    ),
    pytest.param(
        10,
        [segment(1, 6), segment(1, 4)],
        12,
        [(12, 2), (16, 3)],
        17,
        id="the base is a common multiple where no alignment divides the other",
    ),
    pytest.param(
        12,
        [segment(3, 16, length_prefix=True)],
        16,
        [(16, 0)],
        19,
        id="a length prefix fits before the base",
    ),
    pytest.param(
        13,
        [segment(3, 16, length_prefix=True)],
        32,
        [(32, 15)],
        35,
        id="a length prefix that does not fit moves the base",
    ),
    pytest.param(
        0,
        [segment(4, 8), segment(5, 8, length_prefix=True), segment(5, 8, length_prefix=True)],
        0,
        [(0, 0), (8, 0), (24, 7)],
        29,
        id="a length prefix stands directly before its data",
    ),
    pytest.param(
        7,
        [segment(0, 16), segment(2, 16)],
        16,
        [(16, 9), (16, 0)],
        18,
        id="an empty segment takes no room",
    ),
    pytest.param(
        501,
        [segment(100, 64), segment(5000, 4096, length_prefix=True), segment(0, 16), segment(100)],
        4096,
        [(4096, 3595), (8192, 3992), (13200, 8), (13200, 0)],
        13300,
        id="a bundle",
    ),
    pytest.param(
        100,
        [segment(5 << 30, 64), segment(1, 4096)],
        4096,
        [(4096, 3996), (4096 + (5 << 30), 0)],
        4097 + (5 << 30),
        id="beyond 4 GiB",
    ),
]


@pytest.mark.parametrize(("head_size", "segments", "base", "places", "end"), GOLDEN)
def test_segments_stand_at_these_offsets_behind_this_padding(
    head_size: int, segments: list[Segment], base: int, places: list[tuple[int, int]], end: int
) -> None:
    plan = Layout.plan(segments, head_size=head_size)

    assert [(one.offset, one.padding) for one in plan.placements] == places
    assert (plan.head_size, plan.base, plan.end) == (head_size, base, end)
    assert plan.segment_data_size == (end - base if segments else 0)


@pytest.mark.parametrize(
    ("segments", "base", "end"), [([], 128, 128), ([segment(3, 16)], 128, 131)]
)
def test_a_base_can_be_asked_to_be_aligned_further(
    segments: list[Segment], base: int, end: int
) -> None:
    plan = Layout.plan(segments, head_size=10, base_alignment=128)

    assert (plan.base, plan.end, plan.segment_data_size) == (base, end, end - base)
    assert bytes(plan.body()) == bytes(118) + b"\xaa" * (end - base)


def test_a_base_is_a_common_multiple_of_what_was_asked_for_and_of_the_segments() -> None:
    assert Layout.plan([segment(1, 6)], head_size=1, base_alignment=16).base == 48


def test_offsets_from_the_base_are_known_before_the_head() -> None:
    parts = [segment(4, 8, length_prefix=True), segment(5, 8, length_prefix=True), segment(1, 3)]

    assert offsets_from_base(parts) == [0, 8, 15]


def test_runs_without_prefixes_stand_side_by_side_where_they_are_aligned() -> None:
    assert aligned_offsets([4, 5, 1], [4, 4, 4]) == [0, 4, 12]
    assert aligned_offsets([4, 5, 1], [4, 4, 4], [4, 4, 4]) == [0, 8, 20]


def test_what_is_kept_stands_as_far_behind_the_last_as_it_did() -> None:
    segments = [segment(4, 4), segment(4, 4), segment(4, 16)]

    kept = Layout.keep(segments, [0, 8, 4], head_size=10, base=16)

    assert [place.offset for place in kept.placements] == [16, 28, 32]  # the last is aligned anew


def test_what_is_aligned_anew_leaves_room_for_its_length() -> None:
    kept = Layout.keep([segment(4, 16, length_prefix=True)], [2], head_size=16, base=16)

    assert [place.offset for place in kept.placements] == [32]


def test_a_placement_repeats_what_was_asked_for() -> None:
    plan = Layout.plan([segment(5, 8, length_prefix=True, name="program")], head_size=1)

    assert plan.placements == (Placement("program", 8, 5, 8, 3, True),)
    assert plan.placements[0].end == 13


def test_offsets_can_be_asked_for_from_the_base() -> None:
    plan = Layout.plan([segment(3, 64), segment(1, 4)], head_size=10)

    assert [plan.relative(0), plan.relative(1)] == [0, 4]


def test_the_body_is_paddings_prefixes_and_data() -> None:
    plan = Layout.plan(
        [
            Segment("a", Cord(b"AB"), 4),
            Segment("b", Cord(b"C"), 8, length_prefix=True),
            Segment("c", Cord(), 2),
            Segment("d", Cord(b"DE"), 3),
        ],
        head_size=6,
    )

    assert bytes(plan.body()) == (
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00AB"
        b"\x00\x00\x01\x00\x00\x00C\x00\x00\x00DE"
    )


def test_the_body_holds_payload_by_reference() -> None:
    payload = Cord(b"A" * 100)

    body = Layout.plan([Segment("a", payload, 16)], head_size=1).body()

    assert body._chunks[-1] is payload._chunks[0]


def test_paddings_of_one_size_are_held_once() -> None:
    segments = [Segment("s", Cord(b"A" * size), 16) for size in (14, 14, 9, 9)]

    chunks = Layout.plan(segments, head_size=16).body().raw_chunks

    first, second, third = (chunk for chunk in chunks if isinstance(chunk, Fill))
    assert first is second
    assert [first.size, third.size] == [2, 7]


def test_a_layout_is_planned_without_looking_at_a_byte() -> None:
    plan = Layout.plan([Segment("a", Cord.of(Unreadable(100)), 16)], head_size=1)

    assert plan.end == 116
    assert len(plan.body()) == 115


def test_a_layout_is_plain_values_for_json() -> None:
    plan = Layout.plan([segment(5, 8, length_prefix=True, name="program")], head_size=1)

    assert json.loads(json.dumps(plan.to_json())) == {
        "head_size": 1,
        "segment_base_offset": 8,
        "segment_data_size": 5,
        "size": 13,
        "segments": [
            {
                "name": "program",
                "offset": 8,
                "size": 5,
                "alignment": 8,
                "padding": 3,
                "length_prefix": True,
            }
        ],
    }


def test_a_layout_prints_as_a_table() -> None:
    plan = Layout.plan([segment(5, 8, length_prefix=True, name="program")], head_size=1)

    assert str(plan).splitlines() == [
        "        offset           size   align  padding  name",
        "             0              1       1        0  header and metadata",
        "             8              5       8        3  program",
        "            13                                  end",
    ]


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [0, -1, -64, True, 1.5, "16", None, MAX_ALIGNMENT + 1])
def test_an_alignment_that_is_none_is_refused_by_name(alignment: object) -> None:
    bad = Segment("weight", Cord(b"a"), alignment)  # type: ignore[arg-type]

    with pytest.raises(LayoutError, match="alignment of weight cannot be honoured") as caught:
        Layout.plan([bad])

    assert caught.value.actual == repr(alignment)


@pytest.mark.parametrize("alignment", [1, 3, 100, 65536, MAX_ALIGNMENT])
def test_any_other_alignment_is_honoured(alignment: int) -> None:
    assert check_alignment(alignment, "weight") == alignment
    assert Layout.plan([segment(1, alignment)], head_size=1).base == alignment


@pytest.mark.parametrize("alignment", [3, 100, 24])
def test_only_a_power_of_two_passes_where_one_is_asked_for(alignment: int) -> None:
    with pytest.raises(LayoutError, match="expected a power of two from 1 to 1048576"):
        check_alignment(alignment, "program", power_of_two=True)

    assert check_alignment(4096, "program", power_of_two=True) == 4096


def test_one_is_the_smallest_power_of_two() -> None:
    assert check_alignment(1, "program", power_of_two=True) == 1


def test_where_any_alignment_would_do_the_message_asks_for_no_power_of_two() -> None:
    with pytest.raises(LayoutError) as caught:
        check_alignment(0, "weight")

    assert caught.value.expected == "a whole number of bytes from 1 to 1048576"


def test_alignments_whose_common_multiple_is_absurd_are_refused_by_name() -> None:
    with pytest.raises(LayoutError, match="1009 of odd cannot be honoured") as caught:
        Layout.plan([segment(1, 65536), segment(1, 1009, name="odd")])

    assert caught.value.actual == 65536 * 1009
    assert caught.value.expected == "a least common multiple of at most 1048576"


def test_a_common_multiple_of_exactly_one_mebibyte_is_honoured() -> None:
    assert Layout.plan([segment(1, MAX_ALIGNMENT), segment(1, 4096)], head_size=1).end == 1052673


def test_a_segment_too_large_for_its_length_prefix_is_refused_by_name() -> None:
    with pytest.raises(TooLargeError, match="program does not fit") as caught:
        Layout.plan([segment(1 << 32, 16, length_prefix=True, name="program")])

    assert caught.value.expected == "at most 4294967295 bytes"
    assert caught.value.actual == "4294967296 bytes"


def test_the_largest_length_prefix_is_written() -> None:
    body = Layout.plan([segment((1 << 32) - 1, 16, length_prefix=True)]).body()

    assert bytes(body[12:17]) == b"\xff\xff\xff\xff\xaa"


@pytest.mark.parametrize(
    ("offset", "alignment", "up"), [(0, 8, 0), (1, 8, 8), (8, 8, 8), (9, 3, 9), (10, 3, 12)]
)
def test_an_offset_is_aligned_upwards(offset: int, alignment: int, up: int) -> None:
    assert align_up(offset, alignment) == up


# Blobs stored once ---------------------------------------------------------------------------


def test_equal_blobs_are_stored_once_under_the_name_of_the_first() -> None:
    shared = share(
        [
            Segment("a", Cord(b"x" * 200)),
            Segment("b", Cord(b"y" * 200)),
            Segment("c", Cord(b"x" * 150) + b"x" * 50),
        ]
    )

    assert shared.index == (0, 1, 0)
    assert [one.name for one in shared.segments] == ["a", "b"]


def test_a_shared_blob_serves_all_alignments_and_prefixes_asked_for() -> None:
    blob = Cord(b"x" * 200)

    shared = share(
        [Segment("a", blob, 4), Segment("b", blob, 6, length_prefix=True), Segment("c", blob, 10)]
    )

    (one,) = shared.segments
    assert (one.name, one.alignment, one.length_prefix) == ("a", 60, True)


@pytest.mark.parametrize("alignment", [0, -1, True, 1.5])
def test_sharing_does_not_hide_an_alignment_that_cannot_be_honoured(alignment: object) -> None:
    blob = Cord(b"x" * 200)
    bad = Segment("bad", blob, alignment)  # type: ignore[arg-type]

    for segments in ([Segment("good", blob, 16), bad], [bad, Segment("good", blob, 16)]):
        with pytest.raises(LayoutError, match="alignment of bad cannot be honoured"):
            share(segments)


@pytest.mark.parametrize("differs_at", [0, 63, 64, 65, 150, 199])
def test_blobs_that_differ_in_one_byte_stay_two(differs_at: int) -> None:
    other = bytearray(200)
    other[differs_at] = 1

    shared = share([Segment("a", Cord(bytes(200))), Segment("b", Cord(bytes(other)))])

    assert shared.index == (0, 1)


def test_a_blob_that_begins_with_another_stays_its_own() -> None:
    shared = share([Segment("a", Cord(bytes(200))), Segment("b", Cord(bytes(201)))])

    assert shared.index == (0, 1)


def test_blobs_with_one_digest_and_different_bytes_stay_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No two blobs with one xxh3-128 are at hand, so here every blob has the same."""
    monkeypatch.setattr(layout, "_TRAITS", (*layout._TRAITS[:2], lambda data: bytes(16)))
    blobs = [Cord(bytes(100) + tail) for tail in (b"a", b"b", b"a", b"c", b"b")]

    shared = share([Segment("s", blob) for blob in blobs])

    assert shared.index == (0, 1, 0, 2, 1)


def test_blobs_with_other_digests_are_not_compared() -> None:
    class Digested(Cord):
        __slots__ = ()
        __hash__ = None  # as of a Cord

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("all bytes were compared")

    blobs = [Digested(bytes(100) + bytes([number])) for number in range(50)]

    shared = share([Segment("s", blob) for blob in blobs])

    assert shared.index == tuple(range(50))


def test_views_of_other_parts_of_one_buffer_stay_apart() -> None:
    buffer = memoryview(bytes(range(200)))

    shared = share(
        [
            Segment("a", Cord(buffer[:100])),
            Segment("b", Cord(buffer[100:])),
            Segment("c", Cord(buffer)[:100]),
        ]
    )

    assert shared.index == (0, 1, 0)


def test_empty_blobs_are_one() -> None:
    assert share([Segment("a", Cord()), Segment("b", Cord(b""))]).index == (0, 0)


def test_the_same_chunk_is_known_without_reading_it() -> None:
    blob = Cord.of(Unreadable(100))

    shared = share([Segment("a", blob), Segment("b", blob), Segment("c", Cord() + blob)])

    assert shared.index == (0, 0, 0)


def test_a_blob_of_a_size_of_its_own_is_not_read() -> None:
    shared = share([Segment(str(size), Cord.of(Unreadable(size))) for size in range(1, 50)])

    assert len(shared.segments) == 49


def test_only_the_first_64_bytes_are_read_of_blobs_that_differ_there() -> None:
    begins = [bytes(63) + bytes([number]) for number in range(50)]

    shared = share([Segment("s", Cord(begin) + Cord.of(Unreadable(100))) for begin in begins])

    assert shared.index == tuple(range(50))


def test_a_shared_blob_keeps_its_bytes() -> None:
    shared = share([Segment("a", Cord(b"same" * 50)), Segment("b", Cord(b"same" * 50), 16)])

    assert [bytes(one.data) for one in shared.segments] == [b"same" * 50]


def test_a_shared_empty_blob_keeps_all_the_files_that_may_grow(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_bytes(b"")

    shared = share([Segment(path.name, Cord.from_file(path)) for path in paths])

    assert len(shared.segments) == 1
    assert len(list(shared.segments[0].data.empty_sources)) == 2


def test_an_alignment_behind_two_equal_ones_is_honoured() -> None:
    planned = Layout.plan([segment(8, 16), segment(8, 16), segment(8, 64)], head_size=100)

    assert planned.base == 128


def test_a_layout_that_is_kept_knows_its_head_its_base_and_its_segments() -> None:
    segments = [segment(8), segment(8)]

    kept = Layout.keep(segments, [0, 4], head_size=100, base=128)

    assert (kept.head_size, kept.base, kept.segments) == (100, 128, tuple(segments))
