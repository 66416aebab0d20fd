"""Where everything stands in a file that exists, and where it goes when some of it changes.

Rules of this file: the source layout and every layout that follows from it are made by the same
function, so that what does not change comes out where it was; no zero byte between two runs is kept
but as padding, and no other byte between them is lost. A layout made from nothing is layout.py's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cordbundle.chunks import STEP
from cordbundle.cord import Cord
from cordbundle.errors import FormatError
from cordbundle.layout import (
    LENGTH_PREFIX_SIZE,
    MAX_ALIGNMENT,
    Layout,
    Segment,
)

__all__ = ["MAX_GAP", "Part", "Parts", "Piece", "place", "power_of_two", "split"]


MAX_GAP = 16 << 20
"""Most bytes between two segments that are taken for padding; exporters leave below 1 MiB."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of bytes that a file's metadata speaks of.

    Attributes:
        name: What it is.
        offset: First byte, from the start of the file.
        size: Number of bytes.
        length_prefix: Whether its size stands before it as a uint32.
    """

    name: str
    offset: int
    size: int
    length_prefix: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A run of bytes after the head of a file.

    Attributes:
        segment: Its name, bytes and alignment.
        lead: Bytes from the end of what stands before, or for the first from the segment base, to
            its data: padding and length prefix.
        part: Its number among the parts; None for bytes that the metadata does not speak of.
    """

    segment: Segment
    lead: int = 0
    part: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A file taken apart.

    Attributes:
        head: The metadata, and after it what is no padding.
        base: Its segment base, in bytes from the start of the file.
        pieces: All that follows the head, in file order; empty parts are left out.
    """

    head: Cord
    base: int
    pieces: tuple[Piece, ...]

    @property
    def layout(self) -> Layout:
        """Where everything stands."""
        return place(self.pieces, len(self.head), self.base)


def split(cord: Cord, metadata_end: int, base: int, parts: Sequence[Part], name: str) -> Parts:
    """Take a file apart, by reference.

    A part's alignment is the largest power of two that divides both the segment base and its
    offset: what the file promises for every load address that is aligned as much. Reads the bytes
    between parts, to tell padding, which is zero, from what has to be kept.

    Args:
        cord: The file.
        metadata_end: First byte after its metadata.
        base: Its segment base.
        parts: What the metadata speaks of, in file order.
        name: Name of the file, for errors.

    Raises:
        FormatError: Parts overlap each other or the metadata, pass the end of the file, or have
            more than `MAX_GAP` bytes between them: a hole of terabytes takes no place in the
            source, and is neither read nor made again.
    """
    placed = [(number, part) for number, part in enumerate(parts) if part.size]
    if not placed:  # what follows the metadata is kept, whatever it is
        return Parts(cord, base, ())
    pieces: list[Piece] = []
    head_size = end = metadata_end
    for number, part in placed:
        _check(part, end, len(cord), name)
        prefix = LENGTH_PREFIX_SIZE if _has_prefix(cord, part, end) else 0
        start = part.offset - prefix
        _check_gap(part, start - end, name)
        if not _is_zero(cord[end:start]):
            if pieces:
                pieces.append(_unnamed(cord, end, start, f"bytes before {part.name}"))
            else:
                head_size = start
            end = start
        before = end if pieces else max(head_size, base)
        data = cord[part.offset : part.offset + part.size]
        aligned = power_of_two(math.gcd(base, part.offset))
        segment = Segment(part.name, data, aligned, bool(prefix))
        pieces.append(Piece(segment, part.offset - before, number))
        end = part.offset + part.size
    if end < len(cord):
        pieces.append(_unnamed(cord, end, len(cord), "bytes after the last segment"))
    return Parts(cord[:head_size], base, tuple(pieces))


def place(pieces: Sequence[Piece], head_size: int, base: int) -> Layout:
    """Place pieces after a head, each as far behind the one before as it was, if it is aligned so.

    Args:
        pieces: What to place, in order.
        head_size: Bytes that stand before.
        base: The segment base; a multiple of every alignment.
    """
    return Layout.keep(
        [piece.segment for piece in pieces],
        [piece.lead for piece in pieces],
        head_size=head_size,
        base=base,
    )


def power_of_two(offset: int) -> int:
    """Return the largest power of two that divides an offset, up to `MAX_ALIGNMENT`."""
    return min(offset & -offset, MAX_ALIGNMENT) if offset else MAX_ALIGNMENT


def _check(part: Part, end: int, size: int, name: str) -> None:
    if not end <= part.offset <= part.offset + part.size <= size:
        raise FormatError(
            f"{part.name} overlaps what stands before it or passes the end of the file",
            source=name,
            offset=part.offset,
            expected=f"{part.size} bytes from {end} to {size}",
            actual=f"{part.offset} to {part.offset + part.size}",
        )


def _check_gap(part: Part, gap: int, name: str) -> None:
    if gap > MAX_GAP:
        raise FormatError(
            f"gap before {part.name} is no padding",
            source=name,
            offset=part.offset - gap,
            expected=f"at most {MAX_GAP} bytes",
            actual=f"{gap} bytes",
        )


def _has_prefix(cord: Cord, part: Part, end: int) -> bool:
    """Return whether a part has a length prefix that says its size."""
    start = part.offset - LENGTH_PREFIX_SIZE
    stored = part.size.to_bytes(LENGTH_PREFIX_SIZE, "little") if part.size < 1 << 32 else None
    return part.length_prefix and start >= end and bytes(cord[start : part.offset]) == stored


def _is_zero(cord: Cord) -> bool:
    """Return whether all bytes are zero, reading them as long as they are."""
    reader = cord.open()
    while block := reader.read(STEP):
        if block.count(0) != len(block):
            return False
    return True


def _unnamed(cord: Cord, start: int, stop: int, name: str) -> Piece:
    return Piece(Segment(name, cord[start:stop]))
