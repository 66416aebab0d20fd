"""Write bundled programs: an untouched program, its test cases and named data in one file.

Rules of this file: nothing is opened for writing and no payload is read but to find equal blobs;
every offset comes from the layout. The format is described in `docs/format.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from cordbundle import bpte_schema as schema
from cordbundle.bpte_tables import Form
from cordbundle.conformance import CaseValues, SuiteValues, Value, arrange
from cordbundle.cord import Cord, Digest
from cordbundle.digest import DIGEST_SIZE
from cordbundle.errors import LayoutError, TooLargeError
from cordbundle.flatbuffer import Encoded, Far, encode, no_collection
from cordbundle.headers import BUNDLE_HEADER, ExtendedHeader, flatbuffer_with_header
from cordbundle.inputs import blob_cord, program_cord, source_name
from cordbundle.layout import LENGTH_PREFIX_SIZE, Layout, Segment, check_alignment, share
from cordbundle.named_data import check_key
from cordbundle.pte import PteFile
from cordbundle.suites import as_suites
from cordbundle.tensors import TensorDescription
from cordbundle.writer import WriteReport, write

if TYPE_CHECKING:
    from cordbundle.writer import Durability, Progress, Target

__all__ = ["Bundle", "Form", "bundle", "check_program_alignment"]

HEADER_SLOT = 64  # the extended header and the zeros behind it
TENSOR_ALIGNMENT = 64  # of a tensor that is a segment
VECTOR_ALIGNMENT = 32  # of the program where it is a flatbuffer vector; the schema's force_align
SEGMENT_THRESHOLD = 4096  # a tensor of so many bytes is a segment
MIN_PROGRAM_ALIGNMENT = 16
MAX_UOFFSET = (1 << 32) - 1  # what a flatbuffer offset or length can say


_Place: TypeAlias = tuple[str, int, str, int]  # method, case, word, index; a name where needed


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A bundle that is planned and can be written any number of times.

    Attributes:
        cord: All bytes of the file, by reference.
        layout: Where everything stands.
        form: The form that was chosen.
        notes: What a user should know: tensors stored in another order than given, outputs that
            the device compares bit by bit, cases that cannot be verified.
    """

    cord: Cord
    layout: Layout
    form: Form
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return self.layout.end

    def write(
        self,
        target: Target,
        *,
        durability: Durability = "file",
        progress: Progress | None = None,
    ) -> WriteReport:
        """Write the file; see `cordbundle.write`."""
        return write(self.cord, target, durability=durability, progress=progress)


def bundle(
    program: object,
    method_test_suites: Iterable[object],
    *,
    named_data: Mapping[str, object] | None = None,
    form: Form | Literal["auto"] = "auto",
    alignment: int = 4096,
    digest: bool = True,
    check: bool = True,
) -> Bundle:
    """Bundle a program with test cases; the program's bytes stay as they are.

    Args:
        program: Path, bytes-like object, Cord or ExecuTorch program manager.
        method_test_suites: At most one `MethodTestSuite` for each method; ExecuTorch's own are
            taken as well.
        named_data: Blobs to carry along, by key: path, bytes-like object, Cord or array.
        form: "bp08" is read by the ExecuTorch runtimes that exist and ends below 4 GiB; "segmented"
            has no limit, and its program is found through the segment table; "detached" holds the
            tests alone, to stand beside the program's own file; "auto" is "bp08".
        alignment: Absolute alignment of the program in bytes, a power of two from 16.
        digest: Whether to store xxh3-128 digests of all segments and of the metadata. They are
            taken while the bytes are written.
        check: Whether to compare the test cases with the program's methods and to arrange tensors
            in the methods' dim orders. Without it everything is stored as it is given.

    Returns:
        The planned bundle. O(test cases); payload is read only to compare blobs of equal size, and
        to copy tensors below 4 KiB, which are part of the metadata. Arrays have to stay as they are
        until the bundle is written.

    Raises:
        CaseMismatchError: A test case that does not fit its method.
        DuplicateKeyError: Two suites for one method.
        FormatError: The program is none; says what it looks like.
        TooLargeError: A "bp08" bundle that would pass 4 GiB.
        LayoutError: An alignment, key or dtype that cannot be honoured.
        OSError: A source that cannot be opened.
    """
    if form not in (*get_args(Form), "auto"):
        raise LayoutError("unknown form", expected="bp08, segmented, detached or auto", actual=form)
    check_program_alignment(alignment)
    program_bytes = program_cord(program)
    pte = PteFile(program_bytes, source_name(program, program_bytes, "the program"))
    if form in ("bp08", "auto"):
        _check_reach(len(program_bytes))
    notes: list[str] = []
    with no_collection():
        suites = arrange(
            as_suites(method_test_suites),
            pte.methods if check else None,
            notes.append,
            copy_below=SEGMENT_THRESHOLD,
        )
        assembly = _Assembly("bp08" if form == "auto" else form, digest)
        tests = [assembly.suite(suite) for suite in suites]
        if form != "detached":
            assembly.add_program(program_bytes, alignment)
        assembly.add_named_data(named_data or {})
        cord, layout = assembly.finish(tests)
    return Bundle(cord, layout, assembly.form, tuple(notes))


