"""What all opened files share: a Cord of their bytes, a header, segments, closing, checking.

Rules of this file: of a schema it knows the class of the root table and that this has a segment
table, whose indices are checked here; it opens nothing, and closing forgets the bytes, so that the
descriptor goes as soon as no view or Cord taken from the file needs it. What checks there are is
said in segment_check.py and by the formats; here they are put in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from cordbundle.cord import Cord
from cordbundle.errors import FormatError, TruncatedError
from cordbundle.flatbuffer import Finding, Reader, verify
from cordbundle.flatbuffer.verify import MAX_FINDINGS
from cordbundle.headers import (
    HEAD_SIZE,
    HEADER_OFFSET,
    ExtendedHeader,
    Kind,
    identify,
    parse_header,
)
from cordbundle.layout import MAX_ALIGNMENT
from cordbundle.record_check import TensorRecord, scalar_type_of
from cordbundle.scalar_types import ScalarType
from cordbundle.segment_check import (
    HARMLESS,
    SegmentRange,
    check_header,
    check_segments,
    gaps,
    nbytes,
)
from cordbundle.tensor_view import TensorShape

if TYPE_CHECKING:
    from cordbundle.progress import Progress

__all__ = ["Artifact", "SegmentRange"]

Self = TypeVar("Self", bound="Artifact[Any]")
Root = TypeVar("Root", bound="RootRecord")


_KEPT = frozenset({"_cord", "_head", "header", "kind", "name"})
"""Attributes of a file that stay when it is closed."""

_PAGE = 4096

_MAX_END = 2**63 - 1
"""Last position that any system can address in a file."""


class SegmentRecord(Protocol):
    """An entry of a segment table, as every schema has it."""

    @property
    def offset(self) -> int:
        """First byte, from the segment base."""

    @property
    def size(self) -> int:
        """Number of bytes."""


class RootRecord(Protocol):
    """A root table, as every schema has it."""

    @property
    def segments(self) -> Sequence[SegmentRecord] | None:
        """The segment table."""


class Artifact(Generic[Root]):
    """An open file of one of ExecuTorch's formats; a context manager.

    Views and Cords taken from it stay valid after `close()`. It may be read by several threads.

    Attributes:
        name: The path, or "<memory>".
        kind: What the file is, by its identifier.
        header: Its extended header, or None.
    """

    KINDS: ClassVar[tuple[bytes, ...]] = ()
    """Identifiers of the files that the class reads."""

    ROOT: type[Root]
    """The dataclass that describes the root table of their metadata; one for each class of file."""

    def __init__(self, cord: Cord, name: str) -> None:
        """Read the header.

        Args:
            cord: All bytes of the file.
            name: Its name, for errors.

        Raises:
            FormatError: Another kind of file; says what it is.
            TruncatedError: The file ends before what its header promises.
        """
        self._head = head = bytes(cord[:HEAD_SIZE])
        self.name = name
        self.kind: Kind = identify(head, name, len(cord))
        if self.kind.identifier not in self.KINDS:
            raise FormatError(
                "another kind of file",
                source=name,
                offset=4,
                expected=" or ".join(repr(identifier) for identifier in self.KINDS),
                actual=f"{self.kind.identifier!r}, {self.kind.with_article}",
            )
        self.header: ExtendedHeader | None = parse_header(head, self.kind.header, name)
        self._cord: Cord | None = cord
        self._check_size()

    def _check_size(self) -> None:
        """Compare the file's size with what its header promises."""
        if self.header is None:
            return
        for what, end in (
            ("metadata", self.header.metadata_end),
            ("segments", self.header.segment_base_offset + (self.header.segment_data_size or 0)),
        ):
            if end > _MAX_END:
                raise FormatError(
                    f"{what} would end where no file can",
                    source=self.name,
                    offset=HEADER_OFFSET,
                    expected=f"at most {_MAX_END}",
                    actual=end,
                )
            if end > len(self.cord):
                raise TruncatedError(
                    f"file ends before its {what} do",
                    source=self.name,
                    offset=len(self.cord),
                    expected=f"{end} bytes",
                    actual=f"{len(self.cord)} bytes",
                    cause=f"a download or copy is {nbytes(end - len(self.cord))} short",
                )

    @property
    def cord(self) -> Cord:
        """All bytes of the file.

        Raises:
            ValueError: The file is closed.
        """
        if self._cord is None:
            raise ValueError(f"{self.name} is closed")
        return self._cord

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._cord is None

    def close(self) -> None:
        """Forget the file; what was taken from it stays valid."""
        self._cord = None
        for name in self.__dict__.keys() - _KEPT:  # what was read on demand holds the file too
            self.__dict__.pop(name, None)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        size = "closed" if self._cord is None else f"{len(self._cord)} bytes"
        return f"<{type(self).__name__} {self.name!r}, {size}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(f"{self!r} is an open file; pickle its path")

    @property
    def metadata_end(self) -> int:
        """First byte after the metadata, in bytes; the end of the file where there is no header."""
        return self.header.metadata_end if self.header else len(self.cord)

    def reader(self) -> Reader:
        """Return a new reader of the metadata."""
        return Reader(self.cord[: self.metadata_end], name=self.name)

    def walk(self) -> Reader:
        """Return a new reader for one walk through the metadata.

        It refuses a file that makes a walk visit far more than there is, by pointing to one place
        from many.
        """
        reader = self.reader()
        reader.limit(self._metadata_size())
        return reader

    def _metadata_size(self) -> int:
        return self.metadata_end

    @cached_property
    def root(self) -> Root:
        """The root table of the metadata; each field is read when it is asked for.

        Raises:
            FormatError: The metadata is damaged.
        """
        return self.reader().root(self.ROOT)

    def _walk_root(self) -> Root:
        return self.walk().root(self.ROOT)

    @cached_property
    def segment_ranges(self) -> tuple[SegmentRange, ...]:
        """Where the segments stand, in the order of the segment table.

        Raises:
            FormatError: The metadata is damaged.
        """
        return self._ranges(self._segment_table())

    def _segment_table(self) -> Iterable[SegmentRecord]:
        """Return the segment table as it stands in the metadata."""
        return self._walk_root().segments or ()

    def _ranges(self, table: Iterable[SegmentRecord]) -> tuple[SegmentRange, ...]:
        """Return where the segments of a table stand."""
        base = self.header.segment_base_offset if self.header else 0
        return tuple(SegmentRange(base + one.offset, one.size) for one in table)

    def segment_range(self, index: int, what: str) -> SegmentRange:
        """Return where a segment that the metadata speaks of stands.

        Args:
            index: Its place in the segment table, not yet checked.
            what: What it is the segment of, for errors.

        Raises:
            FormatError: There is no such segment.
        """
        ranges = self.segment_ranges
        if not 0 <= index < len(ranges):
            raise FormatError(
                f"segment of {what} does not exist",
                source=self.name,
                expected=f"an index below {len(ranges)}",
                actual=index,
            )
        return ranges[index]

    def segment(self, index: int, what: str) -> Cord:
        """Return a segment that the metadata speaks of, by reference.

        Args:
            index: Its place in the segment table, not yet checked.
            what: What it is the segment of, for errors.

        Raises:
            FormatError: There is no such segment.
            TruncatedError: It passes the end of the file.
        """
        place = self.segment_range(index, what)
        return self.range_of(place.offset, place.size, what)

    def scalar_type(self, number: int, what: str) -> ScalarType:
        """Return the scalar type that the metadata gives for `what` by its number.

        Raises:
            FormatError: The schema has no such number.
        """
        return scalar_type_of(number, what, self.name)

    def tensor_shape(self, record: TensorRecord, what: str) -> TensorShape:
        """Return the shape that the metadata gives for `what`; what is missing has no dimension.

        Raises:
            FormatError: An unknown scalar type, or sizes and a dim order that are no shape.
        """
        kind = self.scalar_type(record.scalar_type, what)
        return TensorShape.of(kind, record.sizes or (), record.dim_order, what, self.name)

    def verify(self, progress: Progress | None = None) -> list[Finding]:
        """Check everything that the format promises and return all that is wrong, by offset.

        The header is checked against the size of the file in any case; segments, and what refers to
        them, only where the flatbuffer is sound, since they are found through it; padding only
        where segments are in their places. The check stops at `MAX_FINDINGS`.

        Args:
            progress: Called with (bytes read, bytes to read); where no payload is read, once, when
                all is done.

        Raises:
            SourceChangedError: The file shrinks while it is read.
        """
        findings = list(islice(self._findings(progress), MAX_FINDINGS))
        return sorted(findings, key=lambda finding: finding.offset)

    def _findings(self, progress: Progress | None) -> Iterator[Finding]:
        yield from check_header(self.header, self.kind.header, self._head, len(self.cord))
        structure = self._flatbuffer_findings()
        if _are_harmless(structure):
            structure += islice(self._told(self._segments()), MAX_FINDINGS)
            yield from structure
            yield from self._told(self._contents())
        else:
            yield from structure
        yield from self._told(self._bytes(_are_harmless(structure), progress))

    def _flatbuffer_findings(self) -> list[Finding]:
        return verify(self.reader(), self.ROOT, to_end=self.header is None)

    def _segments(self) -> Iterator[Finding]:
        yield from check_segments(
            self.segment_ranges, self.header, self.kind.header, self._head, len(self.cord)
        )

    def _contents(self) -> Iterator[Finding]:
        """Yield what is wrong with what the metadata says, once its flatbuffer is sound."""
        yield from ()

    def _bytes(self, is_structure_sound: bool, progress: Progress | None) -> Iterator[Finding]:
        """Yield what is wrong with bytes outside the metadata, so far as they are known."""
        if is_structure_sound and self.header is not None:
            yield from self._padding(gaps(self.segment_ranges, self.header))
        if progress is not None:
            progress(self.metadata_end, self.metadata_end)

    def _padding(self, places: Iterable[tuple[int, int]]) -> Iterator[Finding]:
        """Yield the first byte of each place that is not zero; a page is read at a time."""
        at, page = 0, b""
        for start, stop in places:
            if stop - start > MAX_ALIGNMENT:
                continue  # no writer leaves as much; a hostile one would have it read
            if stop > at + len(page):
                at, page = start, bytes(self.cord[start : max(stop, start + _PAGE)])
            rest = page[start - at : stop - at].lstrip(b"\0")
            if rest:
                yield Finding(stop - len(rest), "padding", "0", str(rest[0]))

    def _told(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield findings, and last the error that ends them, as when a table is used too often."""
        try:
            yield from findings
        except FormatError as error:
            yield Finding(error.offset or 0, error.what, str(error.expected), str(error.actual))

    def check_structure(self) -> None:
        """Raise for the first thing that is wrong with the flatbuffer or the segments' places.

        What is sound so far can be taken apart and put together again, whatever it says.

        Raises:
            FormatError: Names offset, found and expected.
        """
        findings = chain(self._flatbuffer_findings(), self._segments())
        self._raise(one for one in findings if one.what not in HARMLESS)

    def check(self) -> None:
        """Do `verify` and raise for the first finding.

        Raises:
            FormatError: Something is wrong; names offset, found and expected.
        """
        self._raise(self.verify())

    def _raise(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            raise FormatError(
                finding.what,
                source=self.name,
                offset=finding.offset,
                expected=finding.expected,
                actual=finding.actual,
            )

    def range_of(self, offset: int, size: int, what: str) -> Cord:
        """Return a range of the file that its metadata speaks of.

        Raises:
            TruncatedError: The range passes the end of the file.
        """
        if size and offset + size > len(self.cord):  # an empty one stands nowhere
            raise TruncatedError(
                f"{what} ends after the file",
                source=self.name,
                offset=offset,
                expected=f"an end at or before {len(self.cord)}",
                actual=f"an end at {offset + size}",
            )
        return self.cord[offset : offset + size]


def _are_harmless(findings: Iterable[Finding]) -> bool:
    """Return whether findings leave no doubt where each segment is."""
    return all(one.what in HARMLESS for one in findings)
