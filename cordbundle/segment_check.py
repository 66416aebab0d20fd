"""What `verify` checks around the metadata of any file: its header, its size, its segments.

Rules of this file: it knows no schema and reads no byte of the file; every number may be anything
that 64 bits hold, and sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cordbundle.flatbuffer import Finding
from cordbundle.flatbuffer.verify import AFTER
from cordbundle.headers import HEADER_OFFSET, ExtendedHeader, HeaderFormat

__all__ = [
    "HARMLESS",
    "SegmentRange",
    "check_header",
    "check_segments",
    "gaps",
    "nbytes",
]

_TRAILING = "bytes after the last segment"
_BASE_IS_ZERO = "segment base is 0 although there are segments"

HARMLESS = frozenset({AFTER, _TRAILING, _BASE_IS_ZERO})
"""Findings that leave no doubt where each segment is."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Where a segment stands in an opened file, in bytes.

    Attributes:
        offset: First byte, from the start of the file.
        size: Number of bytes.
    """

    offset: int
    size: int

    @property
    def end(self) -> int:
        """First byte after it."""
        return self.offset + self.size


def check_header(
    header: ExtendedHeader | None, header_format: HeaderFormat, head: bytes, size: int
) -> Iterator[Finding]:
    """Check an extended header against itself and the size of its file.

    Args:
        header: The header, if there is one.
        header_format: The header of the format at hand.
        head: The first bytes of the file.
        size: Size of the file in bytes.
    """
    if header is None:
        magic = head[HEADER_OFFSET : HEADER_OFFSET + len(header_format.magic)]
        if magic[:2].isalpha() and magic[2:].isdigit():  # no vtable begins so
            yield Finding(
                HEADER_OFFSET,
                "unknown extended header",
                repr(header_format.magic),
                repr(bytes(magic)),
            )
        return
    root = int.from_bytes(head[:4], "little")
    if root < HEADER_OFFSET + header.length:
        what = "root table is inside the extended header"
        yield Finding(0, what, f"{HEADER_OFFSET + header.length} or more", str(root))
    base, data_size = header.segment_base_offset, header.segment_data_size
    if not base and data_size:
        at = header_format.offset_of("segment_data_size")
        yield Finding(at, "segment data without a segment base", "0", str(data_size))
    if base and base < header.metadata_end:
        at = header_format.offset_of("segment_base_offset")
        end = header.metadata_end
        yield Finding(at, "segment base is inside the metadata", f"{end} or more", str(base))
    if data_size is not None:
        yield from _trailing(max(header.metadata_end, base + data_size), size)


def check_segments(
    segments: Sequence[SegmentRange],
    header: ExtendedHeader | None,
    header_format: HeaderFormat,
    head: bytes,
    size: int,
) -> Iterator[Finding]:
    """Check where the segments of a file stand.

    Args:
        segments: The segments in the order of the table, absolute offsets. Those of size 0 stand
            nowhere; exporters write some at offset 0.
        header: The extended header of the file, if it has one.
        header_format: The header of the format at hand.
        head: The first bytes of the file.
        size: Size of the file in bytes.

    Yields:
        A finding for each segment that is outside the file or the segment data, in the metadata,
        out of order or overlapping, and for bytes after the last one that no header speaks of.
    """
    placed = [(number, one) for number, one in enumerate(segments) if one.size]
    if header is None:
        if placed:
            found = bytes(head[HEADER_OFFSET : HEADER_OFFSET + len(header_format.magic)])
            what = "segments without an extended header to say where they begin"
            yield Finding(HEADER_OFFSET, what, repr(header_format.magic), repr(found))
        return
    if placed and not header.segment_base_offset:
        yield Finding(
            header_format.offset_of("segment_base_offset"), _BASE_IS_ZERO, "1 or more", "0"
        )
    before, end = None, header.metadata_end
    for number, one in placed:
        yield from _check_end(f"segment {number}", one, header, size)
        if one.offset < end:
            place = _inside(one, before, segments, header.metadata_end)
            what = f"segment {number} {place}"
            yield Finding(one.offset, what, f"a begin at or after {end}", str(one.offset))
        if one.end > end:
            before, end = number, one.end
    if header.segment_data_size is None:
        yield from _trailing(end, size)


def _check_end(
    what: str, one: SegmentRange, header: ExtendedHeader, size: int
) -> Iterator[Finding]:
    """Check that a segment ends inside the file and the segment data."""
    limit = header.segment_base_offset + (header.segment_data_size or 0)
    if one.end > size:
        missing = one.end - max(size, one.offset)
        yield Finding(
            one.offset,
            f"{what} ends after the file",
            f"an end at or before {size}",
            f"an end at {one.end}, {nbytes(missing)} missing",
        )
    elif header.segment_data_size is not None and one.end > limit:
        room = f"an end at or before {limit}"
        yield Finding(
            one.offset, f"{what} ends after the segment data", room, f"an end at {one.end}"
        )


def gaps(segments: Sequence[SegmentRange], header: ExtendedHeader) -> Iterator[tuple[int, int]]:
    """Yield where padding stands, first byte and first after it, in a file that is sound so far."""
    end = header.metadata_end
    for one in segments:
        if one.size:
            if one.offset > end:
                yield end, one.offset
            end = one.end
    stop = header.segment_base_offset + (header.segment_data_size or 0)
    if stop > end:
        yield end, stop


def nbytes(count: int) -> str:
    """Return a number of bytes in words."""
    return f"{count} byte{'s' * (count != 1)}"


def _inside(
    one: SegmentRange, before: int | None, segments: Sequence[SegmentRange], metadata_end: int
) -> str:
    """Return in words where a segment begins that begins too early."""
    if one.offset < metadata_end or before is None:
        return "begins inside the metadata"
    if one.end > segments[before].offset:
        return f"begins inside segment {before}"
    return f"stands before segment {before}"


def _trailing(end: int, size: int) -> Iterator[Finding]:
    if size > end:
        yield Finding(end, _TRAILING, "none", str(size - end))
