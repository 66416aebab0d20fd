"""What all opened files share: a Cord of their bytes, a header, closing, checking.

Rules of this file: it knows headers and segments, no schema; it opens nothing, and closing forgets
the bytes, so that the descriptor goes as soon as no view or Cord taken from the file needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from cordbundle.cord import Cord
from cordbundle.errors import FormatError, TruncatedError
from cordbundle.flatbuffer import Finding
from cordbundle.headers import HEAD_SIZE, ExtendedHeader, Kind, identify, parse_header

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


class Artifact:
    """An open file of one of ExecuTorch's formats; a context manager.

    Views and Cords taken from it stay valid after `close()`. It may be read by several threads.

    Attributes:
        name: The path, or "<memory>".
        kind: What the file is, by its identifier.
        header: Its extended header, or None.
    """

    KINDS: tuple[bytes, ...] = ()
    """Identifiers of the files that the class reads."""

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
                actual=f"{self.kind.identifier!r}, a {self.kind.name}",
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

    def verify(self) -> list[Finding]:
        """Check everything that the format promises and return all that is wrong, by offset."""
        raise NotImplementedError

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
        if offset + size > len(self.cord):
            raise TruncatedError(
                f"{what} ends after the file",
                source=self.name,
                offset=offset,
                expected=f"an end at or before {len(self.cord)}",
                actual=f"an end at {offset + size}",
            )
        return self.cord[offset : offset + size]


def segment_findings(
    segments: Sequence[SegmentRange], header: ExtendedHeader | None, metadata_end: int, size: int
) -> list[Finding]:
    """Check where the segments of a file stand.

    Args:
        segments: The segments in the order of the table, absolute offsets.
        header: The file's header.
        metadata_end: First byte after the metadata.
        size: Size of the file in bytes.

    Returns:
        A finding for each segment that is outside the file, in the metadata, out of order or
        overlapping, and for bytes that belong to nothing.
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
