"""Weights by name, whatever files they lie in, and `.ptd` files made of them.

Rules of this file: a tensor is a range of its file and no byte of it is read, so equal tensors are
not looked for; a key is there once, or refused with both of its files; keys are sorted, so that the
same tensors give the same files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from cordbundle.cord import Cord
from cordbundle.errors import DuplicateKeyError, FormatError, LayoutError
from cordbundle.flatbuffer import no_collection
from cordbundle.headers import HEAD_SIZE, identify
from cordbundle.named_data import DataEntry, NamedDataStore, TensorLayout, check_key
from cordbundle.ptd import PtdFile
from cordbundle.ptd_schema import FLAT_TENSOR_IDENTIFIER
from cordbundle.ptd_writer import SEGMENT_ALIGNMENT, assemble_ptd
from cordbundle.tensors import TensorView, describe

if TYPE_CHECKING:
    from cordbundle.source import StrPath

__all__ = [
    "Weight",
    "is_ptd",
    "ptd_from_safetensors",
    "ptd_weights",
    "read_weights",
    "safetensors_weights",
    "serialize_weights",
    "shard_paths",
    "unique",
]

_INDEX_SUFFIX = ".json"
_SUFFIX = ".ptd"


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A blob of a file, under one of its keys.

    Attributes:
        key: The key.
        file: Name of the file.
        blob: Which blob of the file; several keys may name one.
        data: Its bytes, by reference.
        layout: What it is, if it is a tensor.
    """

    key: str
    file: str
    blob: int
    data: Cord
    layout: TensorLayout | None


@overload
def ptd_from_safetensors(
    sources: StrPath | Iterable[StrPath],
    *,
    max_bytes: None = None,
    segment_alignment: int = SEGMENT_ALIGNMENT,
) -> Cord: ...


@overload
def ptd_from_safetensors(
    sources: StrPath | Iterable[StrPath],
    *,
    max_bytes: int,
    segment_alignment: int = SEGMENT_ALIGNMENT,
) -> tuple[Cord, ...]: ...


def ptd_from_safetensors(
    sources: StrPath | Iterable[StrPath],
    *,
    max_bytes: int | None = None,
    segment_alignment: int = SEGMENT_ALIGNMENT,
) -> Cord | tuple[Cord, ...]:
    """Make `.ptd` files of the tensors of safetensors files, without reading a byte of them.

    Keys are the tensors' names and are sorted, whatever their order in the files. Equal tensors are
    not looked for, since that would read them.

    Args:
        sources: A `.safetensors` file or several, each of which may also be the index of shards
            (`model.safetensors.index.json`); these are looked for in its own folder only. The files
            have to stay as they are until the result is written.
        max_bytes: Largest sum of the sizes of the tensors in one file, in bytes. Files are filled
            in the order of the keys, as by `NamedDataStore.externalize_pte_data`.
        segment_alignment: Alignment of every tensor in bytes, from the start of the file. With that
            of a filesystem's blocks (4096), tensors that stand so in the source too can share them.

    Returns:
        The file, by reference; with `max_bytes` the files, in the order of their keys.

    Raises:
        OSError: A file cannot be opened.
        FormatError: A file that is no safetensors file, damaged, or at odds with its index.
        DuplicateKeyError: A name that is in two files, or twice in one; names them.
        LayoutError: A name, data type or size that a `.ptd` file cannot hold, an alignment that
            cannot be honoured, or a tensor larger than `max_bytes`; names the tensor.
    """
    paths = (sources,) if isinstance(sources, str | os.PathLike) else sources
    weights = unique(weight for path in paths for weight in safetensors_weights(path))
    files = serialize_weights(weights, max_bytes, segment_alignment)
    cords = tuple(files.values())
    return cords[0] if max_bytes is None else cords


def read_weights(path: StrPath) -> list[Weight]:
    """Read the metadata of a `.ptd` or `.safetensors` file, or of all shards of an index.

    Raises:
        OSError: A file cannot be opened.
        FormatError: It is none of these, or damaged.
        DuplicateKeyError: A name stands twice in one safetensors file.
        LayoutError: A name or data type that a `.ptd` file cannot hold.
    """
    cord = Cord.from_file(path)
    return ptd_weights(cord, os.fsdecode(path)) if is_ptd(cord) else safetensors_weights(path)


def is_ptd(cord: Cord) -> bool:
    """Tell whether a file is a `.ptd` file, by its identifier."""
    return bytes(cord[4:8]) == FLAT_TENSOR_IDENTIFIER


