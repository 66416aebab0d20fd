"""What `verify` checks of a bundle beyond its flatbuffer: digests, segments, padding, the program.

Rules of this file: every check yields findings and goes on; it runs after the flatbuffer was found
sound, so that offsets may be followed; digests and padding are checked in one pass, which reads
each byte once, by descriptor, in bounded memory. What is asked for of suites is what ExecuTorch's
runtime follows without a look (`devtools/bundled_program/bundled_program.cpp`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordbundle import bpte_schema as schema
from cordbundle.bpte_tables import BundleTables
from cordbundle.digest import DIGEST_SIZE
from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Finding, byte_range, position_of
from cordbundle.headers import BUNDLE_HEADER, HEADER_OFFSET
from cordbundle.layout import LENGTH_PREFIX_SIZE, MAX_ALIGNMENT, Placement
from cordbundle.pte import Method, PteFile, TensorSpec
from cordbundle.record_check import Shapes, check_keys, shown
from cordbundle.scan import DigestOf, Range, Zeros, scan
from cordbundle.strided import contiguous_strides

if TYPE_CHECKING:
    from cordbundle.progress import Progress

__all__ = ["check_bytes", "check_header_digest", "check_metadata"]

_NO_DIGEST = bytes(DIGEST_SIZE)
_MAX_USES = 4  # of a segment that a finding names
_MAX_PADDING = MAX_ALIGNMENT + LENGTH_PREFIX_SIZE


def check_metadata(file: BundleTables) -> Iterator[Finding]:
    """Yield what is wrong with the records of a bundle whose flatbuffer is sound.

    Raises:
        FormatError: One place of the metadata is used too often to be read.
    """
    yield from _check_root(file)
    yield from _check_suites(file)
    yield from _check_values(file)
    yield from _check_header(file)


def check_bytes(file: BundleTables, progress: Progress | None) -> Iterator[Finding]:
    """Yield what is wrong with the contents of a bundle whose segments are in their places.

    Args:
        file: The bundle.
        progress: Called with (bytes read, bytes to read), as by `scan`.

    Raises:
        FormatError: One place of the metadata is used too often to be read.
        SourceChangedError: The file shrinks while it is read.
    """
    yield from _Contents(file).check(progress)
    yield from _check_program(file)


def check_header_digest(file: BundleTables, progress: Progress | None) -> Iterator[Finding]:
    """Yield whether header and metadata differ from their digest; nothing else has to be sound.

    Args:
        file: The bundle.
        progress: Called with (bytes read, bytes to read), as by `scan`.

    Raises:
        SourceChangedError: The file shrinks while it is read.
    """
    yield from _Contents(file).check_header(progress)


def _check_root(file: BundleTables) -> Iterator[Finding]:
    """Check that vectors are there, and that what speaks of a segment speaks of one."""
    root, count = file.root, len(file.segment_ranges)
    at = position_of(root)
    if root.method_test_suites is None:
        yield _missing(at, "BundledProgram.method_test_suites")
    if root.program is None:
        yield _missing(at, "BundledProgram.program")
    if root.program_segment > count:
        what, room = "segment of the program does not exist", f"at most {count}"
        yield Finding(at, what, room, str(root.program_segment))
    entries = root.named_data or ()
    keys = ((entry.key, entry.segment_index) for entry in entries)
    yield from check_keys(keys, count, lambda number: position_of(entries[number]))


def _missing(at: int, what: str) -> Finding:
    return Finding(at, f"{what} missing", "a vector", "none")


def _check_suites(file: BundleTables) -> Iterator[Finding]:
    """Check that suites and cases are whole, and that each method has one suite."""
    names: set[str] = set()
    for number, (suite, name) in enumerate(file.suite_records()):
        at = position_of(suite)
        if suite.method_name is None:
            yield Finding(at, f"suite {number}: name of the method missing", "a string", "none")
        elif suite.method_name in names:
            found = shown(suite.method_name)
            yield Finding(at, "two suites are for one method", "unique names", found)
        else:
            names.add(suite.method_name)
        if suite.test_cases is None:
            yield _missing(at, f"{name}: test cases")
        for index, case in enumerate(suite.test_cases or ()):
            if case.inputs is None:
                yield _missing(position_of(case), f"{name}/{index}: inputs")
            if case.expected_outputs is None:
                yield _missing(position_of(case), f"{name}/{index}: expected outputs")


def _check_values(file: BundleTables) -> Iterator[Finding]:
    """Check that values are there, and those that are tensors."""
    shapes = Shapes()
    for value, name in file.values():
        tensor = value.val
        if tensor is None:
            yield Finding(position_of(value), f"{name}: value", "a tensor or a scalar", "none")
        elif isinstance(tensor, schema.Tensor):
            yield from _check_tensor(file, tensor, name, shapes)


def _check_tensor(
    file: BundleTables, tensor: schema.Tensor, name: str, shapes: Shapes
) -> Iterator[Finding]:
    """Check a tensor's sizes against its bytes, and both ways to these."""
    at, ranges = position_of(tensor), file.segment_ranges
    if tensor.data_segment > len(ranges):
        what, room = f"segment of {name} does not exist", f"at most {len(ranges)}"
        yield Finding(at, what, room, str(tensor.data_segment))
        return
    vector = byte_range(tensor, "data")
    if vector is None:
        yield _missing(at, f"{name}: data")
    size = None if vector is None else vector.size
    if tensor.data_segment:
        place = ranges[tensor.data_segment - 1]
        size = place.size
        if vector is not None and file.form != "segmented" and vector.offset != place.offset:
            found = f"a vector at {vector.offset}"
            yield Finding(at, f"{name}: data field", f"segment at {place.offset}", found)
    nbytes, problem = shapes.of(tensor)
    if problem is not None:
        yield Finding(at, f"{name}: {problem.what}", problem.expected, problem.actual)
    elif nbytes is not None and size is not None and size < nbytes:
        yield Finding(at, f"{name}: bytes", f"at least {nbytes}", str(size))


