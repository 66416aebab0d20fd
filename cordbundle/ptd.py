"""ExecuTorch weights (`.ptd`): reading.

Rules of this file: a blob is a range of the file; one with a tensor layout is a `TensorView` over
it. The format is ExecuTorch's `extension/flat_tensor/serialize/flat_tensor.fbs` (`FT01`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from functools import cached_property
from typing import cast

from cordbundle import ptd_schema as schema
from cordbundle.artifact import Artifact, SegmentRange
from cordbundle.cord import Cord
from cordbundle.errors import FormatError, UnsupportedVersionError
from cordbundle.flatbuffer import ROWS, Factory, Finding, decode, position_of, verify
from cordbundle.flatbuffer.patch import has_unknown_fields
from cordbundle.record_check import Problem, ShapeFacts, Shapes, check_keys, shown
from cordbundle.scalar_types import ScalarType
from cordbundle.tensor_view import TensorShape, TensorView

__all__ = ["PtdFile"]

MAX_VERSION = 0
"""Newest schema version that is read; the runtime's `kMaxSupportedSchemaVersion`."""


_OLD_SCHEMA = Problem(
    "weights are of an older schema",
    expected="the schema of ExecuTorch 0.7 or later",
    actual="that of before, which has the same identifier",
)

_ROWS: dict[type, Factory] = dict.fromkeys(
    (schema.DataSegment, schema.NamedData, schema.TensorLayout), ROWS
)
"""Tuples for what a file has thousands of."""


class _Shapes(dict[ShapeFacts, "TensorShape | None"]):
    """The view's shape for each tensor layout that was met.

    None where it cannot be one; `PtdFile.__getitem__` says why, with the key.
    """

    def __init__(self) -> None:
        self._checked = Shapes()

    def __missing__(self, layout: ShapeFacts) -> TensorShape | None:
        number, sizes, dim_order = layout[0], layout[1] or (), layout[2]
        order = tuple(range(len(sizes))) if dim_order is None else dim_order
        nbytes = self._checked[number, sizes, order].nbytes
        shape = None
        if nbytes is not None:
            shape = TensorShape(ScalarType(number), sizes, dim_order, nbytes)
        self[layout] = shape
        return shape


class PtdFile(Artifact[schema.FlatTensor]):
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
                cause="it may be of a schema from before ExecuTorch 0.7; export it again",
            )
        if self.root.version > max_version:
            raise UnsupportedVersionError(
                "newer schema version",
                source=name,
                expected=f"at most {max_version}",
                actual=self.root.version,
            )

    @cached_property
    def has_old_schema(self) -> bool:
        """Whether the metadata is of the schema of before ExecuTorch 0.7, which is not read here.

        It has the same identifier and version, so that a file has it that is sound in it and not in
        today's.
        """
        if not has_unknown_fields(self.root) or not verify(self.reader(), self.ROOT):
            return False
        from cordbundle.ptd_old_schema import OldFlatTensor  # few files are of that age

        return not verify(self.reader(), OldFlatTensor)

    @cached_property
    def known_root(self) -> schema.FlatTensor:
        """The root table, of today's schema.

        Raises:
            UnsupportedVersionError: It is of the schema of before ExecuTorch 0.7.
        """
        if self.has_old_schema:
            what, expected, actual = _OLD_SCHEMA
            raise UnsupportedVersionError(
                what,
                source=self.name,
                offset=position_of(self.root),
                expected=expected,
                actual=actual,
                cause="export the weights again",
            )
        return self.root

    def _flatbuffer_findings(self) -> list[Finding]:
        if self.has_old_schema:
            return [Finding(position_of(self.root), *_OLD_SCHEMA)]
        return super()._flatbuffer_findings()

    def _contents(self) -> Iterator[Finding]:
        root, entries, count = self.known_root, self.records(), len(self.segment_ranges)
        for name in ("segments", "named_data"):
            if getattr(root, name) is None:
                yield Finding(position_of(root), f"FlatTensor.{name} missing", "a vector", "none")
        views = root.named_data or ()
        keys = [(entry.key, entry.segment_index) for entry in entries]
        yield from check_keys(keys, count, lambda number: position_of(views[number]))
        shapes = Shapes()
        for number, entry in enumerate(entries):
            layout = entry.tensor_layout
            if layout is None:
                continue
            nbytes, problem = shapes.of(layout)
            at, what = position_of(views[number].tensor_layout), f"key {shown(entry.key)}"
            if problem is not None:
                yield Finding(at, f"{what}: {problem.what}", problem.expected, problem.actual)
            elif entry.segment_index < count:
                size = self.segment_ranges[entry.segment_index].size
                if size != nbytes:
                    yield Finding(at, f"{what}: bytes of its segment", str(nbytes), str(size))

    @cached_property
    def _decoded(self) -> schema.FlatTensor:
        return decode(self.known_root)

    def _segment_table(self) -> Iterable[schema.DataSegment]:
        return self._decoded.segments or ()

    @property
    def stored_ranges(self) -> tuple[SegmentRange, ...]:
        """The same as `segment_ranges`, also in the schema of before ExecuTorch 0.7.

        Raises:
            FormatError: The metadata is damaged.
        """
        if self.has_old_schema:
            from cordbundle.ptd_old_schema import OldFlatTensor

            return self._ranges(decode(self.reader().root(OldFlatTensor)).segments or ())
        return self.segment_ranges

    def records(self) -> Sequence[schema.NamedData]:
        """Return what the file says of each key, in file order; one that stands twice, twice."""
        return self._decoded.named_data or ()

    @cached_property
    def _entries(self) -> Mapping[str, schema.NamedData]:
        entries: dict[str, schema.NamedData] = {}
        for entry in self.records():
            entries.setdefault(entry.key or "", entry)  # the runtime takes the first
        return entries

    def blobs(self) -> dict[str, TensorView | Cord]:
        """Return all blobs by key, in file order; what `self[key]` gives for each, but faster.

        Raises:
            FormatError: As for `self[key]`; names the first key in file order.
        """
        blobs = self._sound_blobs()
        return {key: self[key] for key in self} if blobs is None else blobs

    def _sound_blobs(self) -> dict[str, TensorView | Cord] | None:
        """Return all blobs, or None if there is anything wrong with one of them."""
        root = decode(self.known_root, factories=_ROWS, scalars=tuple)
        segments = cast("Sequence[tuple[int, int]]", root.segments or ())
        rows = cast("Sequence[tuple[str | None, int, ShapeFacts | None]]", root.named_data or ())
        base = self.header.segment_base_offset if self.header else 0
        whole, count, shapes = self.cord, len(segments), _Shapes()
        room = len(whole) - base
        blobs: dict[str, TensorView | Cord] = {}
        for key, index, layout in rows:
            if index >= count:
                return None
            offset, size = segments[index]
            if offset + size > room:
                return None
            offset += base
            if layout is None:
                blobs.setdefault(key or "", whole[offset : offset + size])
                continue
            shape = shapes[layout]
            if shape is None or shape.nbytes != size:
                return None
            blobs.setdefault(key or "", TensorView.within(shape, whole, offset))
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
        shape = self.tensor_shape(layout, what)
        shape.check_size(len(data), what, self.name)
        return TensorView.within(shape, data, 0)
