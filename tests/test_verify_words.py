"""The checks of segments, headers and records by themselves: every finding word for word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cordbundle.headers import HEAD_SIZE, PROGRAM_HEADER, ExtendedHeader
from cordbundle.record_check import Shapes, check_keys, shape_problem, shown
from cordbundle.segment_check import SegmentRange, check_header, check_segments

HEADER = ExtendedHeader(0, 100, 128, 64, length=32)
HEAD = (b"\x40\0\0\0ET12eh00" + bytes(60))[:HEAD_SIZE]


def segments(
    *places: tuple[int, int], header: ExtendedHeader | None = HEADER, size: int = 192
) -> list[str]:
    ranges = [SegmentRange(*place) for place in places]
    return [str(one) for one in check_segments(ranges, header, PROGRAM_HEADER, HEAD, size)]


def header(given: ExtendedHeader | None, size: int = 192, head: bytes = HEAD) -> list[str]:
    return [str(one) for one in check_header(given, PROGRAM_HEADER, head, size)]


# Segments ------------------------------------------------------------------------------------


def test_segments_up_to_both_limits_are_sound() -> None:
    assert segments((128, 32), (160, 32)) == []
    assert segments((100, 1), size=192) == []  # from the end of the metadata on
    assert segments((128, 64), header=replace(HEADER, segment_data_size=None)) == []
    assert segments((128, 0), (0, 0), (999, 0), header=None) == []  # empty: nowhere


def test_a_segment_after_the_file_is_told_with_the_bytes_that_are_missing() -> None:
    assert segments((160, 33)) == [
        "offset 160: segment 0 ends after the file: found an end at 193, 1 byte missing,"
        " expected an end at or before 192"
    ]
    assert segments((1000, 8)) == [
        "offset 1000: segment 0 ends after the file: found an end at 1008, 8 bytes missing,"
        " expected an end at or before 192"
    ]


def test_a_segment_after_the_segment_data_is_told_from_one_after_the_file() -> None:
    assert segments((160, 33), size=193) == [
        "offset 160: segment 0 ends after the segment data: found an end at 193,"
        " expected an end at or before 192"
    ]


def test_a_segment_that_begins_too_early_is_told_by_what_it_is_in() -> None:
    begins = "found 140, expected a begin at or after"

    assert segments((99, 8)) == [
        "offset 99: segment 0 begins inside the metadata: found 99,"
        " expected a begin at or after 100"
    ]
    assert segments((128, 32), (140, 8)) == [
        f"offset 140: segment 1 begins inside segment 0: {begins} 160"
    ]
    assert segments((160, 32), (140, 20)) == [
        f"offset 140: segment 1 stands before segment 0: {begins} 192"
    ]
    assert segments((160, 32), (140, 21)) == [
        f"offset 140: segment 1 begins inside segment 0: {begins} 192"
    ]
    assert segments((128, 32), (50, 8)) == [
        "offset 50: segment 1 begins inside the metadata: found 50,"
        " expected a begin at or after 160"
    ]
    assert segments((128, 32), (130, 30), (140, 8))[1] == (
        f"offset 140: segment 2 begins inside segment 0: {begins} 160"
    )
    assert segments((128, 40), (130, 2), (140, 8)) == [
        "offset 130: segment 1 begins inside segment 0: found 130,"
        " expected a begin at or after 168",
        f"offset 140: segment 2 begins inside segment 0: {begins} 168",
    ]


def test_segments_need_a_header_and_a_base() -> None:
    without_base = replace(HEADER, segment_base_offset=0, segment_data_size=None)

    assert segments((128, 64), header=None) == [
        "offset 8: segments without an extended header to say where they begin: found b'eh00',"
        " expected b'eh00'"
    ]
    (text,) = segments((128, 64), header=without_base)
    assert text.startswith("offset 24: ")
    assert text.endswith("found 0, expected 1 or more")


def test_bytes_after_the_last_segment_are_told_where_the_header_has_no_size() -> None:
    old = replace(HEADER, segment_data_size=None, length=24)

    assert segments((128, 60), header=old) == [
        "offset 188: bytes after the last segment: found 4, expected none"
    ]


# Headers -------------------------------------------------------------------------------------


def test_a_header_that_fits_its_file_is_sound() -> None:
    assert header(HEADER) == header(replace(HEADER, segment_base_offset=100), 164) == []
    assert header(None, head=HEAD[:8] + bytes(64)) == []
    assert header(HEADER, head=b"\x28\0\0\0" + HEAD[4:]) == []  # the root directly behind it


@pytest.mark.parametrize(
    ("given", "size", "text"),
    [
        (
            replace(HEADER, segment_base_offset=0),
            100,
            "offset 32: segment data without a segment base: found 64, expected 0",
        ),
        (
            replace(HEADER, segment_base_offset=99),
            163,
            "offset 24: segment base is inside the metadata: found 99, expected 100 or more",
        ),
        (HEADER, 193, "offset 192: bytes after the last segment: found 1, expected none"),
    ],
)
def test_a_header_that_does_not_fit_is_told(given: ExtendedHeader, size: int, text: str) -> None:
    assert header(given, size) == [text]


def test_a_root_inside_the_header_and_an_unknown_header_are_told() -> None:
    assert header(HEADER, head=b"\x27\0\0\0" + HEAD[4:]) == [
        "offset 0: root table is inside the extended header: found 39, expected 40 or more"
    ]
    assert header(None, head=HEAD[:8] + b"eha1" + bytes(60)) == []
    assert header(None, head=HEAD[:8] + b"eh01" + bytes(60)) == [
        "offset 8: unknown extended header: found b'eh01', expected b'eh00'"
    ]


# Records -------------------------------------------------------------------------------------


def test_keys_are_told_one_by_one_with_their_places() -> None:
    entries = [("a", 0), (None, 0), ("", 1), ("b\0", 0), ("a", 2), ("a", 0), ("c", 1)]

    found = [str(one) for one in check_keys(entries, 2, lambda number: 100 + number)]

    assert found == [
        "offset 101: named data without a key: found none, expected text",
        "offset 102: named data without a key: found '', expected text",
        "offset 103: key holds NUL: found 'b\\x00', expected text without NUL",
        "offset 104: key is used twice: found 'a', expected unique keys",
        "offset 104: segment of key 'a' does not exist: found 2, expected an index below 2",
        "offset 105: key is used twice: found 'a', expected unique keys",
    ]


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ((6, (2, 3), (1, 0)), None),
        ((6, (), ()), None),
        ((6, (0,) * 16, tuple(range(16))), None),
        ((8, (2,), (0,)), ("unknown scalar type", "one of the schema", "8")),
        ((6, None, (0,)), ("sizes missing", "a vector", "none")),
        ((6, (2,), None), ("dim order missing", "a vector", "none")),
        ((6, (1,) * 17, tuple(range(17))), ("too many dimensions", "at most 16", "17")),
        ((6, (2, -1), (0, 1)), ("negative size", "0 or more", "[2, -1]")),
        (
            (6, (2, 3), (0, 2)),
            ("dim order is no permutation of the dimensions", "each below 2 once", "[0, 2]"),
        ),
        (
            (6, (2,), tuple(range(40))),
            (
                "dim order is no permutation of the dimensions",
                "each below 1 once",
                str(list(range(17))),
            ),
        ),
    ],
)
def test_the_facts_of_a_tensor_are_told_in_these_words(
    facts: tuple[int, tuple[int, ...] | None, tuple[int, ...] | None],
    problem: tuple[str, str, str] | None,
) -> None:
    assert shape_problem(*facts) == problem


def test_bytes_of_a_tensor_are_told_up_to_the_largest_size() -> None:
    shapes = Shapes()
    limit = (2**31 - 1, 2**29, 1)

    assert shapes[6, (2, 3), (0, 1)] == (24, None)
    assert shapes[8, (2,), (0,)] == (None, ("unknown scalar type", "one of the schema", "8"))
    assert shapes[6, limit, (0, 1, 2)] == (4 * (2**31 - 1) * 2**29, None)
    largest = (7, 7, 73, 127, 337, 92737, 649657)
    assert shapes[1, largest, tuple(range(7))] == (2**63 - 1, None)
    nbytes, problem = shapes[6, (2**31 - 1, 2**31 - 1, 2), (0, 1, 2)]
    assert nbytes is None
    assert problem == (
        "sizes of the tensor overflow",
        "at most 9223372036854775807 bytes",
        "sizes [2147483647, 2147483647, 2]",
    )


def test_a_long_name_is_shown_by_its_beginning() -> None:
    assert shown(None) == "None"
    assert shown("k" * 80) == repr("k" * 80)
    assert shown("k" * 81) == repr("k" * 80 + "...")
