"""Change parts of a program (`.pte`) and leave the rest as it is.

Rules of this file: an editor collects what is asked for and refuses what cannot be; nothing else
changes, offsets included, as long as it can; payload goes by reference; every change is noted. How
metadata changes is metadata.py's business, where things stand assembly.py's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from cordbundle import program as schema
from cordbundle.cord import Cord
from cordbundle.errors import DuplicateKeyError, FormatError, LayoutError
from cordbundle.flatbuffer import Reader, byte_range
from cordbundle.inputs import blob_cord
from cordbundle.layout import Blobs, check_alignment
from cordbundle.named_data import check_key
from cordbundle.pte import PteFile
from cordbundle.rewriting.assembly import Draft, Entry, Original, assemble
from cordbundle.rewriting.metadata import Inline, Named, inline_alignment
from cordbundle.rewriting.relayout import MAX_GAP, Part, split
from cordbundle.rewriting.uses import constant_sizes, inline_delegates, named_uses, static_uses
from cordbundle.rewriting.whole import Rewrite

if TYPE_CHECKING:
    from cordbundle.bpte import BundleFile
    from cordbundle.ptd import PtdFile

__all__ = ["PteEditor"]

SEGMENT_ALIGNMENT = 128  # ExecuTorch's default


class PteEditor:
    """Change parts of a program (`.pte`) and leave the rest as it is.

    Nothing is written, and the source stays as it is; `finish` returns the new file. Segments keep
    their indices: one that loses its data stays in the table with size 0, new ones are appended or
    take such a place. Where sizes change, what follows moves by as little as the alignments allow;
    each segment keeps the alignment that the file gave it, the largest power of two that divides
    its offset and the segment base.

    The editor keeps what it needs of the file, which may be closed. Use it in one thread.

    Args:
        file: An open program, whose structure is checked. O(metadata), and bytes between segments
            are read.

    Raises:
        FormatError: The file is damaged.
        TypeError: It is no program.
    """

    def __init__(self, file: PteFile | PtdFile | BundleFile) -> None:
        if not isinstance(file, PteFile):
            raise TypeError(f"{file!r} is no program")
        file.check_structure()
        metadata = file.cord[: file.metadata_end]
        root = Reader(metadata, name=file.name).root(schema.Program)
        base = file.header.segment_base_offset if file.header else 0
        self._fixed = static_uses(root)
        keys = named_uses(root)
        segments = [
            Part(_label(n, [*self._fixed.get(n, ()), *keys.get(n, ())]), place.offset, place.size)
            for n, place in enumerate(file.segment_ranges)
        ]
        parts = split(file.cord, file.metadata_end, base, segments, file.name)
        self._source = Original(file.name, file.header, metadata, root, parts, base, len(file.cord))
        self._entries = [Entry(p.name, Cord(), 1, 0, p.offset - base, p.size) for p in segments]
        for piece in parts.pieces:
            if piece.part is not None:
                entry = self._entries[piece.part]
                entry.data, entry.alignment = piece.segment.data, piece.segment.alignment
                entry.lead = piece.lead
        self._named = list[Named]()
        for number, one in enumerate(root.named_data or ()):
            file.segment_range(one.segment_index, f"key {one.key!r}")  # raises if there is none
            self._named.append(Named(one.key or "", one.segment_index, number))
        self._default = _common_alignment(self._entries)
        self._alignment = 1
        self._constants: dict[int, Cord] = {}
        self._inline: Inline | None = None
        self._notes: list[str] = []

    def __reduce__(self) -> tuple[object, ...]:  # for copies too
        raise TypeError(f"changes of {self._source.name!r} are made in one place; finish() them")

    def replace_segment(self, index: int, data: object) -> None:
        """Replace the bytes of a segment, whoever uses it.

        Args:
            index: Its index in the segment table.
            data: Path, bytes-like object, Cord or array.

        Raises:
            IndexError: No such segment.
            LayoutError: Another size, where constants or initial values are cut from it.
        """
        entry = self._entries[_checked_index(index, len(self._entries), "segment")]
        blob = blob_cord(data)
        cut = [use for use in self._fixed.get(index, ()) if use in ("constants", "mutable data")]
        if cut and entry.data and len(blob) != len(entry.data):
            raise LayoutError(
                f"{entry.label}: its size cannot change, since tensors are cut from it",
                source=self._source.name,
                expected=f"{len(entry.data)} bytes",
                actual=f"{len(blob)} bytes",
            )
        self._replace(entry, blob)

    def _replace(self, entry: Entry, blob: Cord) -> None:
        if not entry.data:
            entry.alignment, entry.lead = self._default, 0
        entry.data = blob
        self._notes.append(f"{entry.label}: data replaced, {len(blob)} bytes")

    def replace_named_data(self, key: str, data: object) -> None:
        """Replace the blob of a key; other keys and delegates that share it keep the old one.

        Args:
            key: The key.
            data: Path, bytes-like object, Cord or array.

        Raises:
            KeyError: No such key.
        """
        number = self._numbers()[key]
        named, blob = self._named[number], blob_cord(data)
        users = Counter(entry.segment for entry in self._named)
        if users[named.segment] == 1 and named.segment not in self._fixed:
            self._replace(self._entries[named.segment], blob)
            return
        alignment = self._entries[named.segment].alignment
        segment = self._add(self._free(), f"key {key!r}", blob, alignment)
        self._named[number] = replace(named, segment=segment)
        label = self._entries[named.segment].label
        self._notes.append(f"key {key!r}: data replaced, {len(blob)} bytes; {label} stays as it is")

    def replace_constant(self, index: int, data: object) -> None:
        """Replace a constant tensor's bytes, in a segment or in the metadata.

        Args:
            index: The constant, as `Tensor.data_buffer_idx` counts them; 0 stands for none.
            data: Path, bytes-like object, Cord or array, in the order in which the tensors that
                refer to the constant have it: this project compares sizes, not scalar types.

        Raises:
            IndexError: No such constant.
            LayoutError: Another size than tensors need, or a constant that none refers to.
            FormatError: The old constant is outside its segment.
        """
        blob, needed = blob_cord(data), self._constant_sizes.get(index, 0)
        table = self._source.root.constant_segment
        offsets = () if table is None else table.offsets or ()
        inline = self._source.root.constant_buffer or ()
        _checked_index(index, max(len(offsets), len(inline)), "constant", first=1)
        if len(blob) != needed:
            raise LayoutError(
                f"constant {index} is of another size than the tensors that refer to it",
                source=self._source.name,
                expected=f"{needed} bytes" if needed else "no data, as no tensor refers to it",
                actual=f"{len(blob)} bytes",
            )
        if table is None or not offsets:
            place = byte_range(inline[index], "storage")
            self._check_room(index, needed, 0, place.size if place else 0)
            self._constants[index] = blob
            at = place.offset if place else 0
        else:
            entry = self._entries[
                _checked_index(table.segment_index, len(self._entries), "segment")
            ]
            start = offsets[index]
            self._check_room(index, needed, start, len(entry.data))
            entry.data = entry.data[:start] + blob + entry.data[start + needed :]
            at = self._source.base + (entry.offset or 0) + start
        self._notes.append(f"constant {index}: data replaced, {needed} bytes at offset {at}")

    @cached_property
    def _constant_sizes(self) -> dict[int, int]:
        return constant_sizes(self._source.root, self._source.name)

    def _check_room(self, index: int, needed: int, start: int, size: int) -> None:
        if start + needed > size:
            raise FormatError(
                f"constant {index} passes the end of where it is stored",
                source=self._source.name,
                expected=f"an end at or before {size}",
                actual=start + needed,
            )

    def align_segments(self, alignment: int) -> None:
        """Raise the alignment of all segments, new ones too; none loses what it has.

        Args:
            alignment: What offsets from the start of the file are to be multiples of, in bytes.

        Raises:
            LayoutError: No number from 1 to 1 MiB. A common multiple with the alignments of the
                file that passes 1 MiB is refused by `finish`.
        """
        check_alignment(alignment, "segments")
        self._alignment = math.lcm(self._alignment, alignment)

    def move_out(self, keys: Iterable[str]) -> dict[str, Cord]:
        """Take named data out of the program, to put it into a `.ptd` file.

        A segment that nothing else uses is left empty.

        Args:
            keys: Which.

        Returns:
            The blobs by key, for `cordbundle.serialize_ptd`.

        Raises:
            KeyError: No such key; nothing is moved.
            TypeError: One string instead of several.
        """
        if isinstance(keys, str):
            raise TypeError("keys is one string; give a list of keys")
        numbers = self._numbers()
        leaving = {key: numbers[key] for key in keys}
        moved = {
            key: self._entries[self._named[number].segment].data for key, number in leaving.items()
        }
        segments = {key: self._named[number].segment for key, number in leaving.items()}
        gone = set(leaving.values())
        self._named = [named for n, named in enumerate(self._named) if n not in gone]
        users = Counter(named.segment for named in self._named)
        for key, segment in segments.items():
            entry, size = self._entries[segment], len(moved[key])
            is_free = not users[segment] and segment not in self._fixed
            what = "is left empty" if is_free else "stays for others"
            self._notes.append(f"key {key!r}: moved out, {size} bytes; {entry.label} {what}")
            if is_free:
                entry.data, entry.alignment, entry.lead = Cord(), 1, 0
        return moved

    def move_in(
        self, named_data: Mapping[str, object] | PtdFile, *, alignment: int | None = None
    ) -> None:
        """Put named data into the program; equal blobs of one call into one segment.

        Args:
            named_data: Path, bytes-like object, Cord or array by key, or open weights, of whose
                tensors the bytes are taken.
            alignment: Their alignment in bytes. If None, the one that all segments of the file
                have, or at most 128 where there are fewer than two to tell it by.

        Raises:
            DuplicateKeyError: A key that the program has; nothing is moved.
            LayoutError: A key or alignment that cannot be stored, or an alignment of the file that
                would take more padding than there is data; nothing is moved.
        """
        wanted = self._default if alignment is None else alignment
        check_alignment(wanted, "named data")
        given = {check_key(key): blob_cord(named_data[key]) for key in named_data}
        known = {named.key for named in self._named}
        for key in given:
            if key in known:
                raise DuplicateKeyError("the program has this key", source=f"key {key!r}")
        if alignment is None:
            self._check_waste(wanted, given.values(), "give the alignment that you want")
        blobs, segments, free = Blobs(), list[int](), self._free()
        for key, blob in given.items():
            number = blobs.find(blob)
            if number == len(segments):
                segments.append(self._add(free, f"key {key!r}", blob, wanted))
            self._named.append(Named(key, segments[number]))
            label = self._entries[segments[number]].label
            self._notes.append(f"key {key!r}: moved in, {len(blob)} bytes in {label}")

    def extract_delegates(self) -> None:
        """Move delegate payloads out of the metadata into segments, equal ones into one.

        Each is aligned as it was, and at least as the segments of the file are. Empty payloads and
        those that no delegate refers to stay. The metadata is encoded anew; no payload is copied.

        Raises:
            FormatError: A delegate refers to a payload that does not exist.
            LayoutError: An alignment of the file that would take more padding than there is data.
        """
        if self._inline is not None:
            return
        payloads = self._source.root.backend_delegate_data or ()
        alignment = math.lcm(self._default, inline_alignment(payloads, "data"))
        cause = "its alignments may have been made up to make a large file of it"
        self._check_waste(alignment, [blob_cord(one.data or b"") for one in payloads], cause)
        blobs, segments, moved = Blobs(), list[int](), dict[tuple[int, int], int]()
        left, free = set(range(len(payloads))), self._free()
        for delegate in list(inline_delegates(self._source.root, self._source.name)):
            data = blob_cord(payloads[delegate.payload].data or b"")
            if not data:
                continue
            number = blobs.find(data)
            if number == len(segments):
                segments.append(self._add(free, delegate.name, data, alignment))
            moved[delegate.method, delegate.index] = segments[number]
            self._fixed.setdefault(segments[number], []).append(delegate.name)
            left.discard(delegate.payload)
            label = self._entries[segments[number]].label
            self._notes.append(
                f"{delegate.name}: payload moved from the metadata, {len(data)} bytes, to {label}"
            )
        if moved:
            self._inline = Inline(moved, sorted(left))

    def finish(self) -> Rewrite:
        """Return the program with all changes so far; more may follow, and another `finish`.

        Returns:
            The new file, by reference. O(metadata). Without changes it is the source, offsets
            included, put together anew.

        Raises:
            LayoutError: Alignments whose common multiple passes 1 MiB, or metadata that has to be
                made anew and holds fields of a newer schema.
            TooLargeError: Metadata that passes 2 GiB.
        """
        draft = Draft(self._entries, self._named, self._constants, self._inline, self._alignment)
        cord, layout, changes = assemble(self._source, draft)
        return Rewrite(cord, layout, (*self._notes, *changes))

    def _check_waste(self, alignment: int, blobs: Iterable[Cord], cause: str) -> None:
        """Refuse an alignment that nobody asked for where it would blow the file up."""
        sizes = list(map(len, blobs))
        padding = alignment * len(sizes)
        most = self._source.size + sum(sizes) + MAX_GAP
        if padding > most:
            raise LayoutError(
                f"alignment {alignment}, taken from the file, would waste space",
                source=self._source.name,
                expected=f"at most {most} bytes of padding",
                actual=f"up to {padding} bytes for {len(sizes)} new segments",
                cause=cause,
            )

    def _numbers(self) -> dict[str, int]:
        """Return the number of each key; the first one, as the runtime does."""
        numbers: dict[str, int] = {}
        for number, named in enumerate(self._named):
            numbers.setdefault(named.key, number)
        return numbers

    def _free(self) -> Iterator[int]:
        """Return the empty segments that nothing uses."""
        used = {named.segment for named in self._named} | self._fixed.keys()
        empty = [index for index, entry in enumerate(self._entries) if not entry.data]
        return iter([index for index in empty if index not in used])

    def _add(self, free: Iterator[int], use: str, data: Cord, alignment: int) -> int:
        """Put data into a free segment or, if there is none left, into a new one."""
        index = next(free, None)
        if index is not None:
            entry = self._entries[index]
            entry.data, entry.alignment, entry.lead = data, alignment, 0
            return index
        self._entries.append(Entry(_label(len(self._entries), [use]), data, alignment))
        return len(self._entries) - 1


def _common_alignment(entries: Iterable[Entry]) -> int:
    """Return what new segments are aligned to: as all others, if there are enough to tell."""
    alignments = [entry.alignment for entry in entries if entry.data]
    if len(alignments) < 2:  # a single offset may be a multiple of anything by chance
        alignments.append(SEGMENT_ALIGNMENT)
    return min(alignments)


def _label(index: int, uses: list[str]) -> str:
    more = f" and {len(uses) - 3} more" if len(uses) > 3 else ""
    return f"segment {index}" + (f" ({', '.join(uses[:3])}{more})" if uses else "")


def _checked_index(index: int, count: int, what: str, first: int = 0) -> int:
    if not first <= index < count:
        raise IndexError(f"no {what} {index}: there are {first} to {count - 1}")
    return index
