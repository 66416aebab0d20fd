"""What `verify` checks of a bundle beyond its flatbuffer: digests, segments, padding, the program.

Rules of this file: every check yields findings and goes on; it runs after the structure was found
sound, so that offsets may be followed; payload is read once, by descriptor, in bounded memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from cordbundle.bpte_tables import BundleTables
from cordbundle.cord import Cord
from cordbundle.digest import DIGEST_SIZE
from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Finding, byte_range, position_of
from cordbundle.headers import BUNDLE_HEADER
from cordbundle.layout import LENGTH_PREFIX_SIZE
from cordbundle.pte import PteFile
from cordbundle.tensors import ScalarType

__all__ = ["check_bundle"]

_NO_DIGEST = bytes(DIGEST_SIZE)


def check_bundle(file: BundleTables) -> Iterator[Finding]:
    """Yield what is wrong with a bundle whose flatbuffer and segment table are sound."""
    yield from _check_indices(file)
    yield from _check_tensors(file)
    yield from _check_metadata_digest(file)
    yield from _check_segment_digests(file)
    yield from _check_gaps(file)
    yield from _check_program(file)


def _check_indices(file: BundleTables) -> Iterator[Finding]:
    """Check that what speaks of a segment speaks of one, and that keys are unique."""
    count = len(file.segment_ranges)
    if file.root.program_segment > count:
        yield Finding(
            position_of(file.root),
            "segment of the program does not exist",
            f"at most {count}",
            str(file.root.program_segment),
        )
    keys: set[str | None] = set()
    for entry in file.root.named_data or ():
        at = position_of(entry)
        if entry.segment_index >= count:
            yield Finding(
                at,
                f"segment of key {entry.key!r} does not exist",
                f"an index below {count}",
                str(entry.segment_index),
            )
        if entry.key in keys or not entry.key or "\0" in entry.key:
            yield Finding(at, "key of named data", "unique text without NUL", repr(entry.key))
        keys.add(entry.key)


def _check_tensors(file: BundleTables) -> Iterator[Finding]:
    """Check each tensor's sizes against its bytes, and its two ways to them against each other."""
    ranges = file.segment_ranges
    for tensor, name in file.tensors():
        at = position_of(tensor)
        scalar_type = ScalarType.get(tensor.scalar_type)
        if scalar_type is None:
            yield Finding(at, f"{name}: scalar type", "a known one", str(tensor.scalar_type))
            continue
        if tensor.data_segment > len(ranges):
            yield Finding(
                at,
                f"segment of {name} does not exist",
                f"at most {len(ranges)}",
                str(tensor.data_segment),
            )
            continue
        vector = byte_range(tensor, "data")
        size = vector.size if vector else 0
        if tensor.data_segment:
            place = ranges[tensor.data_segment - 1]
            size = place.size
            if file.form != "segmented" and (vector is None or vector.offset != place.offset):
                found = "no vector" if vector is None else f"a vector at {vector.offset}"
                yield Finding(at, f"{name}: data field", f"segment at {place.offset}", found)
        sizes = tuple(tensor.sizes or ())
        order = range(len(sizes)) if tensor.dim_order is None else tensor.dim_order
        if min(sizes, default=0) < 0 or sorted(order) != list(range(len(sizes))):
            yield Finding(
                at,
                f"{name}: shape",
                "sizes from 0 and a dim order of the same rank",
                f"sizes {list(sizes)[:16]}, dim order {list(order)[:16]}",
            )
        elif size < math.prod(sizes) * scalar_type.itemsize:
            needed = math.prod(sizes) * scalar_type.itemsize
            yield Finding(at, f"{name}: bytes", f"at least {needed}", str(size))


def _check_metadata_digest(file: BundleTables) -> Iterator[Finding]:
    """Recompute the digest of all bytes before the segment base, itself taken as zero."""
    header = file.header
    if header is None:
        if file.form == "segmented":
            yield Finding(8, "extended header", "b'bh00'", repr(bytes(file.cord[8:12])))
        return
    if header.digest == _NO_DIGEST:
        return
    at = BUNDLE_HEADER.offset_of("digest")
    end = header.segment_base_offset or header.metadata_end
    covered = file.cord[:at] + _NO_DIGEST + file.cord[at + DIGEST_SIZE : end]
    actual = covered.xxh3_128()
    if actual != header.digest:
        yield Finding(
            at, f"xxh3-128 of the metadata, bytes 0 to {end}", header.digest.hex(), actual.hex()
        )


def _check_segment_digests(file: BundleTables) -> Iterator[Finding]:
    names = [segment.name for segment in file.layout.segments]
    for number, (segment, place) in enumerate(
        zip(file.root.segments or (), file.segment_ranges, strict=True)
    ):
        if segment.xxh3_128 is None:
            continue
        stored = bytes(segment.xxh3_128)
        actual = file.cord[place.offset : place.offset + place.size].xxh3_128()
        if actual != stored:
            what = f"xxh3-128 of segment {number} ({names[number]}), {place.size} bytes"
            yield Finding(place.offset, what, stored.hex(), actual.hex())


def _check_gaps(file: BundleTables) -> Iterator[Finding]:
    """Check that padding is zero, lengths are right and nothing follows the last segment."""
    layout = file.layout
    for place in layout.placements:
        prefix = LENGTH_PREFIX_SIZE if place.length_prefix else 0
        start = place.offset - prefix - place.padding
        yield from _check_zeros(file.cord, start, place.offset - prefix)
        stored = int.from_bytes(bytes(file.cord[place.offset - prefix : place.offset]), "little")
        if prefix and stored != place.size:
            yield Finding(
                place.offset - prefix, f"length before {place.name}", str(place.size), str(stored)
            )
    if file.header is not None and len(file.cord) != layout.end:
        yield Finding(layout.end, "bytes after the last segment", "none", str(len(file.cord)))


def _check_zeros(cord: Cord, start: int, stop: int) -> Iterator[Finding]:
    at = start
    for run in cord[start:stop].stream():
        data = bytes(run)
        rest = data.lstrip(b"\0")
        if rest:
            yield Finding(at + len(data) - len(rest), "padding", "0", str(rest[0]))
            return
        at += len(data)


def _check_program(file: BundleTables) -> Iterator[Finding]:
    """Check the program as a file of its own; offsets are made absolute where they are known."""
    if file.root.program_segment > len(file.segment_ranges):
        return  # `_check_indices` says so
    program, offset = file.program, file.program_offset
    if not program:
        return
    try:
        findings = PteFile(program, file.name).verify()
    except FormatError as error:  # no program at all; the error says what it is
        yield Finding(offset, f"program: {error.what}", str(error.expected), str(error.actual))
        return
    for finding in findings:
        yield Finding(
            offset + finding.offset, f"program: {finding.what}", finding.expected, finding.actual
        )
