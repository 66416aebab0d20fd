"""The findings of bundles by themselves: every one word for word, at its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cordbundle as cb
from cordbundle import bpte_schema as schema
from cordbundle.cord import Fill
from cordbundle.digest import xxh3_128
from cordbundle.flatbuffer import position_of
from cordbundle.headers import BUNDLE_HEADER, ExtendedHeader, flatbuffer_with_header
from tests.attacks.surgery import bundle, found, metadata, put_header, read, root
from tests.support import program, tensor

TENSOR = schema.Tensor(6, [1], b"\0\0\0\0", [0])
CASE = schema.BundledMethodTestCase([], [])
SUITE = schema.BundledMethodTestSuite("forward", [CASE])


def of(*suites: schema.BundledMethodTestSuite, program: bytes | None = b"") -> bytearray:
    """Return a bundle that is a flatbuffer alone."""
    return metadata(schema.BundledProgram(method_test_suites=[*suites], program=program), b"BP08")


def of_value(value: schema.Value) -> bytearray:
    """Return the same with a case of one input."""
    case = schema.BundledMethodTestCase([value], [])
    return of(schema.BundledMethodTestSuite("forward", [case]))


def said(data: bytes | bytearray | cb.Cord) -> list[str]:
    return [str(one) for one in read(data).verify()]


# Records -------------------------------------------------------------------------------------


def suite_of(view: schema.BundledProgram) -> schema.BundledMethodTestSuite:
    return (view.method_test_suites or ())[0]


def case_of(view: schema.BundledProgram) -> schema.BundledMethodTestCase:
    return (suite_of(view).test_cases or ())[0]


def value_of(view: schema.BundledProgram) -> schema.Value:
    return (case_of(view).inputs or ())[0]


@pytest.mark.parametrize(
    ("data", "place", "text"),
    [
        (
            of(SUITE, program=None),
            lambda view: view,
            "BundledProgram.program missing: found none, expected a vector",
        ),
        (
            of(schema.BundledMethodTestSuite(None, [])),
            suite_of,
            "suite 0: name of the method missing: found none, expected a string",
        ),
        (
            of(schema.BundledMethodTestSuite("forward", None)),
            suite_of,
            "forward: test cases missing: found none, expected a vector",
        ),
        (
            of(schema.BundledMethodTestSuite("forward", [schema.BundledMethodTestCase(None, [])])),
            case_of,
            "forward/0: inputs missing: found none, expected a vector",
        ),
        (
            of_value(schema.Value(None)),
            value_of,
            "forward/0/input 0: value: found none, expected a tensor or a scalar",
        ),
        (
            of_value(schema.Value(schema.Tensor(6, [2], b"\0" * 7, [0]))),
            lambda view: value_of(view).val,
            "forward/0/input 0: bytes: found 7, expected at least 8",
        ),
    ],
)
def test_a_record_that_is_not_whole_is_told_at_its_place(
    data: bytearray, place: Callable[[object], object], text: str
) -> None:
    assert said(data) == [f"offset {position_of(place(root(data)))}: {text}"]


def test_a_segmented_bundle_without_a_header_is_told_if_it_has_no_segment_either() -> None:
    data = metadata(schema.BundledProgram(method_test_suites=[], program=b""), b"BPS1")

    assert said(data) == [
        f"offset 8: extended header: found {bytes(data[8:12])!r}, expected b'bh00'"
    ]


def test_a_suite_for_no_method_hides_nothing_of_the_suites_behind_it() -> None:
    pte = program([tensor((2,))], [tensor((2,))])
    short = [cb.MethodTestCase([])]
    suites = [cb.MethodTestSuite("nowhere", short), cb.MethodTestSuite("forward", short)]
    data = bytes(cb.bundle(pte, suites, check=False).cord)
    names = [one.split(": ", 1)[1] for one in said(data)]

    assert sorted(names) == [
        "forward/0: number of inputs: found 0, expected 1",
        "suite for a method that does not exist: found 'nowhere', expected a method of the program",
    ]


def test_a_suite_without_a_name_hides_nothing_of_the_suites_behind_it() -> None:
    short = schema.BundledMethodTestSuite("forward", [CASE])
    nameless = schema.BundledMethodTestSuite(None, [])
    data = of(nameless, short, program=program([tensor((2,))], [tensor((2,))]))

    assert sorted(one.split(": ", 1)[1] for one in said(data)) == [
        "forward/0: number of inputs: found 0, expected 1",
        "suite 0: name of the method missing: found none, expected a string",
    ]


# Digests -------------------------------------------------------------------------------------


def shared(uses: int) -> bytearray:
    """Return a bundle with digests, and one segment under so many keys."""
    named = {f"k{number}": b"blob" for number in range(uses)}
    made = cb.bundle(program([]), [], named_data=named, form="segmented", alignment=64)
    return bytearray(bytes(made.cord))


@pytest.mark.parametrize(
    ("uses", "words"),
    [
        (4, "named data 'k0', named data 'k1', named data 'k2', named data 'k3'"),
        (6, "named data 'k0', named data 'k1', named data 'k2', named data 'k3' and 2 more"),
    ],
)
def test_a_damaged_segment_is_told_with_up_to_four_uses_and_both_digests(
    uses: int, words: str
) -> None:
    data = shared(uses)
    place = read(data).segment_ranges[-1]
    data[place.offset] ^= 1

    assert said(data) == [
        f"offset {place.offset}: xxh3-128 of segment 1 ({words}), bytes {place.offset} to"
        f" {place.end}: found {xxh3_128([data[place.offset : place.end]]).hex()},"
        f" expected {xxh3_128([b'blob']).hex()}"
    ]


def test_a_damaged_segment_that_nothing_uses_is_told_by_its_number() -> None:
    record = schema.BundledProgram(
        method_test_suites=[], program=b"", segments=[schema.DataSegment(0, 4, bytes(16))]
    )
    size = len(metadata(record, b"BPS1"))
    data = with_header(record, b"blob", size)

    (text,) = said(data)

    assert text.split(": found")[0].endswith(
        f": xxh3-128 of segment 0, bytes {len(data) - 4} to {len(data)}"
    )


def with_header(record: schema.BundledProgram, data: bytes, size: int) -> bytearray:
    """Return a segmented bundle with its segment data; its metadata has this size and no digest."""
    end = size + 64
    packed = BUNDLE_HEADER.pack(ExtendedHeader(64, size, end, len(data)), 64)
    flat = cb.Cord(bytes(metadata(record, b"BPS1")))
    return bytearray(bytes(flatbuffer_with_header(flat, packed)) + data)


def test_a_header_that_ends_the_metadata_inside_itself_is_digested_to_its_own_end() -> None:
    data = bundle("segmented", digest=True)
    put_header(data, flatbuffer_offset=0, flatbuffer_size=20, segment_base_offset=0)
    at = BUNDLE_HEADER.offset_of("digest")
    shown = bytes(data[:at]) + bytes(16)

    found_digest = next(one for one in read(data).verify() if "xxh3" in one.what)

    assert found_digest.actual == xxh3_128([shown]).hex()


def test_progress_is_told_of_a_digest_that_is_read_alone() -> None:
    data = bundle("segmented", digest=True)
    base = read(data).header.segment_base_offset
    data[80:90] = b"\xff" * 10
    calls: list[tuple[int, int]] = []

    read(data).verify(lambda *done: calls.append(done))

    assert calls == [(0, base), (base, base)]


# Padding -------------------------------------------------------------------------------------


def test_a_byte_behind_a_base_without_segments_is_told_once() -> None:
    data = bytearray(bytes(cb.bundle(program([]), [], form="detached", digest=False).cord))
    end = len(data)
    put_header(data, segment_base_offset=end + 8)

    assert said(bytes(data) + bytes(8)) == []
    assert said(bytes(data) + bytes(8) + b"\7") == [
        f"offset {end + 8}: bytes after the last segment: found 1, expected none"
    ]


def test_padding_of_a_tebibyte_behind_the_last_segment_is_told_with_its_place_and_size() -> None:
    data, far = bundle("segmented"), 1 << 40
    end = len(data)
    put_header(data, segment_data_size=read(data).header.segment_data_size + far)

    assert found(cb.Cord(bytes(data)) + cb.Cord.of(Fill(far))) == (
        end,
        "padding after the last segment",
        "at most 1048580",
        str(far),
    )
