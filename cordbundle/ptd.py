"""ExecuTorch weights (`.ptd`): reading.

Rules of this file: a blob is a range of the file; one with a tensor layout is a `TensorView` over
it. The format is ExecuTorch's `extension/flat_tensor/serialize/flat_tensor.fbs` (`FT01`).
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from functools import cached_property

from cordbundle import ptd_schema as schema
from cordbundle.artifact import Artifact, SegmentRange, segment_findings
from cordbundle.cord import Cord
from cordbundle.errors import FormatError, UnsupportedVersionError
from cordbundle.flatbuffer import Finding, Reader, decode, verify
from cordbundle.tensors import ScalarType, TensorView

__all__ = ["PtdFile"]

MAX_VERSION = 0
"""Newest schema version that is read; the runtime's `kMaxSupportedSchemaVersion`."""


class PtdFile(Artifact):
    """An open weights file; made by `cordbundle.open`. A mapping of keys to blobs."""

    KINDS = (schema.FLAT_TENSOR_IDENTIFIER,)

    def __init__(self, cord: Cord, name: str, max_version: int = MAX_VERSION) -> None:
        """Read the header and the schema version.

        Args:
            cord: All bytes of the file.
            name: Its name, for errors.
            max_version: Newest schema version that is taken.

        Raises:
            FormatError: No weights file, or one without its extended header.
            TruncatedError: The file ends before what its header promises.
            UnsupportedVersionError: A newer schema.
        """
        super().__init__(cord, name)
        if self.header is None:
            raise FormatError(
                "weights file has no extended header",
                source=name,
                offset=8,
                expected="b'FH01'",
                actual=repr(bytes(cord[8:12])),
                cause="it may be of a schema from before ExecuTorch 0.6; export it again",
            )
        if self._root.version > max_version:
            raise UnsupportedVersionError(
                "newer schema version",
                source=name,
                expected=f"at most {max_version}",
                actual=self._root.version,
            )

    def _reader(self) -> Reader:
        return Reader(self.cord[: self.metadata_end], name=self.name)

    @property
    def metadata_end(self) -> int:
        """First byte after the flatbuffer, in bytes."""
        return self.header.metadata_end if self.header else len(self.cord)

    @cached_property
    def _root(self) -> schema.FlatTensor:
        return self._reader().root(schema.FlatTensor)

    @cached_property
    def _decoded(self) -> schema.FlatTensor:
        return decode(self._root)

    @cached_property
    def segment_ranges(self) -> tuple[SegmentRange, ...]:
        """Where the segments stand, in the order of the segment table."""
        base = self.header.segment_base_offset if self.header else 0
        return tuple(
            SegmentRange(base + segment.offset, segment.size)
            for segment in self._decoded.segments or ()
        )

    @cached_property
    def _entries(self) -> Mapping[str, schema.NamedData]:
        return {entry.key or "": entry for entry in self._decoded.named_data or ()}

    def keys(self) -> KeysView[str]:
        """Return the keys in file order."""
        return self._entries.keys()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __getitem__(self, key: str) -> TensorView | Cord:
        """Return a blob: a `TensorView` where the file holds a tensor layout, else a Cord.

        Raises:
            KeyError: No such key.
            FormatError: A segment that does not exist, or fewer bytes than the layout needs.
        """
        entry = self._entries[key]
        ranges = self.segment_ranges
        if entry.segment_index >= len(ranges):
            raise FormatError(
                f"segment of key {key!r} does not exist",
                source=self.name,
                expected=f"an index below {len(ranges)}",
                actual=entry.segment_index,
            )
        place = ranges[entry.segment_index]
        data = self.range_of(place.offset, place.size, f"blob {key!r}")
        layout = entry.tensor_layout
        if layout is None:
            return data
        scalar_type = ScalarType.get(layout.scalar_type)
        if scalar_type is None:
            raise FormatError(
                f"tensor {key!r} has an unknown scalar type",
                source=self.name,
                actual=layout.scalar_type,
            )
        order = None if layout.dim_order is None else tuple(layout.dim_order)
        return TensorView(scalar_type, tuple(layout.sizes or ()), order, data)

    def verify(self) -> list[Finding]:
        """Check everything that the format promises and return all that is wrong, by offset."""
        findings = verify(self._reader(), schema.FlatTensor)
        if not findings:
            findings += segment_findings(
                self.segment_ranges, self.header, self.metadata_end, len(self.cord)
            )
        return findings