def _check_header(file: BundleTables) -> Iterator[Finding]:
    """Check that a bundle with a segment table has a header, without which no digest is found."""
    if file.header is None and (file.form == "segmented" or file.root.segments is not None):
        found = bytes(file.cord[HEADER_OFFSET : HEADER_OFFSET + 4])
        yield Finding(HEADER_OFFSET, "extended header", repr(BUNDLE_HEADER.magic), repr(found))


@dataclass(frozen=True, slots=True)
class _Digested:
    """A stored digest.

    Attributes:
        at: Where the damage is, if there is any.
        what: What the digest covers.
        stored: Its value in the file.
        look: Its value as the bytes are.
    """

    at: int
    what: str
    stored: bytes
    look: DigestOf


class _Contents:
    """Everything that is checked by reading: what is read, and by which look.

    The header's digest covers all bytes before the segment base, the table's digests cover the
    segments, and what is left is padding and lengths, whose bytes are known.
    """

    def __init__(self, file: BundleTables) -> None:
        self._file = file
        self._ranges: list[Range] = []
        self._digested: list[_Digested] = []
        self._paddings: list[tuple[int, Zeros]] = []
        self._done = 0  # first byte that is neither covered nor told

    def check(self, progress: Progress | None) -> Iterator[Finding]:
        """Read and yield findings, those first that need no reading."""
        yield from self._plan_metadata()
        yield from self._plan_segments()
        yield from self._read(progress)

    def check_header(self, progress: Progress | None) -> Iterator[Finding]:
        """Do the same for what the header speaks of."""
        yield from self._plan_metadata()
        if self._ranges:
            yield from self._read(progress)

    def _read(self, progress: Progress | None) -> Iterator[Finding]:
        scan(self._file.cord, self._ranges, progress)
        for one in self._digested:
            if one.look.value != one.stored:
                yield Finding(
                    one.at, f"xxh3-128 of {one.what}", one.stored.hex(), one.look.value.hex()
                )
        for start, zeros in self._paddings:
            if zeros.found is not None:
                yield Finding(start + zeros.found[0], "padding", "0", str(zeros.found[1]))

    def _plan_metadata(self) -> Iterator[Finding]:
        """Look at all bytes before the segment base; the digest itself counts as zero."""
        header = self._file.header
        if header is None:
            return
        end = header.segment_base_offset or header.metadata_end
        padding = end - header.metadata_end
        if padding > _MAX_PADDING:  # read nothing for terabytes
            self._done = end
            yield _too_much(header.metadata_end, "before the segment base", padding)
        elif header.digest != _NO_DIGEST:
            at, look = BUNDLE_HEADER.offset_of("digest"), DigestOf()
            self._done = max(end, at + DIGEST_SIZE)
            self._ranges += [
                Range(0, at, look),
                Range(at, at + DIGEST_SIZE, look, as_zeros=True),
                Range(at + DIGEST_SIZE, self._done, look),
            ]
            what = f"header and metadata, bytes 0 to {end}"
            self._digested.append(_Digested(at, what, header.digest, look))

    def _plan_segments(self) -> Iterator[Finding]:
        header, end = self._file.header, self._file.metadata_end
        segments = zip(
            self._file.layout.placements, self._file.uses, self._file.digests, strict=True
        )
        for number, (place, use, stored) in enumerate(segments):
            if not place.size:
                continue  # an empty one stands nowhere
            stop = place.offset - (LENGTH_PREFIX_SIZE if place.length_prefix else 0)
            yield from self._plan_padding(end, stop, f"before {place.name}")
            yield from self._check_length(place)
            end = place.end
            if stored is not None:
                look = DigestOf()
                self._ranges.append(Range(place.offset, end, look))
                what = _name(number, use.names, place)
                self._digested.append(_Digested(place.offset, what, stored, look))
        if header is not None:
            stop = header.segment_base_offset + (header.segment_data_size or 0)
            yield from self._plan_padding(end, stop, "after the last segment")

    def _plan_padding(self, start: int, stop: int, where: str) -> Iterator[Finding]:
        """Look at padding, where the header's digest does not cover it."""
        start = max(start, self._done)
        if stop - start > _MAX_PADDING:
            yield _too_much(start, where, stop - start)
        elif start < stop:
            zeros = Zeros()
            self._ranges.append(Range(start, stop, zeros))
            self._paddings.append((start, zeros))

    def _check_length(self, place: Placement) -> Iterator[Finding]:
        if not place.length_prefix:
            return
        at = place.offset - LENGTH_PREFIX_SIZE
        stored = int.from_bytes(bytes(self._file.cord[at : place.offset]), "little")
        if stored != place.size:
            yield Finding(at, f"length before {place.name}", str(place.size), str(stored))


