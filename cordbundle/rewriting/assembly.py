"""Lay out a changed program (`.pte`): segments, metadata, header, and the list of what differs.

Rules of this file: offsets from the base are settled with the metadata that holds them, the base
with its size; what can stay where it was stays; the list is made by comparing numbers, so that
nothing changes without being in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cordbundle import program as schema
from cordbundle.cord import Cord
from cordbundle.flatbuffer.patch import refuse_unknown
from cordbundle.headers import PROGRAM_HEADER, ExtendedHeader
from cordbundle.layout import Layout, Segment, align_up, check_alignment
from cordbundle.rewriting.metadata import (
    Inline,
    MetadataPlan,
    Named,
    NewMetadata,
    new_metadata,
    with_header,
)
from cordbundle.rewriting.relayout import Parts, Piece, place

__all__ = ["Draft", "Entry", "Original", "assemble"]


@dataclass(frozen=True, slots=True, eq=False)
class Original:
    """A program as it was read.

    Attributes:
        name: Name of the file.
        header: Its extended header.
        metadata: Its flatbuffer, header included.
        root: A view of that.
        parts: The file taken apart.
        base: Its segment base; 0 without a header.
        size: Size of the file in bytes.
    """

    name: str
    header: ExtendedHeader | None
    metadata: Cord
    root: schema.Program
    parts: Parts
    base: int
    size: int


@dataclass(slots=True, eq=False)
class Entry:
    """A segment of the table, as it is to become.

    Attributes:
        label: Its name for people.
        data: Its bytes.
        alignment: What its offset is a multiple of, in bytes.
        lead: Bytes between it and what stood before it in the source.
        offset: Its offset from the base in the source; None if it is new.
        size: Its size in the source.
    """

    label: str
    data: Cord
    alignment: int = 1
    lead: int = 0
    offset: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A program as it is to become.

    Attributes:
        entries: Its segment table.
        named: Its named data.
        constants: Bytes that replace the beginning of inline constants, by number.
        inline: Delegate payloads that leave the metadata; None if all stay.
        alignment: What every segment is aligned to beside its own alignment, in bytes.
    """

    entries: Sequence[Entry]
    named: Sequence[Named]
    constants: Mapping[int, Cord]
    inline: Inline | None
    alignment: int


def assemble(source: Original, draft: Draft) -> tuple[Cord, Layout, list[str]]:
    """Lay out a program.

    Returns:
        The file by reference, where everything stands, and what differs in place and size.

    Raises:
        LayoutError: The common multiple of all alignments is absurd, or metadata that has to be
            made anew has fields of a newer schema.
        TooLargeError: Metadata that passes 2 GiB.
    """
    pieces = _pieces(source, draft)
    common = math.lcm(*(piece.segment.alignment for piece in pieces))
    check_alignment(common, "all segments together")
    extra = source.parts.head[len(source.metadata) :]
    head_size, base = len(source.parts.head), source.base
    plan: MetadataPlan | None = None
    while True:  # ends, since offsets from a base that was moved once do not change any more
        layout = place(pieces, head_size, base)
        table = _table(source, draft, pieces, layout)
        if plan is None or plan.segments != table:
            plan = MetadataPlan(table, draft.named, draft.constants, draft.inline)
            metadata = new_metadata(source.metadata, plan, source.name)
        slot = _header_slot(source, draft, metadata)
        settled = head_size, base
        head_size = len(metadata.cord) + (slot or 0) + len(extra)
        if base == source.base:
            base = _base(source, pieces, head_size, common, is_new=metadata.reason is not None)
        else:  # it never goes back: the head may have the old size for the new base alone
            base = align_up(head_size, common)
        if (head_size, base) == settled:
            break
    header = _header(source, layout, pieces, slot, len(metadata.cord))
    head = metadata.cord
    if slot is not None or header != source.header:
        head = with_header(head, header, slot)
    changes = [
        *_head_changes(source, metadata, header, slot),
        *_place_changes(source, draft, pieces, layout, table),
    ]
    if layout.end != source.size:
        changes.append(f"file: {source.size} -> {layout.end} bytes")
    cord = head + extra + layout.body()
    cord.watch(file for entry in draft.entries for file in entry.data.empty_sources)
    return cord, layout, changes


def _pieces(source: Original, draft: Draft) -> list[Piece]:
    """Return what is to be placed, in the order of the table; kept bytes stay before their part."""
    kept: dict[int | None, list[Piece]] = {}
    waiting: list[Piece] = []
    for piece in source.parts.pieces:
        if piece.part is None:
            waiting.append(piece)
        else:
            kept[piece.part], waiting = waiting, []
    kept[None] = waiting
    pieces: list[Piece] = []
    for number, entry in enumerate(draft.entries):
        pieces += kept.get(number, ())
        if entry.data:
            alignment = math.lcm(entry.alignment, draft.alignment)
            segment = Segment(entry.label, entry.data, alignment)
            pieces.append(Piece(segment, entry.lead, number))
    return pieces + kept[None]


