"""Bundled programs (`.bpte`): reading, from any writer.

Rules of this file: suites are read when they are asked for, tensors when they are touched; the
program is a Cord over the file. ExecuTorch's own bundles are one flatbuffer around the program;
ours have a header and a segment table besides (`docs/format.md`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from cordbundle import bpte_schema as schema
from cordbundle.artifact import Artifact, SegmentRange, segment_findings
from cordbundle.bundle_check import check_bundle
from cordbundle.cord import Cord
from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Finding, Reader, byte_range, verify
from cordbundle.layout import Layout, Placement, Segment
from cordbundle.suites import MethodTestCase, MethodTestSuite
from cordbundle.tensors import ScalarType, TensorView

if TYPE_CHECKING:
    from cordbundle.bundling import Form

__all__ = ["BundleFile"]

LENGTH_SIZE = 4
"""Bytes of the length before a flatbuffer vector."""


class BundleFile(Artifact):
    """An open bundled program; made by `cordbundle.open`."""

    KINDS = (schema.BUNDLED_PROGRAM_IDENTIFIER, schema.SEGMENTED_IDENTIFIER)

    @cached_property
    def _root(self) -> schema.BundledProgram:
        return Reader(self.cord, name=self.name).root(schema.BundledProgram)

    @property
    def metadata_end(self) -> int:
        """First byte after the metadata, in bytes; the end of the file where there is no header."""
        return self.header.metadata_end if self.header else len(self.cord)

    @property
    def form(self) -> Form:
        """How the bundle holds its program; see `cordbundle.bundle`."""
        if self.kind.identifier == schema.SEGMENTED_IDENTIFIER:
            return "segmented"
        return "bp08" if self._root.program else "detached"

    @cached_property
    def suites(self) -> tuple[MethodTestSuite, ...]:
        """The test suites in file order. O(test cases); no tensor is touched.

        Raises:
            FormatError: The metadata is damaged, or a value that no bundle can hold.
        """
        return tuple(
            MethodTestSuite(
                suite.method_name or "",
                [
                    self._case(case, f"method {suite.method_name!r}, case {number}")
                    for number, case in enumerate(suite.test_cases or ())
                ],
            )
            for suite in self._root.method_test_suites or ()
        )

    def suite(self, method_name: str) -> MethodTestSuite:
        """Return the suite of a method; the first one, as the runtime does.

        Raises:
            KeyError: There is none.
        """
        for suite in self.suites:
            if suite.method_name == method_name:
                return suite
        raise KeyError(method_name)

    def _case(self, case: schema.BundledMethodTestCase, where: str) -> MethodTestCase:
        return MethodTestCase(
            [self._value(v.val, f"{where}, input {i}") for i, v in enumerate(case.inputs or ())],
            [
                self._value(v.val, f"{where}, output {i}")
                for i, v in enumerate(case.expected_outputs or ())
            ],
        )

    def _value(
        self, value: schema.ValueUnion | None, where: str
    ) -> TensorView | bool | int | float:
        if isinstance(value, schema.Tensor):
            return self._tensor(value, where)
        if isinstance(value, schema.Bool):
            return value.bool_val
        if isinstance(value, schema.Int):
            return value.int_val
        if isinstance(value, schema.Double):
            return value.double_val
        raise FormatError(f"{where} has no value", source=self.name)

    def _tensor(self, tensor: schema.Tensor, where: str) -> TensorView:
        scalar_type = ScalarType.get(tensor.scalar_type)
        if scalar_type is None:
            raise FormatError(
                f"{where} has an unknown scalar type", source=self.name, actual=tensor.scalar_type
            )
        data = self._segment(tensor.data_segment, where) if tensor.data_segment else tensor.data
        order = None if tensor.dim_order is None else tuple(tensor.dim_order)
        sizes = tuple(tensor.sizes or ())
        return TensorView(scalar_type, sizes, order, _fitted(data, scalar_type, sizes))

    @cached_property
    def segment_ranges(self) -> tuple[SegmentRange, ...]:
        """Where the segments stand, in the order of the segment table; none in foreign bundles."""
        base = self.header.segment_base_offset if self.header else 0
        return tuple(
            SegmentRange(base + segment.offset, segment.size)
            for segment in self._root.segments or ()
        )

    @property
    def digests(self) -> tuple[bytes | None, ...]:
        """The stored xxh3-128 of each segment, in the order of the segment table."""
        return tuple(
            None if segment.xxh3_128 is None else bytes(segment.xxh3_128)
            for segment in self._root.segments or ()
        )

    def _segment(self, number: int, what: str) -> Cord:
        """Return the segment that a field with index + 1 speaks of."""
        ranges = self.segment_ranges
        if number > len(ranges):
            raise FormatError(
                f"segment of {what} does not exist",
                source=self.name,
                expected=f"an index below {len(ranges)}",
                actual=number - 1,
            )
        place = ranges[number - 1]
        return self.range_of(place.offset, place.size, what)

    @property
    def program(self) -> Cord:
        """The program, byte for byte as it was bundled; empty in a detached bundle."""
        if self._root.program_segment:
            return self._segment(self._root.program_segment, "the program")
        data = self._root.program
        return data if isinstance(data, Cord) else Cord()

    @property
    def program_offset(self) -> int:
        """Where the program stands in the file, in bytes; 0 in a detached bundle."""
        if self._root.program_segment:
            return self.segment_ranges[self._root.program_segment - 1].offset
        place = byte_range(self._root, "program")
        return place.offset if place is not None and place.size else 0

    @property
    def named_data(self) -> Mapping[str, Cord]:
        """The named data by key, by reference, in file order."""
        return {
            entry.key or "": self._segment(entry.segment_index + 1, f"key {entry.key!r}")
            for entry in self._root.named_data or ()
        }

    @property
    def layout(self) -> Layout:
        """Where everything stands; empty in foreign bundles. O(tensors); no payload is read."""
        uses = self._uses()
        placements, segments = [], []
        end = self.metadata_end
        for number, place in enumerate(self.segment_ranges):
            name, is_vector = uses.get(number, (f"segment {number}", False))
            start = place.offset - (LENGTH_SIZE if is_vector else 0)
            data = self._segment(number + 1, name)
            placements.append(Placement(name, place.offset, place.size, 1, start - end, is_vector))
            segments.append(Segment(name, data, 1, is_vector))
            end = place.offset + place.size
        base = self.header.segment_base_offset if self.header else 0
        return Layout(self.metadata_end, base, tuple(placements), tuple(segments))

    def _uses(self) -> dict[int, tuple[str, bool]]:
        """Return what each segment is for, and whether a flatbuffer field points to it."""
        by_offset = self.form != "segmented"
        uses = {
            entry.segment_index: (f"named data {entry.key!r}", False)
            for entry in self._root.named_data or ()
        }
        uses.update(
            (tensor.data_segment - 1, (name, by_offset))
            for tensor, name in self.tensors()
            if tensor.data_segment
        )
        if self._root.program_segment:
            uses[self._root.program_segment - 1] = ("program", by_offset)
        return uses

    def tensors(self) -> Iterator[tuple[schema.Tensor, str]]:
        """Yield the records of all tensors with a name that says where they belong."""
        for suite in self._root.method_test_suites or ():
            for number, case in enumerate(suite.test_cases or ()):
                for word, values in (
                    ("input", case.inputs),
                    ("expected output", case.expected_outputs),
                ):
                    for place, value in enumerate(values or ()):
                        if isinstance(value.val, schema.Tensor):
                            yield value.val, f"{suite.method_name}/{number}/{word} {place}"

    def verify(self) -> list[Finding]:
        """Check everything that the format promises and return all that is wrong, by offset.

        Recomputes every digest, so it reads the whole file, through 1 MiB of memory. The program
        inside is checked as `PteFile.verify` does.
        """
        findings = verify(Reader(self.cord, name=self.name), schema.BundledProgram)
        if findings:
            return findings  # offsets cannot be trusted any further
        findings += segment_findings(
            self.segment_ranges, self.header, self.metadata_end, len(self.cord)
        )
        if findings:
            return findings
        return sorted(check_bundle(self, self._root), key=lambda finding: finding.offset)


def _fitted(data: object, scalar_type: ScalarType, sizes: tuple[int, ...]) -> Cord:
    """Return the bytes that a tensor needs; writers may store more, as the runtime allows."""
    cord = data if isinstance(data, Cord) else Cord()
    return cord[: math.prod(sizes) * scalar_type.itemsize]
