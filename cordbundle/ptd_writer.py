"""ExecuTorch weights (`.ptd`): writing, and reading into a dict.

Rules of this file: payload goes by reference into segments; every offset comes from a layout. The
bytes are those of ExecuTorch 1.5's `FlatTensorSerializer`, but that all alignments are absolute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cordbundle import ptd_schema as schema
from cordbundle.cord import Cord, Fill
from cordbundle.errors import LayoutError
from cordbundle.flatbuffer import encode, no_collection
from cordbundle.headers import FLAT_TENSOR_HEADER, ExtendedHeader, flatbuffer_with_header
from cordbundle.inputs import source_cord, source_name
from cordbundle.layout import (
    align_up,
    aligned_offsets,
    check_alignment,
    join_runs,
    segment_base,
)
from cordbundle.named_data import DataEntry, DataPayload, NamedDataStore, blob_segments
from cordbundle.ptd import PtdFile
from cordbundle.writer import WriteReport, write

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from cordbundle.source import StrPath
    from cordbundle.tensors import Array, TensorView
    from cordbundle.writer import Durability, Progress, Target

__all__ = ["SEGMENT_ALIGNMENT", "assemble_ptd", "load_ptd", "save_ptd", "serialize_ptd"]

SEGMENT_ALIGNMENT = 128
"""Default alignment of each blob in bytes, as ExecuTorch's."""

_HEADER_SLOT = align_up(FLAT_TENSOR_HEADER.length, 16)


def serialize_ptd(
    named_data: Mapping[str, object] | DataPayload, *, segment_alignment: int = SEGMENT_ALIGNMENT
) -> Cord:
    """Serialize named data as a `.ptd` file.

    Args:
        named_data: Blobs by key, in the order to store them: arrays become tensors; paths,
            bytes-like objects and Cords blobs without a tensor layout; equal ones are stored once.
            Or what `NamedDataStoreOutput.payload` returned, or ExecuTorch's `DataPayload`.
        segment_alignment: Alignment of every blob in bytes, from the start of the file.

    Returns:
        The file, by reference: what its arrays, buffers and files hold when it is written.

    Raises:
        LayoutError: A key, alignment or array that cannot be stored; names the key.
        TooLargeError: Metadata that passes 2 GiB.
        TypeError: A blob that is none of these.
    """
    with no_collection():
        if isinstance(named_data, Mapping):
            named_data = _payload(named_data)
        return assemble_ptd(named_data.buffers, named_data.named_data, segment_alignment)


def _payload(blobs: Mapping[str, object]) -> DataPayload:
    store = NamedDataStore()
    for key, blob in blobs.items():
        store.add_named_data(key, blob)
    output = store.get_named_data_store_output()  # where each array is a Cord already
    return DataPayload(output.buffers, output.pte_data)


def assemble_ptd(
    buffers: Sequence[object],
    entries: Mapping[str, DataEntry],
    segment_alignment: int,
    version: int = 0,
) -> Cord:
    """Lay out a `.ptd` file; see `serialize_ptd`.

    Args:
        buffers: The blobs.
        entries: What each key stands for.
        segment_alignment: Alignment of every blob in bytes.
        version: Version of the schema to state.
    """
    check_alignment(segment_alignment, "segments")
    named = blob_segments(buffers, entries, segment_alignment)
    sizes = list(map(len, named.blobs))
    offsets = aligned_offsets(sizes, named.alignments)
    layouts = [entry.tensor_layout for entry in entries.values()]
    root = schema.FlatTensor(
        version=version,
        segments=list(map(schema.DataSegment, offsets, sizes)),
        # The layouts have the fields of the schema's.
        named_data=list(map(schema.NamedData, named.index, named.index.values(), layouts)),  # type: ignore[arg-type]
    )
    metadata = _encoded(root)
    head_size = _HEADER_SLOT + len(metadata)
    base = segment_base(named.distinct, head_size, segment_alignment)
    header = ExtendedHeader(
        flatbuffer_offset=_HEADER_SLOT,
        flatbuffer_size=len(metadata),
        segment_base_offset=base,
        segment_data_size=offsets[-1] + sizes[-1] if sizes else 0,
    )
    cord = flatbuffer_with_header(metadata, FLAT_TENSOR_HEADER.pack(header, _HEADER_SLOT))
    cord.append(Cord.of(Fill(base - head_size)))
    cord.append(join_runs(named.blobs, offsets, 0))
    return cord


def _encoded(root: schema.FlatTensor) -> Cord:
    """Return the metadata; an error names the key whose tensor layout cannot be stored."""
    try:
        return encode(root, schema.FLAT_TENSOR_IDENTIFIER, order="flatc").cord
    except LayoutError as error:
        if error.source is None:
            error.source = next(filter(None, map(_misfit, root.named_data or ())), None)
        raise


def _misfit(entry: schema.NamedData) -> str | None:
    """Return the name of an entry that cannot be encoded, be it alone."""
    try:
        encode(schema.FlatTensor(named_data=[entry]), schema.FLAT_TENSOR_IDENTIFIER)
    except LayoutError:
        return f"key {entry.key!r}"
    return None


def save_ptd(
    tensors: Mapping[str, Array],
    target: Target,
    *,
    durability: Durability = "file",
    progress: Progress | None = None,
) -> WriteReport:
    """Save arrays as a `.ptd` file, sorted by name, each aligned to 128 bytes.

    Args:
        tensors: Arrays by name. Bytes-like objects, Cords and paths are stored without a layout.
        target: As for `cordbundle.write`, as are the others.
        durability: When the call may return.
        progress: Called with (bytes done, bytes in all).

    Returns:
        What the write did.

    Raises:
        LayoutError: A name or an array that cannot be stored; names it.
        WriteError: The target did not take all bytes.
    """
    cord = serialize_ptd({name: tensors[name] for name in sorted(tensors)})
    return write(cord, target, durability=durability, progress=progress)


def load_ptd(source: StrPath | Buffer | Cord) -> dict[str, TensorView | Cord]:
    """Load a `.ptd` file as a dict, by reference: no payload byte is read.

    Args:
        source: Path, bytes-like object or Cord with the whole file.

    Returns:
        Views by key in file order; a Cord for a blob without a tensor layout. They keep the file
        open, or the buffer held.

    Raises:
        OSError: The file cannot be opened.
        FormatError: It is no `.ptd` file, or damaged.
    """
    cord = source_cord(source)
    with PtdFile(cord, source_name(source, cord, "<memory>")) as file, no_collection():
        return file.blobs()
