"""What `verify` checks of a bundle beyond its flatbuffer: digests, segments, padding, the program.

Rules of this file: every check yields findings and goes on; it runs after the structure was found
sound, so that offsets may be followed; digests and padding are checked in one pass, which reads
each byte once, by descriptor, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordbundle import bpte_schema as schema
from cordbundle.bpte_tables import BundleTables
from cordbundle.digest import DIGEST_SIZE
from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Finding, byte_range, position_of
from cordbundle.headers import BUNDLE_HEADER, HEADER_OFFSET
from cordbundle.layout import LENGTH_PREFIX_SIZE, MAX_ALIGNMENT, Placement
from cordbundle.pte import PteFile
from cordbundle.record_check import Shapes
from cordbundle.scan import DigestOf, Range, Zeros, scan

if TYPE_CHECKING:
    from cordbundle.sinks import Progress

__all__ = ["check_bundle"]

_NO_DIGEST = bytes(DIGEST_SIZE)
_MAX_USES = 4  # of a segment that a finding names


def check_bundle(file: BundleTables, progress: Progress | None) -> Iterator[Finding]:
    """Yield what is wrong with a bundle whose flatbuffer and segment table are sound."""
    yield from _check_indices(file)
    yield from _check_values(file)
    yield from _check_header(file)
    yield from _Contents(file).check(progress)
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


def _check_values(file: BundleTables) -> Iterator[Finding]:
    """Check that values are there, tensors' sizes against bytes, and both ways to these."""
    ranges, shapes = file.segment_ranges, Shapes()
    for value, name in file.values():
        tensor = value.val
        if tensor is None:
            yield Finding(position_of(value), f"{name}: value", "a tensor or a scalar", "none")
        if not isinstance(tensor, schema.Tensor):
            continue
        at = position_of(tensor)
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
        nbytes, problem = shapes[tensor.scalar_type, sizes, tuple(order)]
        if problem is not None:
            yield Finding(at, f"{name}: {problem.what}", problem.expected, problem.actual)
        elif nbytes is not None and size < nbytes:
            yield Finding(at, f"{name}: bytes", f"at least {nbytes}", str(size))


def _check_header(file: BundleTables) -> Iterator[Finding]:
    """Check that a bundle with a segment table has a header, without which no digest is found."""
    if file.header is None and (file.form == "segmented" or file.root.segments is not None):
        found = bytes(file.cord[HEADER_OFFSET : HEADER_OFFSET + 4])
        yield Finding(HEADER_OFFSET, "extended header", repr(BUNDLE_HEADER.magic), repr(found))


@dataclass(frozen=True, slots=True)
class _Digested:
    """A stored digest.

    Attributes:
        at: Where the damage is, if there is any.
        what: What the digest covers.
        stored: Its value in the file.
        look: Its value as the bytes are.
    """

    at: int
    what: str
    stored: bytes
    look: DigestOf


class _Contents:
    """Everything that is checked by reading: what is read, and by which look.

    The header's digest covers all bytes before the segment base, the table's digests cover the
    segments, and what is left is padding and lengths, whose bytes are known.
    """

    def __init__(self, file: BundleTables) -> None:
        self._file = file
        self._layout = file.layout
        self._ranges: list[Range] = []
        self._digested: list[_Digested] = []
        self._paddings: list[tuple[int, Zeros]] = []

    def check(self, progress: Progress | None) -> Iterator[Finding]:
        """Read and yield findings, at the end also those that need no reading."""
        self._plan_metadata()
        yield from self._plan_segments()
        scan(self._file.cord, self._ranges, progress)
        for one in self._digested:
            if one.look.value != one.stored:
                yield Finding(
                    one.at, f"xxh3-128 of {one.what}", one.stored.hex(), one.look.value.hex()
                )
        for start, zeros in self._paddings:
            if zeros.found is not None:
                yield Finding(start + zeros.found[0], "padding", "0", str(zeros.found[1]))

    def _plan_metadata(self) -> None:
        """Look at all bytes before the segment base; the digest itself counts as zero."""
        header = self._file.header
        if header is None or header.digest == _NO_DIGEST:
            return
        end = header.segment_base_offset or header.metadata_end
        at, look = BUNDLE_HEADER.offset_of("digest"), DigestOf()
        self._ranges += [
            Range(0, at, look),
            Range(at, at + DIGEST_SIZE, look, as_zeros=True),
            Range(at + DIGEST_SIZE, end, look),
        ]
        what = f"header and metadata, bytes 0 to {end}"
        self._digested.append(_Digested(at, what, header.digest, look))

    def _plan_segments(self) -> Iterator[Finding]:
        uses = self._file.uses()
        for number, (place, stored) in enumerate(
            zip(self._layout.placements, self._file.digests, strict=True)
        ):
            if not place.size:
                continue  # an empty one stands nowhere
            yield from self._plan_gap(place)
            yield from self._check_length(place)
            if stored is not None:
                look = DigestOf()
                self._ranges.append(Range(place.offset, place.end, look))
                what = _name(number, uses.get(number, []), place)
                self._digested.append(_Digested(place.offset, what, stored, look))

    def _plan_gap(self, place: Placement) -> Iterator[Finding]:
        """Look at the padding before a segment, where the header's digest does not cover it."""
        stop = place.offset - (LENGTH_PREFIX_SIZE if place.length_prefix else 0)
        start = stop - place.padding
        if place.padding > MAX_ALIGNMENT + LENGTH_PREFIX_SIZE:  # read nothing for terabytes
            yield Finding(
                start, f"padding before {place.name}", f"at most {MAX_ALIGNMENT}", str(stop - start)
            )
            return
        start = max(start, self._ranges[-1].stop if self._ranges else 0)
        if start < stop:
            zeros = Zeros()
            self._ranges.append(Range(start, stop, zeros))
            self._paddings.append((start, zeros))

    def _check_length(self, place: Placement) -> Iterator[Finding]:
        if not place.length_prefix:
            return
        at = place.offset - LENGTH_PREFIX_SIZE
        stored = int.from_bytes(bytes(self._file.cord[at : place.offset]), "little")
        if stored != place.size:
            yield Finding(at, f"length before {place.name}", str(place.size), str(stored))


def _name(number: int, uses: list[str], place: Placement) -> str:
    """Return a segment's number, what it is for, and where it is."""
    more = f" and {len(uses) - _MAX_USES} more" if len(uses) > _MAX_USES else ""
    words = f" ({', '.join(uses[:_MAX_USES])}{more})" if uses else ""
    return f"segment {number}{words}, bytes {place.offset} to {place.end}"


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
