"""Layout: where every segment of a file will stand, decided before a byte moves.

Rules of this file: the one place that computes offsets and padding; it sees sizes and alignments,
never a file format; `share` alone looks at payload bytes, and only when two blobs agree in all that
is cheaper to look at.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cordbundle.chunks import size_of
from cordbundle.cord import Chunk, Cord, Fill
from cordbundle.errors import LayoutError, TooLargeError

__all__ = [
    "LENGTH_PREFIX_SIZE",
    "MAX_ALIGNMENT",
    "Blobs",
    "Layout",
    "Placement",
    "Segment",
    "Shared",
    "align_up",
    "aligned_offsets",
    "check_alignment",
    "join_runs",
    "join_segments",
    "offsets_from_base",
    "segment_base",
    "share",
]

MAX_ALIGNMENT = 1 << 20
"""Largest least common multiple of alignments in one file, in bytes."""

LENGTH_PREFIX_SIZE = 4
"""Bytes of the length that stands before a flatbuffer vector, a uint32."""

_LENGTH_PREFIX = struct.Struct("<I")
_MAX_PREFIXED = (1 << 32) - 1
_SHARE_PREFIX = 64  # bytes compared before anything is digested


def align_up(offset: int, alignment: int) -> int:
    """Return the first multiple of `alignment` at or after `offset`, in bytes."""
    return -(-offset // alignment) * alignment


def check_alignment(
    alignment: object, name: str, *, power_of_two: bool = False, least: int = 1
) -> int:
    """Return `alignment` if it is a number of bytes that can be one.

    Raises:
        LayoutError: It is no `int`, below `least`, above `MAX_ALIGNMENT` or, where asked for, no
            power of two; names `name`.
    """
    if isinstance(alignment, int) and not isinstance(alignment, bool):
        honoured = not power_of_two or alignment & (alignment - 1) == 0
        if least <= alignment <= MAX_ALIGNMENT and honoured:
            return alignment
    kind = "power of two" if power_of_two else "whole number of bytes"
    raise LayoutError(
        f"alignment of {name} cannot be honoured",
        expected=f"a {kind} from {least} to {MAX_ALIGNMENT}",
        actual=repr(alignment),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A run of bytes that has a place of its own in a file.

    Attributes:
        name: What it is, for people and errors; takes no part in the layout.
        data: The bytes.
        alignment: Its absolute offset is a multiple of this many bytes.
        length_prefix: Whether its size stands before it as a uint32, as a flatbuffer vector needs;
            the alignment is that of the data, the prefix stands directly before.
    """

    name: str
    data: Cord
    alignment: int = 1
    length_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one segment stands.

    Attributes:
        name: The segment's name.
        offset: First byte of its data, from the start of the file.
        size: Bytes of data, without prefix and padding.
        alignment: What `offset` is a multiple of, in bytes.
        padding: Zero bytes between the end of what stands before and this segment's first byte
            (its length prefix, if it has one).
        length_prefix: Whether four bytes with the size stand directly before `offset`.
    """

    name: str
    offset: int
    size: int
    alignment: int
    padding: int
    length_prefix: bool

    @property
    def end(self) -> int:
        """First byte after the data."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Layout:
    """The frozen plan of a file: a head (header and metadata), then segments.

    Attributes:
        head_size: Bytes before the first padding.
        base: Segment base: offsets in metadata count from here. A multiple of the least common
            multiple of all alignments, so that an offset that is aligned from the base is aligned
            from the start of the file. 0 where there are no segments and no base was asked for.
        placements: One for each segment, in file order.
        segments: What is placed.
    """

    head_size: int
    base: int
    placements: tuple[Placement, ...]
    segments: tuple[Segment, ...]

    @classmethod
    def plan(
        cls,
        segments: Iterable[Segment],
        *,
        head_size: int = 0,
        base_alignment: int | None = None,
    ) -> Layout:
        """Place segments after a head, in order, each aligned, with no padding at the end.

        Offsets from the base do not depend on `head_size`; only the base does.

        Args:
            segments: What to place.
            head_size: Bytes that stand before.
            base_alignment: What the base is a multiple of as well, in bytes; given, the file is
                padded up to a base also where there are no segments.

        Raises:
            LayoutError: An alignment, or the least common multiple of all, cannot be honoured.
            TooLargeError: A segment with a length prefix is too large for it.
        """
        parts = tuple(segments)
        base = segment_base(parts, head_size, base_alignment)
        offsets = (base + offset for offset in offsets_from_base(parts))
        return cls(head_size, base, tuple(_place(parts, offsets, head_size)), parts)

    @classmethod
    def keep(
        cls, segments: Sequence[Segment], leads: Sequence[int], *, head_size: int, base: int
    ) -> Layout:
        """Place segments as far behind each other as they were, where that still aligns them.

        Args:
            segments: What to place, in order.
            leads: Bytes from the end of what stands before (the base, or the head if that ends
                later, for the first) to each segment's data.
            head_size: Bytes that stand before.
            base: The segment base; a multiple of every alignment.
        """
        offsets = _kept_offsets(segments, leads, max(head_size, base))
        return cls(head_size, base, tuple(_place(segments, offsets, head_size)), tuple(segments))

    @property
    def end(self) -> int:
        """Size of the whole file, in bytes."""
        return self.placements[-1].end if self.placements else max(self.head_size, self.base)

    @property
    def segment_data_size(self) -> int:
        """Bytes from the base to the end of the last segment."""
        return self.end - self.base if self.placements else 0

    def relative(self, index: int) -> int:
        """Return the offset of a segment from the base."""
        return self.placements[index].offset - self.base

    def body(self) -> Cord:
        """Return all that follows the head: paddings, length prefixes and data, by reference."""
        if not self.placements:
            return Cord.of(Fill(self.end - self.head_size))
        return join_segments(
            self.segments, [place.offset for place in self.placements], self.head_size
        )

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain values for `json.dumps`."""
        return {
            "head_size": self.head_size,
            "segment_base_offset": self.base,
            "segment_data_size": self.segment_data_size,
            "size": self.end,
            "segments": [
                {name: getattr(placement, name) for name in Placement.__dataclass_fields__}
                for placement in self.placements
            ],
        }

    def __str__(self) -> str:
        rows = [f"{'offset':>14} {'size':>14} {'align':>7} {'padding':>8}  name"]
        rows.append(f"{0:>14} {self.head_size:>14} {1:>7} {0:>8}  header and metadata")
        rows += [
            f"{p.offset:>14} {p.size:>14} {p.alignment:>7} {p.padding:>8}  {p.name}"
            for p in self.placements
        ]
        rows.append(f"{self.end:>14} {'':>14} {'':>7} {'':>8}  end")
        return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class Shared:
    """Segments in which equal blobs stand once.

    Attributes:
        segments: The distinct blobs, in the order of their first appearance; each has the name of
            its first and the least common multiple of the alignments of all.
        index: For each segment given, the position of its blob in `segments`.
    """

    segments: tuple[Segment, ...]
    index: tuple[int, ...]


def share(segments: Sequence[Segment]) -> Shared:
    """Find equal blobs: same buffer, else same size, first bytes, digest and, at last, all bytes.

    Bytes are read only of blobs that agree in size, all of them only where they agree in their
    first 64 as well; two different blobs never become one.
    """
    blobs: list[Segment] = []
    index: list[int] = []
    known = Blobs()
    for segment in segments:
        found = known.find(segment.data)
        if found == len(blobs):
            blobs.append(segment)
        else:
            blobs[found] = _merged(blobs[found], segment)
        index.append(found)
    return Shared(tuple(blobs), tuple(index))


_Branch: TypeAlias = "dict[object, int | _Branch | list[int]]"
"""Under a trait: a blob that is alone there, a deeper branch, or blobs equal in all but bytes."""


class Blobs:
    """Distinct blobs, numbered from 0 in the order in which they were first seen.

    They are kept in a tree that looks at more of them only as they agree: size, first bytes,
    digest, all bytes. A branch keeps a blob that is alone there without looking at it any further.
    """

    def __init__(self) -> None:
        self._blobs: list[Cord] = []
        self._identities: dict[tuple[object, ...], int] = {}
        self._root: _Branch = {}

    def find(self, data: Cord) -> int:
        """Return the number of the blob equal to `data`; a new one if there is none."""
        identity = data.identity()
        number = self._identities.get(identity)
        if number is None:
            self._blobs.append(data)
            number = self._insert(len(self._blobs) - 1)
            if number != len(self._blobs) - 1:
                self._blobs.pop()
            else:
                self._identities[identity] = number
        return number

    def _insert(self, new: int) -> int:
        node = self._root
        for depth, key_of in enumerate(_TRAITS):
            key = key_of(self._blobs[new])
            held = node.get(key)
            if held is None:
                node[key] = new
                return new
            if isinstance(held, int):  # two agree so far: look deeper at both
                deeper = _TRAITS[depth + 1] if depth + 1 < len(_TRAITS) else None
                held = {deeper(self._blobs[held]): held} if deeper else [held]
                node[key] = held
            if isinstance(held, list):
                return self._insert_equal(held, new)
            node = held
        return new

    def _insert_equal(self, candidates: list[int], new: int) -> int:
        for candidate in candidates:
            if self._blobs[candidate] == self._blobs[new]:
                return candidate
        candidates.append(new)
        return new


def _prefix(data: Cord) -> bytes:
    chunk = data.first_chunk()
    if isinstance(chunk, bytes | memoryview) and size_of(chunk) >= _SHARE_PREFIX:
        return bytes(chunk[:_SHARE_PREFIX])  # as below, but for what is usual much faster
    return bytes(data[:_SHARE_PREFIX])


_TRAITS: tuple[Callable[[Cord], object], ...] = (
    len,
    _prefix,
    Cord.xxh3_128,
)


def _merged(blob: Segment, other: Segment) -> Segment:
    """Return the segment that serves both."""
    alignment = math.lcm(*(check_alignment(one.alignment, one.name) for one in (blob, other)))
    data = blob.data
    if other.data.empty_sources:  # both are empty now, but may be files that grow
        data = data + other.data
    prefix = blob.length_prefix or other.length_prefix
    return replace(blob, data=data, alignment=alignment, length_prefix=prefix)


def _common_alignment(segments: Sequence[Segment], common: int) -> int:
    """Return the least common multiple of `common` and all alignments, or refuse it by name."""
    previous: object = object()
    for segment in segments:
        if segment.alignment is previous:
            continue
        previous = alignment = check_alignment(segment.alignment, segment.name)
        common = math.lcm(common, alignment)
        if common > MAX_ALIGNMENT:
            raise LayoutError(
                f"alignment {alignment} of {segment.name} cannot be honoured with the others",
                expected=f"a least common multiple of at most {MAX_ALIGNMENT}",
                actual=common,
            )
    return common


def segment_base(
    segments: Sequence[Segment], head_size: int, base_alignment: int | None = None
) -> int:
    """Return where the segment base of a file is; see `Layout.plan`."""
    if not segments:
        return 0 if base_alignment is None else align_up(head_size, base_alignment)
    common = _common_alignment(segments, base_alignment or 1)
    return align_up(head_size + _prefix_size(segments[0]), common)


def join_segments(segments: Sequence[Segment], offsets: Sequence[int], end: int) -> Cord:
    """Return segments that begin at these offsets, with all that stands before, from `end` on."""
    runs = [_with_prefix(one.data) if one.length_prefix else one.data for one in segments]
    starts = [at - _prefix_size(one) for at, one in zip(offsets, segments, strict=True)]
    return join_runs(runs, starts, end)


def _with_prefix(data: Cord) -> Cord:
    return Cord(_LENGTH_PREFIX.pack(len(data))) + data


def join_runs(runs: Sequence[Cord], offsets: Sequence[int], end: int) -> Cord:
    """Return bytes that begin at these offsets, with the paddings before them, from `end` on."""
    chunks: list[Chunk] = []
    fills: dict[int, Fill] = {}
    for run, offset in zip(runs, offsets, strict=True):
        padding = offset - end
        if padding:
            fill = fills.get(padding)
            if fill is None:
                fill = fills[padding] = Fill(padding)
            chunks.append(fill)
        chunks += run.raw_chunks
        end = offset + len(run)
    joined = Cord.of(*chunks)
    joined.watch(source for run in runs for source in run.empty_sources)
    return joined


def _prefix_size(segment: Segment) -> int:
    return LENGTH_PREFIX_SIZE if segment.length_prefix else 0


def offsets_from_base(segments: Sequence[Segment]) -> list[int]:
    """Return where each segment begins, from the segment base, which is aligned for all."""
    return aligned_offsets(
        [len(segment.data) for segment in segments],
        [segment.alignment for segment in segments],
        [_prefix_size(segment) for segment in segments],
    )


def aligned_offsets(
    sizes: Sequence[int], alignments: Sequence[int], prefixes: Sequence[int] = ()
) -> list[int]:
    """Return where each of some runs begins, one after the other, from an aligned base.

    Args:
        sizes: Their numbers of bytes.
        alignments: What their offsets are multiples of, in bytes.
        prefixes: Bytes that stand directly before each; none if empty. Those of the first
            stand before the base.
    """
    offsets: list[int] = []
    end = 0
    prefixes = prefixes or [0] * len(sizes)
    for size, alignment, prefix in zip(sizes, alignments, prefixes, strict=True):
        if offsets:
            end += prefix
        offset = -(-end // alignment) * alignment  # align_up, in line
        offsets.append(offset)
        end = offset + size
    return offsets


def _kept_offsets(segments: Sequence[Segment], leads: Sequence[int], end: int) -> Iterator[int]:
    for segment, lead in zip(segments, leads, strict=True):
        offset = end + lead
        if offset % segment.alignment:
            offset = align_up(end + _prefix_size(segment), segment.alignment)
        yield offset
        end = offset + len(segment.data)


def _place(
    segments: Sequence[Segment], offsets: Iterable[int], head_size: int
) -> Iterator[Placement]:
    end = head_size
    for segment, offset in zip(segments, offsets, strict=True):
        size, prefix = len(segment.data), _prefix_size(segment)
        if prefix and size > _MAX_PREFIXED:
            raise TooLargeError(
                f"{segment.name} does not fit a flatbuffer vector",
                expected=f"at most {_MAX_PREFIXED} bytes",
                actual=f"{size} bytes",
            )
        padding = offset - prefix - end
        yield Placement(segment.name, offset, size, segment.alignment, padding, bool(prefix))
        end = offset + size
