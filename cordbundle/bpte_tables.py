"""Where everything stands in a bundled program (`.bpte`): program, segments, named data, tensors.

Rules of this file: records are read from the metadata when they are asked for, and a field that
speaks of a segment is an index + 1, 0 for none; no tensor is made and nothing is checked here but
indices and ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from cordbundle import bpte_schema as schema
from cordbundle.artifact import Artifact
from cordbundle.cord import Cord
from cordbundle.flatbuffer import Reader, byte_range
from cordbundle.layout import LENGTH_PREFIX_SIZE, Layout, Placement, Segment

__all__ = ["SHOWN", "BundleTables", "Form", "SegmentUse"]

SHOWN = 80
"""Characters of a method's name that messages and names show; a file may repeat it many times."""

Form: TypeAlias = Literal["bp08", "segmented", "detached"]
"""How a bundle holds its program; see `cordbundle.bundle`."""


@dataclass(frozen=True, slots=True)
class SegmentUse:
    """What a segment is for.

    Attributes:
        names: What uses it; equal blobs share a segment.
        is_vector: Whether a flatbuffer field points to it, so that its length stands before it.
    """

    names: tuple[str, ...]
    is_vector: bool


class BundleTables(Artifact[schema.BundledProgram]):
    """An open bundled program, as far as its tables go."""

    KINDS = (schema.BUNDLED_PROGRAM_IDENTIFIER, schema.SEGMENTED_IDENTIFIER)
    ROOT = schema.BundledProgram

    def reader(self) -> Reader:
        """Return a new reader of the metadata and of the vectors that stand after it."""
        return Reader(self.cord, name=self.name, metadata=self.metadata_end)

    def _metadata_size(self) -> int:
        program = None if self.header else self.root.program
        return self.metadata_end - (len(program) if isinstance(program, Cord) else 0)

    @property
    def form(self) -> Form:
        """How the bundle holds its program; see `cordbundle.bundle`."""
        if self.kind.identifier == schema.SEGMENTED_IDENTIFIER:
            return "segmented"
        return "bp08" if self.root.program else "detached"

    @property
    def digests(self) -> tuple[bytes | None, ...]:
        """The stored xxh3-128 of each segment, in the order of the segment table."""
        return tuple(
            None if digest is None else bytes(digest)
            for digest in (segment.xxh3_128 for segment in self._walk_root().segments or ())
        )

    @property
    def program(self) -> Cord:
        """The program, byte for byte as it was bundled; empty in a detached bundle."""
        if self.root.program_segment:
            return self.segment(self.root.program_segment - 1, "the program")
        data = self.root.program
        return data if isinstance(data, Cord) else Cord()

    @property
    def program_offset(self) -> int:
        """Where the program stands in the file, in bytes; 0 in a detached bundle."""
        if self.root.program_segment:
            index = self.root.program_segment - 1
            self.segment(index, "the program")  # raises if there is none
            return self.segment_ranges[index].offset
        place = byte_range(self.root, "program")
        return place.offset if place is not None and place.size else 0

    @cached_property
    def named_data(self) -> Mapping[str, Cord]:
        """The named data by key, by reference, in file order.

        Raises:
            FormatError: The metadata is damaged, or a key without a segment.
            TruncatedError: A segment that passes the end of the file.
        """
        found: dict[str, Cord] = {}
        for entry in self._walk_root().named_data or ():
            key, index = entry.key or "", entry.segment_index
            if key not in found:  # as in programs, where the runtime takes the first
                found[key] = self.segment(index, f"key {key!r}")
        return found

    @property
    def layout(self) -> Layout:
        """Where everything stands; empty in foreign bundles. O(tensors); no payload is read."""
        placements, segments = [], []
        end = self.metadata_end
        for number, (place, use) in enumerate(zip(self.segment_ranges, self.uses, strict=True)):
            name = use.names[0] if use.names else f"segment {number}"
            start = place.offset - (LENGTH_PREFIX_SIZE if use.is_vector else 0)
            size, data = place.size, self.segment(number, name)
            placements.append(Placement(name, place.offset, size, 1, start - end, use.is_vector))
            segments.append(Segment(name, data, 1, use.is_vector))
            end = place.end
        base = self.header.segment_base_offset if self.header else 0
        return Layout(self.metadata_end, base, tuple(placements), tuple(segments))

    @cached_property
    def uses(self) -> tuple[SegmentUse, ...]:
        """What each segment is for, by its place in the segment table. O(tensors).

        Raises:
            FormatError: The metadata is damaged.
        """
        names: dict[int, list[str]] = {}
        if self.root.program_segment:
            names[self.root.program_segment - 1] = ["program"]
        for tensor, name in self.tensors():
            if tensor.data_segment:
                names.setdefault(tensor.data_segment - 1, []).append(name)
        vectors = set() if self.form == "segmented" else set(names)
        for entry in self._walk_root().named_data or ():
            key = (entry.key or "")[:SHOWN]
            names.setdefault(entry.segment_index, []).append(f"named data {key!r}")
        return tuple(
            SegmentUse(tuple(names.get(number, ())), number in vectors)
            for number in range(len(self.segment_ranges))
        )

    def tensors(self) -> Iterator[tuple[schema.Tensor, str]]:
        """Yield the records of all tensors with a name that says where they belong."""
        for value, name in self.values():
            tensor = value.val
            if isinstance(tensor, schema.Tensor):
                yield tensor, name

    def suite_records(self) -> Iterator[tuple[schema.BundledMethodTestSuite, str]]:
        """Yield the records of all suites with the names of their methods, shortened."""
        for suite in self._walk_root().method_test_suites or ():
            yield suite, (suite.method_name or "")[:SHOWN]

    def values(self) -> Iterator[tuple[schema.Value, str]]:
        """Yield the records of all inputs and expected outputs, named in the same way."""
        for suite, name in self.suite_records():
            for number, case in enumerate(suite.test_cases or ()):
                for word, values in (
                    ("input", case.inputs),
                    ("expected output", case.expected_outputs),
                ):
                    for place, value in enumerate(values or ()):
                        yield value, f"{name}/{number}/{word} {place}"