def ptd_weights(cord: Cord, name: str) -> list[Weight]:
    """Return what a `.ptd` file holds, a key that stands there twice as often.

    Args:
        cord: All bytes of the file.
        name: Its name.

    Raises:
        FormatError: It is no `.ptd` file, or damaged.
        LayoutError: A key without characters or with NUL.
    """
    weights = []
    with PtdFile(cord, name) as file, no_collection():
        for entry in file.records():  # the mapping has each key once
            key = _key(entry.key, name)
            weights.append(_weight(key, name, entry.segment_index, file[key]))
    return weights


def safetensors_weights(path: StrPath) -> list[Weight]:
    """Return what a safetensors file, or all shards of an index, hold.

    Raises:
        As `read_weights`.
    """
    from cordbundle.safetensors import read_safetensors  # loads json
    from cordbundle.safetensors_index import read_safetensors_index

    name = os.fsdecode(path)
    if name.lower().endswith(_INDEX_SUFFIX):
        shards = read_safetensors_index(path)
    else:
        _refuse_strangers(Cord.from_file(path), name)
        shards = {name: read_safetensors(path)}
    return [
        _weight(_key(key, file), file, number, view)
        for file, tensors in shards.items()
        for number, (key, view) in enumerate(tensors.items())
    ]


def _refuse_strangers(cord: Cord, name: str) -> None:
    """Say what a file is that is clearly no safetensors file."""
    head = bytes(cord[:HEAD_SIZE])
    if head[8:9] == b"{":
        return
    cause = None
    try:
        found = identify(head, name, len(cord)).name
    except FormatError as error:
        found, cause = f"{len(cord)} bytes that begin with {head[:12]!r}", error.cause
    raise FormatError(
        "no weights",
        source=name,
        expected="a safetensors file, its index or a .ptd file",
        actual=found,
        cause=cause,
    )


def _weight(key: str, file: str, blob: int, held: TensorView | Cord) -> Weight:
    if isinstance(held, Cord):
        return Weight(key, file, blob, held, None)
    try:
        tensor = describe(held)  # for its limits; the bytes stay where they are
    except LayoutError as error:
        error.source = f"{file}: key {key!r}"
        raise
    layout = TensorLayout(tensor.scalar_type, tensor.sizes, tensor.dim_order)
    return Weight(key, file, blob, held.cord, layout)


def _key(key: object, file: str) -> str:
    try:
        return check_key(key)
    except LayoutError as error:
        error.source = file
        raise


def unique(weights: Iterable[Weight]) -> dict[str, Weight]:
    """Return weights by key, sorted.

    Raises:
        DuplicateKeyError: Two have one key; names their files.
    """
    found: dict[str, Weight] = {}
    for weight in weights:
        first = found.setdefault(weight.key, weight)
        if first is not weight:
            files = (
                f"twice in {weight.file}"
                if first.file == weight.file
                else f"in {first.file} and in {weight.file}"
            )
            raise DuplicateKeyError(f"stands {files}", source=f"key {weight.key!r}")
    return {key: found[key] for key in sorted(found)}


def serialize_weights(
    weights: Mapping[str, Weight],
    max_bytes: int | None = None,
    segment_alignment: int = SEGMENT_ALIGNMENT,
    tag: str = "weights",
) -> dict[str, Cord]:
    """Lay out `.ptd` files of weights; see `ptd_from_safetensors`.

    Args:
        weights: The weights by key, in order. Keys that named one blob of a file share it again.
        max_bytes: Largest sum of blob sizes in one file, in bytes.
        segment_alignment: Alignment of every blob in bytes.
        tag: External tag of the file; with `max_bytes`, what the tags begin with.

    Returns:
        The files by external tag: `tag`, or those that `externalize_pte_data` gives. There is one
        also where there are no weights.
    """
    places: dict[tuple[str, int], int] = {}
    store = NamedDataStore()  # filled by hand, since it would compare the blobs
    for key, weight in weights.items():
        place = places.setdefault((weight.file, weight.blob), len(places))
        if place == len(store.buffers):
            store.buffers.append(weight.data)
        store.pte_data[key] = DataEntry(place, 1, weight.layout)
    if max_bytes is not None:
        store.externalize_pte_data(max_bytes, tag)
    files = store.external_data or {tag: store.pte_data}
    with no_collection():
        return {
            tag: assemble_ptd(store.buffers, entries, segment_alignment)
            for tag, entries in files.items()
        }


def shard_paths(out: str, count: int) -> list[str]:
    """Return the paths of files that were one: `OUT-00001-of-00003.ptd`; of one file, its own."""
    if count == 1:
        return [out]
    stem = out.removesuffix(_SUFFIX)
    suffix = out[len(stem) :]
    return [f"{stem}-{number:05}-of-{count:05}{suffix}" for number in range(1, count + 1)]