def _too_much(start: int, where: str, size: int) -> Finding:
    return Finding(start, f"padding {where}", f"at most {_MAX_PADDING}", str(size))


def _name(number: int, uses: Sequence[str], place: Placement) -> str:
    """Return a segment's number, what it is for, and where it is."""
    more = f" and {len(uses) - _MAX_USES} more" if len(uses) > _MAX_USES else ""
    words = f" ({', '.join(uses[:_MAX_USES])}{more})" if uses else ""
    return f"segment {number}{words}, bytes {place.offset} to {place.end}"


def _check_program(file: BundleTables) -> Iterator[Finding]:
    """Check the program as a file of its own; offsets are made absolute where they are known."""
    if file.root.program_segment > len(file.segment_ranges):
        return  # `check_metadata` says so
    program, offset = file.program, file.program_offset
    if not program:
        return
    try:
        inner = PteFile(program, file.name)
        findings = inner.verify()
    except FormatError as error:  # no program at all; the error says what it is
        yield Finding(offset, f"program: {error.what}", str(error.expected), str(error.actual))
        return
    for finding in findings:
        yield Finding(
            offset + finding.offset, f"program: {finding.what}", finding.expected, finding.actual
        )
    if not findings:
        yield from _check_cases(file, inner.methods)


def _check_cases(file: BundleTables, methods: Mapping[str, Method]) -> Iterator[Finding]:
    """Check that suites are for methods of the program, and cases for what these take and give."""
    for suite, name in file.suite_records():
        if suite.method_name is None:
            continue  # `check_metadata` says so
        method = methods.get(suite.method_name)
        if method is None:
            what, found = "suite for a method that does not exist", shown(suite.method_name)
            yield Finding(position_of(suite), what, "a method of the program", found)
            continue
        for number, case in enumerate(suite.test_cases or ()):
            yield from _check_case(case, method, f"{name}/{number}")


def _check_case(case: schema.BundledMethodTestCase, method: Method, name: str) -> Iterator[Finding]:
    """Check numbers of values, and that a runtime can compare the expected outputs."""
    inputs, outputs = len(case.inputs or ()), case.expected_outputs or ()
    for word, found_count, wanted in (
        ("inputs", inputs, len(method.inputs)),
        ("expected outputs", len(outputs), len(method.outputs) if outputs else 0),
    ):
        if found_count != wanted:
            what = f"{name}: number of {word}"
            yield Finding(position_of(case), what, str(wanted), str(found_count))
    for place, (value, spec) in enumerate(zip(outputs, method.outputs, strict=False)):
        tensor, what = value.val, f"{name}/expected output {place}"
        if not isinstance(tensor, schema.Tensor):
            continue
        if not isinstance(spec, TensorSpec):
            what = f"{what}: the method's output"
            yield Finding(position_of(value), what, "a tensor", spec.kind)
        elif not _has_strides_of(tensor, spec):
            found = str(list(tensor.dim_order or ()))
            yield Finding(
                position_of(tensor), f"{what}: dim order", str(list(spec.dim_order)), found
            )


def _has_strides_of(tensor: schema.Tensor, spec: TensorSpec) -> bool:
    """Return whether a tensor has the strides of an output; of another shape it is not compared."""
    sizes, order = tensor.sizes or (), tensor.dim_order or ()
    if len(sizes) != len(spec.dim_order) or sorted(order) != list(range(len(sizes))):
        return True  # the latter is told with the tensor
    return contiguous_strides(sizes, order) == contiguous_strides(sizes, spec.dim_order)
