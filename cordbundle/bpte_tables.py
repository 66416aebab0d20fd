"""Where everything stands in a bundled program (`.bpte`): program, segments, named data, tensors.

Rules of this file: records are read from the metadata when they are asked for, and a field that
speaks of a segment is an index + 1, 0 for none; no tensor is made and nothing is checked here but
indices and ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

from cordbundle import bpte_schema as schema
from cordbundle.artifact import Artifact
from cordbundle.cord import Cord
from cordbundle.flatbuffer import Reader, byte_range
from cordbundle.layout import LENGTH_PREFIX_SIZE, Layout, Placement, Segment

__all__ = ["SHOWN", "BundleTables", "Form"]

SHOWN = 80
"""Characters of a method's name that messages and names show; a file may repeat it many times."""

Form: TypeAlias = Literal["bp08", "segmented", "detached"]
"""How a bundle holds its program; see `cordbundle.bundle`."""


class BundleTables(Artifact):
    """An open bundled program, as far as its tables go."""

    KINDS = (schema.BUNDLED_PROGRAM_IDENTIFIER, schema.SEGMENTED_IDENTIFIER)
    ROOT = schema.BundledProgram

    def reader(self) -> Reader:
        """Return a new reader of the metadata and of the vectors that stand after it."""
        return Reader(self.cord, name=self.name)

    @cached_property
    def root(self) -> schema.BundledProgram:
        """The root table of the metadata; each field is read when it is asked for.

        Raises:
            FormatError: The metadata is damaged.
        """
        return self.reader().root(schema.BundledProgram)

    def _metadata_size(self) -> int:
        program = None if self.header else self.root.program
        return self.metadata_end - (len(program) if isinstance(program, Cord) else 0)

    def _walk_root(self) -> schema.BundledProgram:
        return self.walk().root(schema.BundledProgram)

    def _segment_table(self) -> Iterable[schema.DataSegment]:
        return self._walk_root().segments or ()

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
        entries = [(one.key or "", one.segment_index) for one in self._walk_root().named_data or ()]
        return {key: self.segment(index, f"key {key!r}") for key, index in entries}

    @property
    def layout(self) -> Layout:
        """Where everything stands; empty in foreign bundles. O(tensors); no payload is read."""
        uses = self.uses()
        vectors = self._vectors()
        placements, segments = [], []
        end = self.metadata_end
        for number, place in enumerate(self.segment_ranges):
            name = uses.get(number, [f"segment {number}"])[0]
            is_vector = number in vectors
            start = place.offset - (LENGTH_PREFIX_SIZE if is_vector else 0)
            data = self.segment(number, name)
            placements.append(Placement(name, place.offset, place.size, 1, start - end, is_vector))
            segments.append(Segment(name, data, 1, is_vector))
            end = place.offset + place.size
        base = self.header.segment_base_offset if self.header else 0
        return Layout(self.metadata_end, base, tuple(placements), tuple(segments))

    def uses(self) -> dict[int, list[str]]:
        """Return what each segment is for, by index; equal blobs share one. O(tensors)."""
        uses: dict[int, list[str]] = {}
        if self.root.program_segment:
            uses[self.root.program_segment - 1] = ["program"]
        for tensor, name in self.tensors():
            if tensor.data_segment:
                uses.setdefault(tensor.data_segment - 1, []).append(name)
        for entry in self._walk_root().named_data or ():
            key = (entry.key or "")[:SHOWN]
            uses.setdefault(entry.segment_index, []).append(f"named data {key!r}")
        return uses

    def _vectors(self) -> set[int]:
        """Return the segments that a flatbuffer field points to, before which a length stands."""
        if self.form == "segmented":
            return set()
        vectors = {tensor.data_segment - 1 for tensor, _ in self.tensors() if tensor.data_segment}
        if self.root.program_segment:
            vectors.add(self.root.program_segment - 1)
        return vectors

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
