"""`FlatTensorSerializer`: `.ptd` files in ExecuTorch's terms.

Rules of this file: ExecuTorch's version number is read when it is needed; no `flatc`, no temporary
folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, cast

from executorch.exir._serialize._named_data_store import NamedDataStoreOutput
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload, DataSerializer
from executorch.extension.flat_tensor.serialize import flat_tensor_schema
from executorch.extension.flat_tensor.serialize import serialize as original
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorConfig

from cordbundle import ptd_schema as schema
from cordbundle.cord import Cord
from cordbundle.errors import FormatError, UnsupportedVersionError
from cordbundle.executorch.blobs import SegmentBytes
from cordbundle.executorch.records import factories
from cordbundle.flatbuffer import ROWS, Factory, decode, no_collection
from cordbundle.inputs import blob_cord, source_name
from cordbundle.ptd import PtdFile
from cordbundle.ptd_writer import assemble_ptd

if TYPE_CHECKING:
    from executorch.exir.tensor_layout import TensorLayout
    from typing_extensions import Buffer

__all__ = ["FlatTensorSerializer", "NewerFlatTensorError"]

_ANY = 2**32 - 1


@cache
def _factories() -> dict[type, Factory]:
    """Return what makes the records that are handed out; the tables around them become rows."""
    made = factories(flat_tensor_schema, schema.FlatTensor)
    return {
        schema.TensorLayout: made[schema.TensorLayout],
        schema.DataSegment: ROWS,
        schema.NamedData: ROWS,
    }


class NewerFlatTensorError(UnsupportedVersionError, NotImplementedError):
    """Say that a `.ptd` file has a newer schema; a `NotImplementedError` as in ExecuTorch."""


class FlatTensorSerializer(DataSerializer):  # type: ignore[misc]  # ExecuTorch has no types
    """Serialize named data as `.ptd` files, by reference.

    Args:
        config: The alignment of segments; 128 bytes if None.
    """

    def __init__(self, config: FlatTensorConfig | None = None) -> None:
        self.config = FlatTensorConfig() if config is None else config

    def serialize(self, data: DataPayload) -> Cord:
        """Serialize blobs and their keys; see `cordbundle.serialize_ptd`.

        Raises:
            LayoutError: A key or alignment that cannot be stored.
        """
        with no_collection():
            return assemble_ptd(
                data.buffers,
                data.named_data,
                self.config.segment_alignment,
                version=original._FLAT_TENSOR_VERSION,
            )

    def deserialize(self, blob: Cord | Buffer) -> DataPayload:
        """Read a `.ptd` file.

        Args:
            blob: The whole file: this project's Cord, ExecuTorch's, or a bytes-like object.

        Returns:
            The blobs as a `SegmentBytes`, which cuts each out of the file as `bytes` when it is
            asked for, and their keys. Alignments are not in the file.

        Raises:
            FormatError: It is no `.ptd` file, or a damaged one.
            NewerFlatTensorError: It has a newer schema than ExecuTorch knows.
        """
        cord = blob_cord(blob)
        file = PtdFile(cord, source_name(blob, cord, "<memory>"), max_version=_ANY)
        with no_collection():
            return _payload(file)

    def deserialize_to_named_data_store_output(
        self, blob: Cord | Buffer, name: str
    ) -> NamedDataStoreOutput:
        """Read a `.ptd` file as the contents of a store whose external tag is `name`.

        Its blobs are a list of `bytes`.

        Raises:
            FormatError: As for `deserialize`.
        """
        payload = self.deserialize(blob)
        return NamedDataStoreOutput(
            buffers=list(payload.buffers), pte_data={}, external_data={name: payload.named_data}
        )


def _payload(file: PtdFile) -> DataPayload:
    root = _root(file)
    buffers = _segments(file, root)
    rows = cast("Sequence[tuple[str, int, TensorLayout | None]]", root.named_data or ())
    if not rows:
        return DataPayload(buffers=buffers, named_data={})
    keys, indices, layouts = zip(*rows, strict=True)
    count = len(buffers)
    if max(indices) >= count:
        key, index, _ = next(row for row in rows if row[1] >= count)
        raise FormatError(
            f"segment of key {key!r} does not exist",
            source=file.name,
            expected=f"an index below {count}",
            actual=index,
        )
    entries = map(DataEntry, indices, repeat(1), layouts)
    return DataPayload(buffers=buffers, named_data=dict(zip(keys, entries, strict=True)))


def _root(file: PtdFile) -> schema.FlatTensor:
    """Return the metadata with ExecuTorch's tensor layouts, if ExecuTorch knows its version."""
    newest, version = original._FLAT_TENSOR_VERSION, file.root.version
    if version > newest:
        raise NewerFlatTensorError(
            "newer schema version",
            source=file.name,
            expected=f"at most {newest}",
            actual=version,
        )
    root: schema.FlatTensor = decode(file.known_root, factories=_factories())
    return root


def _segments(file: PtdFile, root: schema.FlatTensor) -> SegmentBytes:
    """Return the segments, all of them inside the file."""
    base = file.header.segment_base_offset if file.header else 0
    rows = cast("Sequence[tuple[int, int]]", root.segments or ())
    if base + max([offset + size for offset, size in rows], default=0) > len(file.cord):
        for number, (offset, size) in enumerate(rows):
            file.range_of(base + offset, size, f"segment {number}")  # raises for the one outside
    return SegmentBytes(file.cord, base, rows)
