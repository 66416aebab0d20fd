"""Integrity: whatever changes in a bundle is found by `verify`, and what is damaged is named."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle.bundling import Form
from cordbundle.flatbuffer import position_of
from cordbundle.flatbuffer.view import checked_view
from cordbundle.headers import BUNDLE_HEADER
from tests.integrity import count_found, write_bundle
from tests.support import bundle_file, bytes_read, floats, peak, program, suite, tensor

FORMS: tuple[Form, ...] = ("bp08", "segmented", "detached")
MIB = 1 << 20


def small_bundle(form: Form, *, digest: bool = True, blobs: bool = True) -> bytearray:
    """Return a bundle with everything that one can hold but a tensor in a segment."""
    pte = program([tensor((2,)), tensor((1,))], [tensor((2,))])
    case = cb.MethodTestCase([floats((2,)), floats((1,))], [floats((2,))])
    named = {"a key": b"some data", "none": b"", "z": b"z" * 70} if blobs else {}
    bundle = cb.bundle(pte, [suite(case)], named_data=named, form=form, alignment=64, digest=digest)
    return bytearray(bytes(bundle.cord))


def large_bundle(*, digest: bool = True) -> cb.Bundle:
    """Return a bundle whose tensors are segments, one of them with two uses."""
    pte = program([tensor((2048,)), tensor((1500,))], [tensor((2048,))])
    same = floats((2048,))
    case = cb.MethodTestCase([same, floats((1500,), 7.0)], [same])
    return cb.bundle(pte, [suite(case)], named_data={"tokenizer": b"t" * 5000}, digest=digest)


def findings(data: bytes | bytearray) -> list[str]:
    """Return what is found wrong with a file, be it on opening."""
    try:
        return [finding.what for finding in cb.open(bytes(data)).verify()]
    except cb.CordBundleError as error:
        return [error.what]


def places(data: bytes | bytearray) -> dict[str, tuple[int, int]]:
    """Return where each segment of a bundle begins and ends."""
    file = cb.open(bytes(data))
    assert isinstance(file, cb.BundleFile)
    return {place.name: (place.offset, place.end) for place in file.layout.placements}


# Flipped bits.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("blobs", [True, False])
def test_a_flipped_bit_at_every_byte_is_found(form: Form, blobs: bool) -> None:
    data = small_bundle(form, blobs=blobs)
    assert findings(data) == []
    missed = []
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        if not findings(data):
            missed.append(at)
        data[at] ^= 1 << at % 8
    assert missed == []


@pytest.mark.parametrize("form", FORMS)
def test_all_eight_bits_are_found_at_places_of_every_kind(form: Form) -> None:
    data = small_bundle(form)
    choices = random.Random(4)
    sample = [*range(8, 80, 3), *choices.sample(range(len(data)), 24), len(data) - 1]
    missed = []
    for at in sample:
        for bit in range(8):
            data[at] ^= 1 << bit
            if not findings(data):
                missed.append((at, bit))
            data[at] ^= 1 << bit
    assert missed == []


def test_random_flips_in_a_large_file_are_found(tmp_path: Path) -> None:
    path = tmp_path / "large.bpte"
    write_bundle(path, 8 * MIB, "bp08")

    assert count_found(path, 100) == 100  # `python -m tests.integrity` flips more


# What is named.


def test_a_damaged_segment_is_named_with_its_uses_and_its_bytes() -> None:
    data = bytearray(bytes(large_bundle().cord))
    start, stop = places(data)["forward/0/input 0"]
    data[start + 5000] ^= 4

    (finding,) = cb.open(bytes(data)).verify()

    assert finding.offset == start
    assert finding.what == (
        "xxh3-128 of segment 0 (forward/0/input 0, forward/0/expected output 0),"
        f" bytes {start} to {stop}"
    )
    assert finding.expected != finding.actual


def test_every_damaged_segment_is_named_and_no_sound_one() -> None:
    data = bytearray(bytes(large_bundle().cord))
    where = places(data)
    data[where["named data 'tokenizer'"][1] - 1] ^= 1
    data[where["forward/0/input 1"][0]] ^= 128

    words = findings(data)

    assert [what.split(",")[0] for what in words] == [
        "xxh3-128 of segment 1 (forward/0/input 1)",
        "xxh3-128 of segment 3 (named data 'tokenizer')",
    ]


def test_damage_inside_the_program_is_told_of_the_segment() -> None:
    data = small_bundle("bp08")
    start, stop = places(data)["program"]
    data[stop - 1] ^= 1

    assert f"xxh3-128 of segment 0 (program), bytes {start} to {stop}" in findings(data)


def test_damage_before_the_segment_base_is_told_of_header_and_metadata() -> None:
    data = small_bundle("bp08")
    base = struct.unpack_from("<Q", data, BUNDLE_HEADER.offset_of("segment_base_offset"))[0]
    for at in (BUNDLE_HEADER.offset_of("digest"), 64, 71, base - 5):
        data[at] ^= 2
        assert f"xxh3-128 of header and metadata, bytes 0 to {base}" in findings(data)
        data[at] ^= 2


def test_a_bundle_that_lost_its_header_is_told_from_one_that_never_had_one() -> None:
    data = small_bundle("detached", blobs=False)
    data[8:12] = b"\0\0\0\0"

    assert findings(data) == ["extended header"]


# What no digest covers.


def test_padding_between_segments_has_to_be_zero() -> None:
    data = bytearray(bytes(large_bundle().cord))
    start = places(data)["program"][0] - 4  # where its length begins
    assert start > places(data)["forward/0/input 1"][1]
    data[start - 1] = 7

    found = cb.open(bytes(data)).verify()

    assert [(f.offset, f.what, f.expected, f.actual) for f in found] == [
        (start - 1, "padding", "0", "7")
    ]


def test_a_length_before_a_segment_has_to_be_its_size() -> None:
    data = bytearray(bytes(large_bundle().cord))
    start, stop = places(data)["program"]
    data[start - 4] ^= 1

    (finding,) = cb.open(bytes(data)).verify()

    assert (finding.offset, finding.what) == (start - 4, "length before program")
    assert finding.expected == str(stop - start)


def test_a_byte_after_the_end_is_found_beside_all_other_damage() -> None:
    data = bytearray(bytes(large_bundle().cord))
    data[places(data)["forward/0/input 1"][0]] ^= 1

    assert len(findings(data + b"\0")) == 2


def test_without_digests_structure_lengths_and_padding_are_checked_and_payload_is_not() -> None:
    data = bytearray(bytes(large_bundle(digest=False).cord))
    where = places(data)
    data[where["forward/0/input 1"][0]] ^= 1
    assert findings(data) == []

    data[where["program"][0] - 4] ^= 1
    data[where["program"][0] - 5] ^= 1
    assert findings(data) == ["padding", "length before program"]


@pytest.mark.parametrize("digest", [False, True])
@pytest.mark.parametrize("form", ["segmented", "detached"])
def test_padding_of_a_tebibyte_is_told_and_not_read(
    tmp_path: Path, form: Form, digest: bool
) -> None:
    data = small_bundle(form, digest=digest, blobs=form != "detached")
    at = BUNDLE_HEADER.offset_of("segment_base_offset")
    base, size = struct.unpack_from("<QQ", data, at)
    base = base or len(data)
    struct.pack_into("<Q", data, at, base + (1 << 40))
    path = tmp_path / "far.bpte"
    with path.open("wb") as file:
        file.write(data[:base])
        file.truncate(base + (1 << 40))
        file.seek(0, os.SEEK_END)
        file.write(data[base : base + size])
    before = bytes_read()

    with cb.open(path) as far:
        found = [finding.what for finding in far.verify()]

    assert found == ["padding before the segment base"]
    assert bytes_read() - before < MIB


def with_base_moved(data: bytearray, padding: int) -> bytes:
    """Return a bundle without digests whose first segment follows so much padding."""
    at, end = BUNDLE_HEADER.offset_of("segment_base_offset"), cb.open(bytes(data)).metadata_end
    base = struct.unpack_from("<Q", data, at)[0]
    struct.pack_into("<Q", data, at, end + padding)
    return bytes(data[:end]) + bytes(padding) + bytes(data[base:])


def offset_slot(data: bytearray, segment: int) -> int:
    """Return where the segment table says where a segment stands."""
    entry = (cb.open(bytes(data)).root.segments or ())[segment]
    return position_of(entry) + checked_view(entry)._offsets[0]


@pytest.mark.parametrize("digest", [False, True])
def test_padding_may_be_as_long_as_the_largest_alignment_and_a_length(digest: bool) -> None:
    least = small_bundle("segmented", digest=digest)

    at_most = findings(with_base_moved(bytearray(least), MIB + 4))
    beyond = findings(with_base_moved(bytearray(least), MIB + 5))

    assert [what for what in at_most if "padding" in what] == []
    assert beyond == ["padding before the segment base"]


def test_padding_between_segments_may_be_as_long_too() -> None:
    data = bytearray(bytes(large_bundle(digest=False).cord))
    slot = offset_slot(data, -1)
    start, size = places(data)["named data 'tokenizer'"][0], places(data)["program"][1]
    told = []
    for padding in (MIB + 4, MIB + 5):
        moved = bytearray(data)
        base = struct.unpack_from("<Q", data, BUNDLE_HEADER.offset_of("segment_base_offset"))[0]
        struct.pack_into("<Q", moved, slot, size + padding - base)
        total = size + padding + len(data) - start - base
        struct.pack_into("<Q", moved, BUNDLE_HEADER.offset_of("segment_data_size"), total)
        told.append(findings(moved[:size] + bytes(padding) + moved[start:]))

    assert told == [[], ["padding before named data 'tokenizer'"]]


def test_damage_to_the_structure_leaves_the_digest_of_header_and_metadata() -> None:
    data = small_bundle("segmented")
    struct.pack_into("<Q", data, offset_slot(data, 1), 0)
    broken = small_bundle("segmented")
    broken[100:110] = b"\xff" * 10

    assert findings(data) == [
        "xxh3-128 of header and metadata, bytes 0 to 768",
        "segment 1 begins inside segment 0",
    ]
    assert findings(broken)[0].startswith("xxh3-128 of header and metadata")
    assert len(findings(broken)) > 1


def test_damage_to_the_header_leaves_the_digests_of_the_segments() -> None:
    data = small_bundle("segmented")
    data[12:16] = (1000).to_bytes(4, "little")  # its length
    data[-1] ^= 1

    words = findings(data)

    assert words[0] == "root table is inside the extended header"
    assert words[1].startswith("xxh3-128 of header and metadata")
    assert words[2].startswith("xxh3-128 of segment 3 (named data 'z')")


# How it reads.


@pytest.mark.parametrize("size", [1, 4, 14, 24])  # from those that could be read in one go on
@pytest.mark.parametrize("form", FORMS)
def test_each_byte_is_read_once_in_bounded_memory(form: Form, size: int, tmp_path: Path) -> None:
    path = tmp_path / "large.bpte"
    write_bundle(path, size * MIB, form)
    with cb.open(path) as file:
        assert file.verify() == []  # imports, too
        before = bytes_read()
        assert peak(file.verify) < 3 * MIB
    assert bytes_read() - before < path.stat().st_size + MIB


def test_progress_begins_at_zero_rises_and_ends_at_the_total(tmp_path: Path) -> None:
    path = tmp_path / "large.bpte"
    write_bundle(path, 16 * MIB, "segmented")
    calls: list[tuple[int, int]] = []
    with cb.open(path) as file:
        file.verify(lambda done, total: calls.append((done, total)))

    done = [call[0] for call in calls]
    total = calls[0][1]
    assert done[0] == 0
    assert done[-1] == total
    assert done == sorted(set(done))
    assert len(calls) >= 3
    assert {call[1] for call in calls} == {total}
    assert 0 <= path.stat().st_size - total < MIB


def test_what_progress_raises_ends_the_check_and_arrives() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bundle_file(large_bundle()).verify(stop)


@pytest.mark.parametrize(
    "make",
    [
        lambda: program([tensor((2,))]),
        lambda: bytes(cb.serialize_ptd({"key": floats((3,))})),
    ],
)
def test_a_check_that_reads_no_payload_tells_progress_its_end(make: Callable[[], bytes]) -> None:
    calls: list[tuple[int, int]] = []

    assert cb.open(make()).verify(lambda done, total: calls.append((done, total))) == []

    ((done, total),) = calls
    assert done == total > 0


def test_a_bundle_in_pieces_of_memory_is_checked_as_one_in_a_file() -> None:
    data = bytearray(bytes(large_bundle().cord))
    data[places(data)["forward/0/input 1"][0] + 3] ^= 1
    pieces = cb.Cord()
    for at in range(0, len(data), 997):
        pieces.append(bytes(data[at : at + 997]))

    assert cb.open(pieces).verify() == cb.open(bytes(data)).verify() != []