def check_program_alignment(alignment: object) -> None:
    """Check what a bundle may align its program to.

    Raises:
        LayoutError: No power of two from 16 to 1 MiB, in bytes.
    """
    check_alignment(alignment, "the program", power_of_two=True, least=MIN_PROGRAM_ALIGNMENT)


class _Assembly:
    """A bundle on its way from records to bytes."""

    def __init__(self, form: Form, digest: bool) -> None:
        self.form = form
        self._digest = digest
        self._is_flatbuffer = form != "segmented"  # large vectors are reached by flatbuffer offsets
        self._segments: list[Segment] = []
        self._large_tensors: list[tuple[schema.Tensor, int]] = []
        self._program: int | None = None
        self._named_data: list[tuple[str, int]] = []

    def suite(self, suite: SuiteValues) -> schema.BundledMethodTestSuite:
        """Return the record of a suite; large tensors become segments."""
        cases = [
            self._case(case, (suite.method_name, number)) for number, case in enumerate(suite.cases)
        ]
        return schema.BundledMethodTestSuite(suite.method_name, cases)

    def _case(self, case: CaseValues, place: tuple[str, int]) -> schema.BundledMethodTestCase:
        return schema.BundledMethodTestCase(
            [self._value(v, (*place, "input", i)) for i, v in enumerate(case.inputs)],
            [
                self._value(v, (*place, "expected output", i))
                for i, v in enumerate(case.expected_outputs)
            ],
        )

    def _value(self, value: Value, place: _Place) -> schema.Value:
        if isinstance(value, TensorDescription):
            return schema.Value(self._tensor(value, place))
        if isinstance(value, bool):
            return schema.Value(schema.Bool(value))
        if isinstance(value, int):
            return schema.Value(schema.Int(value))
        return schema.Value(schema.Double(value))

    def _tensor(self, value: TensorDescription, place: _Place) -> schema.Tensor:
        cord = value.cord
        if len(cord) < SEGMENT_THRESHOLD:
            # Part of the metadata: as bytes, since a chunk of its own costs more.
            data = bytes(cord) if cord.is_memory else cord
            return schema.Tensor(int(value.scalar_type), value.sizes, data, value.dim_order)
        if self._is_flatbuffer:
            _check_reach(len(cord))
        tensor = schema.Tensor(int(value.scalar_type), value.sizes, cord, value.dim_order)
        self._large_tensors.append((tensor, len(self._segments)))
        method_name, case, word, index = place
        name = f"{method_name}/{case}/{word} {index}"
        self._segments.append(Segment(name, cord, TENSOR_ALIGNMENT, self._is_flatbuffer))
        return tensor

    def add_program(self, program: Cord, alignment: int) -> None:
        """Add the program as a segment."""
        self._program = len(self._segments)
        if self._is_flatbuffer:
            alignment = max(alignment, VECTOR_ALIGNMENT)
        self._segments.append(Segment("program", program, alignment, self._is_flatbuffer))

    def add_named_data(self, blobs: Mapping[str, object]) -> None:
        """Add blobs as segments, in the order of their keys."""
        for key in sorted(map(check_key, blobs)):
            self._named_data.append((key, len(self._segments)))
            self._segments.append(Segment(f"named data {key!r}", blob_cord(blobs[key])))

    def finish(self, suites: list[schema.BundledMethodTestSuite]) -> tuple[Cord, Layout]:
        """Lay everything out and return the file and its plan."""
        shared = share(self._segments)
        for tensor, number in self._large_tensors:
            tensor.data_segment = shared.index[number] + 1
            tensor.data = self._vector(shared.index[number])
        program = None if self._program is None else shared.index[self._program]
        root = schema.BundledProgram(
            method_test_suites=suites,
            program=b"" if program is None else self._vector(program),
            segments=self._segment_table(shared.segments),
            named_data=[schema.NamedData(key, shared.index[n]) for key, n in self._named_data],
            program_segment=0 if program is None else program + 1,
        )
        encoded = encode(root, self._identifier(), signed_zero=True)
        layout = Layout.plan(shared.segments, head_size=HEADER_SLOT + len(encoded.cord))
        metadata = self._pointed(encoded, layout)
        return _with_header(metadata, layout, self._digest), layout

    def _identifier(self) -> bytes:
        if self._is_flatbuffer:
            return schema.BUNDLED_PROGRAM_IDENTIFIER
        return schema.SEGMENTED_IDENTIFIER

    def _vector(self, segment: int) -> Far | bytes:
        """Return what stands in a data field for a segment; runtimes follow it unasked."""
        return Far(segment) if self._is_flatbuffer else b""

    def _segment_table(self, segments: Sequence[Segment]) -> list[schema.DataSegment]:
        offsets = Layout.plan(segments)  # from the base; the metadata's size changes only the base
        return [
            schema.DataSegment(
                offsets.relative(i),
                len(segment.data),
                Cord.of(Digest(segment.data)) if self._digest else None,
            )
            for i, segment in enumerate(segments)
        ]

    def _pointed(self, encoded: Encoded, layout: Layout) -> Cord:
        """Return the metadata with each far field pointed to its segment's length prefix."""
        offsets: dict[int, int] = {}
        for slot in encoded.fars:
            placement = layout.placements[slot.far.key]
            _check_reach(placement.end)
            vector = placement.offset - LENGTH_PREFIX_SIZE
            offsets[slot.position] = vector - (HEADER_SLOT + slot.position)
        return encoded.patched(offsets)


