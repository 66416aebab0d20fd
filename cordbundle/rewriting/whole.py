"""Take an open file apart into head and segments, and lay it out again.

Rules of this file: it knows where each format says its segments are; where they stand is
relayout.py's business; nothing is changed here, and payload goes by reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordbundle.bpte import BundleFile
from cordbundle.cord import Cord
from cordbundle.layout import LENGTH_PREFIX_SIZE, Layout
from cordbundle.ptd import PtdFile
from cordbundle.pte import PteFile
from cordbundle.rewriting.relayout import Part, split
from cordbundle.writer import WriteReport, write

if TYPE_CHECKING:
    from cordbundle.writer import Durability, Progress, Target

__all__ = ["Rewrite", "rewrite"]


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """A file that is planned anew and can be written any number of times.

    Attributes:
        cord: All bytes of the file, by reference.
        layout: Where everything stands. Empty segments take no place and are not listed.
        changes: What differs from the source, in words, with offsets and sizes in bytes before and
            after; empty if nothing does.
    """

    cord: Cord
    layout: Layout
    changes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.cord)

    def write(
        self,
        target: Target,
        *,
        durability: Durability = "file",
        progress: Progress | None = None,
    ) -> WriteReport:
        """Write the file; see `cordbundle.write`."""
        return write(self.cord, target, durability=durability, progress=progress)


def rewrite(file: PteFile | PtdFile | BundleFile) -> Rewrite:
    """Take an open file of any kind apart and lay it out again, unchanged.

    What the metadata calls a segment is one; in a bundle without a segment table its program is.
    Bytes between and after them that are no padding are kept as segments of their own.

    Args:
        file: The open file.

    Returns:
        The same bytes, put together from head and segments, and where they stand. O(segments);
        bytes between segments are read.

    Raises:
        FormatError: A segment overlaps another or the metadata, or passes the end of the file.
    """
    base = file.header.segment_base_offset if file.header else 0
    end = file.metadata_end
    if isinstance(file, BundleFile):
        parts = _bundle_parts(file)
        if file.header is None and parts and not file.segment_ranges:
            end = parts[0].offset - LENGTH_PREFIX_SIZE  # behind it the flatbuffer goes on
    else:
        ranges = file.stored_ranges if isinstance(file, PtdFile) else file.segment_ranges
        parts = [Part(f"segment {n}", one.offset, one.size) for n, one in enumerate(ranges)]
    taken = split(file.cord, end, base, parts, file.name)
    layout = taken.layout
    return Rewrite(taken.head + layout.body(), layout, ())


def _bundle_parts(file: BundleFile) -> list[Part]:
    """Return the segments of a bundle; its program where it has no segment table."""
    placements = file.layout.placements
    if placements:
        return [Part(p.name, p.offset, p.size, p.length_prefix) for p in placements]
    size = len(file.program)
    return [Part("program", file.program_offset, size, True)] if size else []
