"""ExecuTorch weights (`.ptd`): reading.

Rules of this file: a blob is a range of the file; one with a tensor layout is a `TensorView` over
it. The format is ExecuTorch's `extension/flat_tensor/serialize/flat_tensor.fbs` (`FT01`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias, cast

from cordbundle import ptd_schema as schema
from cordbundle.artifact import Artifact
from cordbundle.cord import Cord
from cordbundle.errors import FormatError, UnsupportedVersionError
from cordbundle.flatbuffer import ROWS, Factory, decode
from cordbundle.scalar_types import ScalarType
from cordbundle.tensor_view import TensorShape, TensorView

__all__ = ["PtdFile"]

MAX_VERSION = 0
"""Newest schema version that is read; the runtime's `kMaxSupportedSchemaVersion`."""


_ROWS: dict[type, Factory] = dict.fromkeys(
    (schema.DataSegment, schema.NamedData, schema.TensorLayout), ROWS
)
"""Tuples for what a file has thousands of."""

_Layout: TypeAlias = tuple[int, tuple[int, ...] | None, tuple[int, ...] | None]


class _Shapes(dict[_Layout, "TensorShape | None"]):
    """The shape for each tensor layout that was met; None where it cannot be one."""

    def __missing__(self, layout: _Layout) -> TensorShape | None:
        number, sizes, dim_order = layout
        kind, shape = ScalarType.get(number), None
        if kind is not None:
            try:
                shape = TensorShape.of(kind, sizes or (), dim_order)
            except FormatError:  # told, with the key, by `PtdFile.__getitem__`
                shape = None
        self[layout] = shape
        return shape


class PtdFile(Artifact):
    """An open weights file; made by `cordbundle.open`. A mapping of keys to blobs."""

    KINDS = (schema.FLAT_TENSOR_IDENTIFIER,)
    ROOT = schema.FlatTensor

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
        if self.root.version > max_version:
            raise UnsupportedVersionError(
                "newer schema version",
                source=name,
                expected=f"at most {max_version}",
                actual=self.root.version,
            )

    @cached_property
    def root(self) -> schema.FlatTensor:
        """The root table of the metadata; each field is read when it is asked for.

        Raises:
            FormatError: The metadata is damaged.
        """
        return self.reader().root(schema.FlatTensor)

    @cached_property
    def _decoded(self) -> schema.FlatTensor:
        return decode(self.root)

    def _segment_table(self) -> Iterable[schema.DataSegment]:
        return self._decoded.segments or ()

    def records(self) -> Sequence[schema.NamedData]:
        """Return what the file says of each key, in file order; one that stands twice, twice."""
        return self._decoded.named_data or ()

    @cached_property
    def _entries(self) -> Mapping[str, schema.NamedData]:
        return {entry.key or "": entry for entry in self.records()}

    def blobs(self) -> dict[str, TensorView | Cord]:
        """Return all blobs by key, in file order; what `self[key]` gives for each, but faster.

        Raises:
            FormatError: As for `self[key]`; names the first key in file order.
        """
        blobs = self._sound_blobs()
        return {key: self[key] for key in self} if blobs is None else blobs

    def _sound_blobs(self) -> dict[str, TensorView | Cord] | None:
        """Return all blobs, or None if there is anything wrong with one of them."""
        root = decode(self.root, factories=_ROWS, scalars=tuple)
        segments = cast("Sequence[tuple[int, int]]", root.segments or ())
        rows = cast("Sequence[tuple[str | None, int, _Layout | None]]", root.named_data or ())
        base = self.header.segment_base_offset if self.header else 0
        whole, count, shapes = self.cord, len(segments), _Shapes()
        if base + max(map(sum, segments), default=0) > len(whole):
            return None
        blobs: dict[str, TensorView | Cord] = {}
        for key, index, layout in rows:
            if index >= count:
                return None
            offset, size = segments[index]
            offset += base
            if layout is None:
                blobs[key or ""] = whole[offset : offset + size]
                continue
            shape = shapes[layout]
            if shape is None or shape.nbytes != size:
                return None
            blobs[key or ""] = TensorView.within(shape, whole, offset)
        return blobs

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
        what = f"key {key!r}"
        data = self.segment(entry.segment_index, what)
        layout = entry.tensor_layout
        if layout is None:
            return data
        scalar_type = self.scalar_type(layout.scalar_type, what)
        order = None if layout.dim_order is None else tuple(layout.dim_order)
        return TensorView(scalar_type, tuple(layout.sizes or ()), order, data)
