"""What all opened files share: a Cord of their bytes, a header, segments, closing, checking.

Rules of this file: of a schema it knows the class of the root table and that there is a segment
table, whose indices are checked here; it opens nothing, and closing forgets the bytes, so that the
descriptor goes as soon as no view or Cord taken from the file needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import ClassVar, Protocol, TypeVar

from cordbundle.cord import Cord
from cordbundle.errors import FormatError, TruncatedError
from cordbundle.flatbuffer import Finding, Reader, verify
from cordbundle.headers import HEAD_SIZE, ExtendedHeader, Kind, identify, parse_header
from cordbundle.scalar_types import ScalarType

__all__ = ["Artifact", "SegmentRange"]

Self = TypeVar("Self", bound="Artifact")


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Where a segment stands in an opened file, in bytes.

    Attributes:
        offset: First byte, from the start of the file.
        size: Number of bytes.
    """

    offset: int
    size: int


class SegmentRecord(Protocol):
    """An entry of a segment table, as every schema has it."""

    @property
    def offset(self) -> int:
        """First byte, from the segment base."""

    @property
    def size(self) -> int:
        """Number of bytes."""


class Artifact:
    """An open file of one of ExecuTorch's formats; a context manager.

    Views and Cords taken from it stay valid after `close()`. It may be read by several threads.

    Attributes:
        name: The path, or "<memory>".
        kind: What the file is, by its identifier.
        header: Its extended header, or None.
    """

    KINDS: ClassVar[tuple[bytes, ...]] = ()
    """Identifiers of the files that the class reads."""

    ROOT: ClassVar[type]
    """The dataclass that describes the root table of their metadata."""

    def __init__(self, cord: Cord, name: str) -> None:
        """Read the header.

        Args:
            cord: All bytes of the file.
            name: Its name, for errors.

        Raises:
            FormatError: Another kind of file; says what it is.
            TruncatedError: The file ends before what its header promises.
        """
        head = bytes(cord[:HEAD_SIZE])
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
            if end > len(self.cord):
                raise TruncatedError(
                    f"file ends before its {what} do",
                    source=self.name,
                    offset=len(self.cord),
                    expected=f"{end} bytes",
                    actual=f"{len(self.cord)} bytes",
                    cause=f"a download or copy is {end - len(self.cord)} bytes short",
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
    def segment_ranges(self) -> tuple[SegmentRange, ...]:
        """Where the segments stand, in the order of the segment table.

        Raises:
            FormatError: The metadata is damaged.
        """
        base = self.header.segment_base_offset if self.header else 0
        return tuple(SegmentRange(base + one.offset, one.size) for one in self._segment_table())

    def _segment_table(self) -> Iterable[SegmentRecord]:
        """Return the segment table as it stands in the metadata."""
        raise NotImplementedError

    def segment(self, index: int, what: str) -> Cord:
        """Return a segment that the metadata speaks of, by reference.

        Args:
            index: Its place in the segment table, not yet checked.
            what: What it is the segment of, for errors.

        Raises:
            FormatError: There is no such segment.
            TruncatedError: It passes the end of the file.
        """
        ranges = self.segment_ranges
        if not 0 <= index < len(ranges):
            raise FormatError(
                f"segment of {what} does not exist",
                source=self.name,
                expected=f"an index below {len(ranges)}",
                actual=index,
            )
        place = ranges[index]
        return self.range_of(place.offset, place.size, what)

    def scalar_type(self, number: int, what: str) -> ScalarType:
        """Return the scalar type that the metadata gives for `what` by its number.

        Raises:
            FormatError: The schema has no such number.
        """
        found = ScalarType.get(number)
        if found is None:
            raise FormatError(
                f"{what} has an unknown scalar type",
                source=self.name,
                expected=f"one of {[kind.value for kind in ScalarType]}",
                actual=number,
            )
        return found

    def verify(self) -> list[Finding]:
        """Check everything that the format promises and return all that is wrong, by offset.

        Segments are looked at only where the flatbuffer is sound, since their offsets stand in it.
        """
        return verify(self.reader(), self.ROOT) or _segment_findings(
            self.segment_ranges, self.metadata_end, len(self.cord)
        )

    def check(self) -> None:
        """Do `verify` and raise for the first finding.

        Raises:
            FormatError: Something is wrong; names offset, found and expected.
        """
        for finding in self.verify():
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


def _segment_findings(
    segments: Sequence[SegmentRange], metadata_end: int, size: int
) -> list[Finding]:
    """Check where the segments of a file stand.

    Args:
        segments: The segments in the order of the table, absolute offsets.
        metadata_end: First byte after the metadata.
        size: Size of the file in bytes.

    Returns:
        A finding for each segment that is outside the file, in the metadata, out of order or
        overlapping.
    """
    findings = []
    previous = metadata_end
    for number, segment in enumerate(segments):
        if not segment.size:
            continue  # an empty one stands nowhere; exporters write some at offset 0
        what = f"segment {number}"
        end = segment.offset + segment.size
        if end > size:
            findings.append(
                Finding(
                    segment.offset,
                    f"{what} ends after the file",
                    f"an end at or before {size}",
                    f"an end at {end}",
                )
            )
        if segment.offset < previous:
            place = "the metadata" if number == 0 else f"segment {number - 1} or the metadata"
            findings.append(
                Finding(
                    segment.offset,
                    f"{what} begins inside {place}",
                    f"a begin at or after {previous}",
                    str(segment.offset),
                )
            )
        previous = max(previous, end)
    return findings