def _table(
    source: Original, draft: Draft, pieces: Sequence[Piece], layout: Layout
) -> list[tuple[int, int]]:
    """Return offset from the base and size of each segment.

    An empty one takes no place. It stays where it was if what follows it does, since exporters
    write all kinds of offsets for it; else it gets that of the next one.
    """
    offsets = {
        piece.part: placement.offset - layout.base
        for piece, placement in zip(pieces, layout.placements, strict=True)
    }
    after = _segments_end(pieces, layout)
    stays = after == _segments_end(source.parts.pieces, source.parts.layout)
    table: list[tuple[int, int]] = []
    for number in reversed(range(len(draft.entries))):
        entry = draft.entries[number]
        if entry.data:
            after = offsets[number]
            stays = entry.size > 0 and entry.offset == after
        offset = after
        if not entry.data and not entry.size and entry.offset is not None and stays:
            offset = entry.offset
        table.append((offset, len(entry.data)))
    return table[::-1]


def _segments_end(pieces: Sequence[Piece], layout: Layout) -> int:
    """Return where the last segment of the table ends, from the base."""
    ends = [
        placement.end - layout.base
        for piece, placement in zip(pieces, layout.placements, strict=True)
        if piece.part is not None
    ]
    return ends[-1] if ends else 0


def _base(
    source: Original, pieces: Sequence[Piece], head_size: int, common: int, *, is_new: bool
) -> int:
    """Return the segment base: the old one if it still does."""
    has_segments = any(piece.part is not None for piece in pieces)
    had_segments = any(piece.part is not None for piece in source.parts.pieces)
    is_same = head_size == len(source.parts.head)
    fits = is_same or (head_size <= source.base and not is_new)
    if fits and source.base % common == 0 and (source.base or had_segments or not has_segments):
        return source.base
    return align_up(head_size, common) if has_segments or source.base else 0


def _header_slot(source: Original, draft: Draft, metadata: NewMetadata) -> int | None:
    """Return how many bytes a header that has to be put in takes; None if none has to be."""
    if source.header is not None and metadata.reason is None:
        return None
    if source.header is not None and source.header.length > PROGRAM_HEADER.length:
        refuse_unknown(["of the extended header"], source.name)
    has_data = any(entry.data for entry in draft.entries)
    has_new_keys = any(entry.origin is None for entry in draft.named)
    if source.header is None and not has_data and not has_new_keys:
        return None
    return align_up(PROGRAM_HEADER.length, metadata.alignment)


def _header(
    source: Original,
    layout: Layout,
    pieces: Sequence[Piece],
    slot: int | None,
    metadata_size: int,
) -> ExtendedHeader | None:
    """Return the values of the header; None if there is none."""
    old = source.header
    if old is None and slot is None:
        return None
    end = _segments_end(pieces, layout)
    size: int | None = end
    if old is not None and old.segment_data_size is not None:
        # by how much the end moves, as the old size may count what follows it
        moved = end - _segments_end(source.parts.pieces, source.parts.layout)
        size = min(old.segment_data_size + moved, max(layout.end - layout.base, 0))
    elif slot is None:
        size = None  # a header of before ExecuTorch 1.0
    return replace(
        old if slot is None and old is not None else ExtendedHeader(),
        flatbuffer_size=metadata_size + (slot or 0),
        segment_base_offset=layout.base,
        segment_data_size=size,
    )


def _head_changes(
    source: Original, metadata: NewMetadata, header: ExtendedHeader | None, slot: int | None
) -> Iterator[str]:
    """Say what differs in metadata and header."""
    size = len(metadata.cord) + (slot or 0)
    sizes = f"{len(source.metadata)} -> {size} bytes"
    if metadata.reason is not None:
        yield f"metadata: encoded anew, since {metadata.reason}: {sizes}"
    elif metadata.appended:
        yield f"metadata: {metadata.appended} bytes appended: {sizes}"
    if header is None:
        return
    old = source.header
    if old is None:
        yield f"extended header: added, {slot} bytes"
        return
    if header.segment_base_offset != old.segment_base_offset:
        yield f"segment base: {old.segment_base_offset} -> {header.segment_base_offset}"
    if header.segment_data_size != old.segment_data_size:
        yield f"segment data: {old.segment_data_size} -> {header.segment_data_size} bytes"


def _place_changes(
    source: Original,
    draft: Draft,
    pieces: Sequence[Piece],
    layout: Layout,
    table: Sequence[tuple[int, int]],
) -> Iterator[str]:
    """Say which segments, and which bytes of no segment, stand elsewhere or have another size."""
    for entry, (offset, size) in zip(draft.entries, table, strict=True):
        new = layout.base + offset
        if entry.offset is None:
            yield f"{entry.label}: added at offset {new}, {size} bytes"
            continue
        old = source.base + entry.offset
        moved = f"offset {old} -> {new}" if old != new else ""
        resized = f"size {entry.size} -> {size}" if entry.size != size else ""
        if moved or resized:
            yield f"{entry.label}: {', '.join(filter(None, (moved, resized)))}"
    places = zip(source.parts.pieces, source.parts.layout.placements, strict=True)
    old_places = {id(piece): placement.offset for piece, placement in places}
    for piece, placement in zip(pieces, layout.placements, strict=True):
        old = old_places.get(id(piece), placement.offset)
        if piece.part is None and old != placement.offset:
            yield f"{placement.name}: offset {old} -> {placement.offset}"