def _check_reach(end: int) -> None:
    """Refuse a flatbuffer vector that would pass what 32-bit offsets and lengths can say."""
    if end > MAX_UOFFSET:
        raise TooLargeError(
            "the bundle is too large for form 'bp08'",
            expected=f"program and tensors to end below {MAX_UOFFSET + 1} bytes",
            actual=f"{end} bytes",
            cause="form='detached' holds the tests alone and runs on existing runtimes beside the"
            " program's own file; form='segmented' holds everything and needs a reader that knows"
            " its segment table",
        )


def _with_header(metadata: Cord, layout: Layout, digest: bool) -> Cord:
    """Return the whole file: metadata with the extended header put in, then the segments."""
    header = ExtendedHeader(
        flatbuffer_offset=HEADER_SLOT,
        flatbuffer_size=len(metadata),
        segment_base_offset=layout.base,
        segment_data_size=layout.segment_data_size,
    )
    packed = BUNDLE_HEADER.pack(header, HEADER_SLOT)
    plain = flatbuffer_with_header(metadata, packed) + layout.body()
    if not digest:
        return plain
    at = BUNDLE_HEADER.offset_of("digest")
    covered = plain[: layout.base or layout.end]
    return plain[:at] + Cord.of(Digest(covered)) + plain[at + DIGEST_SIZE :]
