"""The frame of a file: header, size and segment table, each number at its edge, word for word."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cordbundle.flatbuffer import Finding
from cordbundle.headers import FLAT_TENSOR_HEADER, PROGRAM_HEADER, ExtendedHeader
from cordbundle.segment_check import SegmentRange, check_header, check_segments, gaps

HEAD = (48).to_bytes(4, "little") + b"ET12" + bytes(64)


def header(base: int = 128, size: int | None = 64, length: int = 32) -> ExtendedHeader:
    """Return the header of a program of 100 bytes of metadata."""
    return ExtendedHeader(0, 100, base, size, length=length)


HEADER = header()


def of_header(
    one: ExtendedHeader | None, size: int = 192, head: bytes = HEAD
) -> list[tuple[int, str, str, str]]:
    return words(check_header(one, PROGRAM_HEADER, head, size))


def of_segments(
    *places: tuple[int, int], one: ExtendedHeader | None = HEADER, size: int = 192
) -> list[tuple[int, str, str, str]]:
    ranges = [SegmentRange(*place) for place in places]
    return words(check_segments(ranges, one, PROGRAM_HEADER, HEAD, size))


def words(findings: Iterable[Finding]) -> list[tuple[int, str, str, str]]:
    """Return all that findings say: offset, what, expected, found."""
    return [(one.offset, one.what, one.expected, one.actual) for one in findings]


@pytest.mark.parametrize(
    ("one", "size"),
    [
        (header(), 192),
        (header(base=100, size=92), 192),
        (header(base=0, size=0), 100),
        (header(size=None), 10_000),
        (header(length=40), 192),
        (None, 192),
    ],
)
def test_a_sound_header_has_no_finding(one: ExtendedHeader | None, size: int) -> None:
    assert of_header(one, size) == []


def test_a_header_may_reach_up_to_the_root_table() -> None:
    assert of_header(header(length=41)) == [
        (0, "root table is inside the extended header", "49 or more", "48")
    ]


def test_a_base_one_byte_inside_the_metadata_is_found() -> None:
    assert of_header(header(base=99, size=93)) == [
        (24, "segment base is inside the metadata", "100 or more", "99")
    ]


def test_segment_data_without_a_base_is_found() -> None:
    assert of_header(header(base=0, size=1), 100) == [
        (32, "segment data without a segment base", "0", "1")
    ]


@pytest.mark.parametrize(
    ("one", "end"), [(header(), 192), (header(base=0, size=0), 100), (header(base=64, size=1), 100)]
)
def test_one_byte_after_the_end_is_found(one: ExtendedHeader, end: int) -> None:
    assert of_header(one, end + 1)[-1] == (end, "bytes after the last segment", "none", "1")


@pytest.mark.parametrize("magic", [b"eh01", b"FH01", b"bh00", b"zz99"])
def test_what_looks_like_a_header_and_is_none_is_found(magic: bytes) -> None:
    head = HEAD[:8] + magic + HEAD[12:]

    assert of_header(None, head=head) == [(8, "unknown extended header", "b'eh00'", repr(magic))]


@pytest.mark.parametrize("magic", [b"\x0c\0\x10\0", b"\x08\0\x0c\0", b"eh0\0", b"e\x0000", b"eha1"])
def test_what_a_flatbuffer_may_begin_with_is_no_header(magic: bytes) -> None:
    assert of_header(None, head=HEAD[:8] + magic + HEAD[12:]) == []


def test_fields_are_found_where_the_header_of_the_format_has_them() -> None:
    one = ExtendedHeader(48, 52, 99, 93, length=40)
    (finding,) = check_header(one, FLAT_TENSOR_HEADER, HEAD, 192)

    assert finding.offset == FLAT_TENSOR_HEADER.offset_of("segment_base_offset") == 32


@pytest.mark.parametrize(
    "places",
    [
        (),
        ((128, 64),),
        ((128, 10), (138, 54)),
        ((128, 0), (128, 64)),
        ((0, 0), (128, 64), (5, 0), (2**64, 0)),
        ((100, 92),),
    ],
)
def test_sound_segments_have_no_finding(places: tuple[tuple[int, int], ...]) -> None:
    assert of_segments(*places) == []


@pytest.mark.parametrize(
    ("place", "end", "missing"),
    [
        ((128, 65), 193, "1 byte"),
        ((128, 100), 228, "36 bytes"),
        ((1000, 8), 1008, "8 bytes"),
        ((2**64, 1), 2**64 + 1, "1 byte"),
    ],
)
def test_a_segment_after_the_file_is_told_with_the_bytes_that_are_missing(
    place: tuple[int, int], end: int, missing: str
) -> None:
    assert of_segments(place) == [
        (
            place[0],
            "segment 0 ends after the file",
            "an end at or before 192",
            f"an end at {end}, {missing} missing",
        )
    ]


@pytest.mark.parametrize(
    ("places", "what", "least"),
    [
        (((99, 1),), "segment 0 begins inside the metadata", 100),
        (((128, 32), (50, 8)), "segment 1 begins inside the metadata", 160),
        (((128, 10), (137, 5)), "segment 1 begins inside segment 0", 138),
        (((128, 10), (128, 10)), "segment 1 begins inside segment 0", 138),
        (((150, 10), (140, 11)), "segment 1 begins inside segment 0", 160),
        (((150, 10), (140, 10)), "segment 1 stands before segment 0", 160),
        (((100, 10), (100, 5)), "segment 1 begins inside segment 0", 110),
    ],
)
def test_a_segment_that_begins_too_early_is_told_by_what_it_is_in(
    places: tuple[tuple[int, int], ...], what: str, least: int
) -> None:
    begin = places[-1][0]

    assert of_segments(*places) == [(begin, what, f"a begin at or after {least}", str(begin))]


@pytest.mark.parametrize("size", [2, 38])  # well inside the first, and up to its end
def test_every_segment_is_held_against_the_one_that_reaches_furthest(size: int) -> None:
    assert of_segments((128, 40), (130, size), (150, 2)) == [
        (130, "segment 1 begins inside segment 0", "a begin at or after 168", "130"),
        (150, "segment 2 begins inside segment 0", "a begin at or after 168", "150"),
    ]


def test_the_segment_data_bounds_segments_where_the_header_gives_it() -> None:
    what = "segment 0 ends after the segment data"

    assert of_segments((128, 65), size=300) == [
        (128, what, "an end at or before 192", "an end at 193")
    ]
    assert of_segments((128, 65), one=header(size=None), size=193) == []
    assert of_segments((128, 1), one=header(size=0), size=129) == [
        (128, what, "an end at or before 128", "an end at 129")
    ]


def test_bytes_after_the_last_segment_are_found_where_no_header_gives_the_end() -> None:
    assert of_segments((128, 60), one=header(size=None)) == [
        (188, "bytes after the last segment", "none", "4")
    ]


def test_a_base_of_zero_is_found_where_there_are_segments_alone() -> None:
    none = header(base=0, size=0)

    assert of_segments((0, 0), one=none, size=100) == []
    assert of_segments((100, 4), one=none, size=104)[0] == (
        24,
        "segment base is 0 although there are segments",
        "1 or more",
        "0",
    )


def test_segments_without_a_header_have_no_place() -> None:
    what = "segments without an extended header to say where they begin"

    assert of_segments((0, 0), (128, 64), one=None) == [
        (8, what, "b'eh00'", r"b'\x00\x00\x00\x00'")
    ]
    assert of_segments((0, 0), one=None) == []


def test_a_gap_is_where_at_least_a_byte_is_between() -> None:
    touching = [SegmentRange(100, 28), SegmentRange(128, 10)]
    last = [SegmentRange(0, 0), SegmentRange(140, 52)]

    assert list(gaps(touching, HEADER)) == [(138, 192)]
    assert list(gaps([*touching, *last], HEADER)) == [(138, 140)]
