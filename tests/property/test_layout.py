"""Layouts: what holds for any segments, and which blobs are shared."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from cordbundle.cord import Cord, Deferred, Fill
from cordbundle.layout import MAX_ALIGNMENT, Layout, Segment, align_up, share

PREFIX = 4

alignments = st.sampled_from([1, 2, 3, 4, 5, 6, 16, 24, 64, 100, 4096])
sizes = st.integers(0, 300) | st.integers(0, (1 << 32) - 1)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    """Draw a segment of any size; its bytes take no memory."""
    data = Cord.of(Fill(draw(sizes), 0xFF))
    return Segment(draw(st.text(max_size=3)), data, draw(alignments), draw(st.booleans()))


some = st.lists(segments(), min_size=1, max_size=12)
heads = st.integers(0, 300) | st.integers(0, 1 << 40)


def common(parts: list[Segment]) -> int:
    """Return the least common multiple of all alignments."""
    return math.lcm(*(part.alignment for part in parts))


def prefix(part: Segment) -> int:
    """Return how many bytes stand directly before a segment's data."""
    return PREFIX if part.length_prefix else 0


@given(parts=some, head_size=heads)
def test_every_segment_is_aligned_from_the_file_and_from_the_base(
    parts: list[Segment], head_size: int
) -> None:
    layout = Layout.plan(parts, head_size=head_size)

    for index, (part, place) in enumerate(zip(parts, layout.placements, strict=True)):
        assert place.offset % part.alignment == 0
        assert layout.relative(index) % part.alignment == 0
        assert layout.relative(index) == place.offset - layout.base


@given(parts=some, head_size=heads)
def test_the_base_is_a_multiple_of_all_alignments_and_begins_the_first_segment(
    parts: list[Segment], head_size: int
) -> None:
    layout = Layout.plan(parts, head_size=head_size)

    assert layout.base % common(parts) == 0
    assert layout.base == layout.placements[0].offset


@given(parts=some, head_size=heads)
def test_nothing_overlaps_and_every_byte_is_accounted_for(
    parts: list[Segment], head_size: int
) -> None:
    layout = Layout.plan(parts, head_size=head_size)

    end = head_size
    for part, place in zip(parts, layout.placements, strict=True):
        assert place.padding >= 0
        assert end + place.padding + prefix(part) == place.offset
        assert place.size == len(part.data)
        end = place.end
    assert layout.end == end
    assert layout.segment_data_size == end - layout.base


@given(parts=some, head_size=heads)
def test_padding_is_as_small_as_the_alignment_allows(parts: list[Segment], head_size: int) -> None:
    layout = Layout.plan(parts, head_size=head_size)

    assert layout.placements[0].padding < common(parts)
    for part, place in zip(parts[1:], layout.placements[1:], strict=True):
        assert place.padding < part.alignment


@given(parts=some, one=heads, other=heads)
def test_offsets_from_the_base_do_not_depend_on_the_head(
    parts: list[Segment], one: int, other: int
) -> None:
    first = Layout.plan(parts, head_size=one)
    second = Layout.plan(parts, head_size=other)

    relative = [first.relative(index) for index in range(len(parts))]
    assert relative == [second.relative(index) for index in range(len(parts))]
    assert first.segment_data_size == second.segment_data_size


@given(parts=some, head_size=heads)
def test_the_body_is_as_long_as_planned(parts: list[Segment], head_size: int) -> None:
    layout = Layout.plan(parts, head_size=head_size)

    assert len(layout.body()) == layout.end - head_size


@given(
    blobs=st.lists(st.tuples(st.binary(max_size=40), alignments, st.booleans()), max_size=8),
    head_size=st.integers(0, 200),
)
def test_the_body_holds_every_blob_at_its_place_and_zeros_between(
    blobs: list[tuple[bytes, int, bool]], head_size: int
) -> None:
    parts = [Segment("s", Cord(data), alignment, has) for data, alignment, has in blobs]
    layout = Layout.plan(parts, head_size=head_size)

    file = bytes(head_size) + bytes(layout.body())

    assert len(file) == layout.end
    expected = bytearray(len(file))
    for (data, _, has), place in zip(blobs, layout.placements, strict=True):
        if has:
            expected[place.offset - PREFIX : place.offset] = len(data).to_bytes(PREFIX, "little")
        expected[place.offset : place.end] = data
    assert file == expected


@given(offset=st.integers(0, 1 << 70), alignment=st.integers(1, MAX_ALIGNMENT))
def test_aligning_gives_the_nearest_multiple_above(offset: int, alignment: int) -> None:
    up = align_up(offset, alignment)

    assert up % alignment == 0
    assert offset <= up < offset + alignment


# Sharing -------------------------------------------------------------------------------------


class Produced(Deferred):
    """A deferred chunk of given bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data = data

    def produce(self) -> memoryview:
        return memoryview(self.data)


KEPT = [bytes(100), b"a" * 100, bytes(99) + b"a", bytes(64) + b"a" * 36, b"a" + bytes(99)]
"""Blobs that agree in size, and some in their first 64 bytes, held at one address for good."""


@st.composite
def held(draw: st.DrawFn) -> tuple[Cord, bytes]:
    """Draw a blob, often equal to others, held in one of many ways."""
    data = draw(st.sampled_from([*KEPT, b"", b"a", b"b", bytes(101)]) | st.binary(max_size=2))
    how = draw(st.sampled_from(["as it is", "copied", "cut", "deferred", "fill and memory"]))
    if how == "copied":
        return Cord(bytearray(data)), data
    if how == "cut":
        at = draw(st.integers(0, len(data)))
        return Cord(b"x" + data)[1 : 1 + at] + bytearray(data[at:]), data
    if how == "deferred":
        return Cord.of(Produced(data)), data
    if how == "fill and memory":
        zeros = len(data) - len(data.lstrip(b"\0"))
        return Cord.of(Fill(zeros)) + bytearray(data[zeros:]), data
    return Cord(data), data


@given(blobs=st.lists(st.tuples(held(), alignments, st.booleans()), max_size=12))
def test_equal_blobs_always_merge_and_different_ones_never(
    blobs: list[tuple[tuple[Cord, bytes], int, bool]],
) -> None:
    parts = [
        Segment(str(number), cord, alignment, has)
        for number, ((cord, _), alignment, has) in enumerate(blobs)
    ]
    contents = [data for (_, data), _, _ in blobs]

    shared = share(parts)

    distinct = list(dict.fromkeys(contents))
    assert [bytes(one.data) for one in shared.segments] == distinct
    assert list(shared.index) == [distinct.index(data) for data in contents]
    for number, one in enumerate(shared.segments):
        users = [parts[at] for at, blob in enumerate(shared.index) if blob == number]
        assert one.name == users[0].name
        assert one.data is users[0].data
        assert one.alignment == math.lcm(*(user.alignment for user in users))
        assert one.length_prefix is any(user.length_prefix for user in users)
