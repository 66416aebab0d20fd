"""Named data: blobs under unique keys, for the program itself or for files beside it.

Rules of this file: a blob is kept as it was added, by reference, and read only to find equal ones
that agree in size and first bytes; entries say what was asked for, and what follows from several of
them together is decided in the layout. Meaning and names are those of ExecuTorch's
`exir/_serialize/_named_data_store.py`.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cordbundle.cord import Cord
from cordbundle.errors import DuplicateKeyError, LayoutError
from cordbundle.inputs import blob_cord, is_array
from cordbundle.layout import Blobs, Segment, check_alignment
from cordbundle.record_check import first_of
from cordbundle.tensors import ScalarType, describe

__all__ = [
    "DataEntry",
    "DataPayload",
    "LayoutFacts",
    "NamedDataStore",
    "NamedDataStoreOutput",
    "NamedSegments",
    "TensorLayout",
    "blob_segments",
    "check_key",
    "facts_text",
    "layout_facts",
    "layout_text",
]

LayoutFacts: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Number of the scalar type, sizes and dim order of a tensor."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """What a blob is when it is a tensor.

    Attributes:
        scalar_type: Its element type.
        sizes: Its shape.
        dim_order: Its dimensions from the outermost in memory to the innermost.
    """

    scalar_type: ScalarType
    sizes: Sequence[int]
    dim_order: Sequence[int]


@dataclass(frozen=True, slots=True)
class DataEntry:
    """What a key stands for.

    Attributes:
        buffer_index: Which of the blobs.
        alignment: Alignment that was asked for, in bytes.
        tensor_layout: What the blob is, if it is a tensor.
    """

    buffer_index: int
    alignment: int
    tensor_layout: TensorLayout | None = None


@dataclass(frozen=True, slots=True)
class DataPayload:
    """What goes into one file.

    Attributes:
        buffers: The blobs; there may be more than are named.
        named_data: Entries by key.
    """

    buffers: Sequence[object]
    named_data: Mapping[str, DataEntry]


@dataclass(frozen=True, slots=True)
class NamedDataStoreOutput:
    """The contents of a store.

    Attributes:
        buffers: The distinct blobs.
        pte_data: Entries for the program's own file, by key.
        external_data: Entries for files beside it, by tag and key.
    """

    buffers: Sequence[object] = ()
    pte_data: Mapping[str, DataEntry] = field(default_factory=dict)
    external_data: Mapping[str, Mapping[str, DataEntry]] = field(default_factory=dict)

    def payload(self, external_tag: str) -> DataPayload:
        """Return what goes into the file of an external tag.

        Raises:
            KeyError: No such tag.
        """
        return DataPayload(self.buffers, self.external_data[external_tag])


class NamedDataStore:
    """Collect blobs under keys that are unique over the program and all external tags.

    Equal blobs are kept once. Nothing is copied: a tensor or buffer that changes before the file is
    written changes what is written, and what shares its blob. Copies of a store, deep ones too,
    share the blobs.

    Attributes:
        buffers: The distinct blobs, as they were added.
        pte_data: Entries for the program's own file, by key.
        external_data: Entries for files beside it, by tag and key.
        key_to_buffer_idx: The index of each key's blob.
    """

    def __init__(self) -> None:
        self.buffers: list[object] = []
        self.pte_data: dict[str, DataEntry] = {}
        self.external_data: dict[str, dict[str, DataEntry]] = {}
        self.key_to_buffer_idx: dict[str, int] = {}
        self._forget_index()

    def __deepcopy__(self, memo: dict[int, object]) -> NamedDataStore:
        store = type(self)()
        store.buffers = list(self.buffers)
        store.pte_data = copy.deepcopy(self.pte_data, memo)
        store.external_data = copy.deepcopy(self.external_data, memo)
        store.key_to_buffer_idx = dict(self.key_to_buffer_idx)
        store._forget_index()
        for index, blob in enumerate(self._known_cords()):
            store._note(blob, index)
        return store

    def add_named_data(
        self,
        key: str,
        data: object,
        alignment: int | None = 1,
        external_tag: str | None = None,
        tensor_layout: TensorLayout | None = None,
    ) -> None:
        """Add a blob.

        A key may be added again with the same bytes: then the least common multiple of the
        alignments counts, and a layout that was missing is taken. Bytes are read only of blobs that
        agree in size, all of them only where they agree in their first bytes too.

        Args:
            key: Its key: not empty, without NUL.
            data: Bytes-like object, Cord, path, ExecuTorch's `FileBackedData`, or an array, whose
                layout is noted.
            alignment: Alignment in bytes, from the start of the file; 1 if None.
            external_tag: File beside the program; the program's own if None.
            tensor_layout: What the blob is, if it is a tensor.

        Raises:
            DuplicateKeyError: The key has other bytes, another layout or another tag.
            LayoutError: A key, alignment or array that cannot be stored, or a layout that is not
                the array's; names the key.
            SourceChangedError: A file that has another size than when it was handed over.
            TypeError: `data` is none of these.
        """
        source = f"key {check_key(key)!r}"
        wanted = check_alignment(1 if alignment is None else alignment, source)
        if is_array(data):
            blob, found = self._tensor(data, source)
            if tensor_layout is not None and layout_facts(found) != layout_facts(tensor_layout):
                raise LayoutError(
                    "tensor layout is not the array's",
                    source=source,
                    expected=layout_text(found),
                    actual=layout_text(tensor_layout),
                )
            tensor_layout = found
        else:
            blob = blob_cord(data)
        if key in self.key_to_buffer_idx:
            self._add_again(key, blob, wanted, external_tag, tensor_layout)
            return
        index = self._index_of(blob, data)
        entries = self.pte_data
        if external_tag is not None:
            entries = self.external_data.setdefault(external_tag, {})
        entries[key] = self._entry(index, wanted, tensor_layout)
        self.key_to_buffer_idx[key] = index

    def _tensor(self, array: object, source: str) -> tuple[Cord, TensorLayout]:
        """Return the bytes and the layout of an array."""
        try:
            tensor = describe(array)  # type: ignore[arg-type]  # a TypeError for what it is not
        except LayoutError as error:
            error.source = source
            raise
        return tensor.cord, self._layout(tensor.scalar_type, tensor.sizes, tensor.dim_order)

    def _layout(
        self, scalar_type: ScalarType, sizes: Sequence[int], dim_order: Sequence[int]
    ) -> TensorLayout:
        return TensorLayout(scalar_type, tuple(sizes), tuple(dim_order))

    def _entry(self, index: int, alignment: int, layout: TensorLayout | None) -> DataEntry:
        return DataEntry(index, alignment, layout)

    def _add_again(
        self,
        key: str,
        blob: Cord,
        alignment: int,
        tag: str | None,
        layout: TensorLayout | None,
    ) -> None:
        source = f"key {key!r}"
        held = self._blob(self.key_to_buffer_idx[key])
        if held != blob:
            raise DuplicateKeyError(
                "added before with other data",
                source=source,
                expected=f"{len(held)} bytes",
                actual=f"{len(blob)} bytes" + (" that differ" if len(held) == len(blob) else ""),
            )
        known = self._tags_of(key)
        if tag not in known:
            raise DuplicateKeyError(
                "added before for another file",
                source=source,
                expected=" and ".join(map(_tag_text, known)),
                actual=_tag_text(tag),
            )
        entries = self.pte_data if tag is None else self.external_data[tag]
        entry = entries[key]
        if layout is not None and entry.tensor_layout is not None:
            if layout_facts(entry.tensor_layout) != layout_facts(layout):
                raise DuplicateKeyError(
                    "added before with another tensor layout",
                    source=source,
                    expected=layout_text(entry.tensor_layout),
                    actual=layout_text(layout),
                )
            layout = entry.tensor_layout
        together = check_alignment(math.lcm(entry.alignment, alignment), source)
        entries[key] = replace(
            entry, alignment=together, tensor_layout=layout or entry.tensor_layout
        )

    def _tags_of(self, key: str) -> list[str | None]:
        tags: list[str | None] = [None] if key in self.pte_data else []
        return tags + [tag for tag, entries in self.external_data.items() if key in entries]

    def _forget_index(self) -> None:
        self._blobs = Blobs()
        self._indices: list[int] = []  # place in `buffers` by the number of a distinct blob
        self._indexed: list[object] = self.buffers
        self._cords: list[Cord] = []  # the bytes of each of `buffers`, as far as it was looked at

    def _index_of(self, blob: Cord, data: object) -> int:
        """Return the place of a blob in `buffers`, adding it if it is new."""
        if self._indexed is not self.buffers:  # it was set by hand
            self._forget_index()
        for index in range(len(self._cords), len(self.buffers)):
            self._note(blob_cord(self.buffers[index]), index)
        index = self._note(blob, len(self.buffers))
        if index == len(self.buffers):
            self.buffers.append(data)
        else:
            self._cords.pop()
        return index

    def _note(self, blob: Cord, index: int) -> int:
        """Note the bytes of what is or will be at `index`; return the place of the first such."""
        self._cords.append(blob)
        number = self._blobs.find(blob)
        if number == len(self._indices):
            self._indices.append(index)
        return self._indices[number]

    def _known_cords(self) -> Sequence[Cord]:
        """Return the bytes of `buffers`, up to those that were set by hand since."""
        return self._cords if self._indexed is self.buffers else ()

    def _blob(self, index: int) -> Cord:
        """Return the bytes of one of `buffers`."""
        known = self._known_cords()
        return known[index] if index < len(known) else blob_cord(self.buffers[index])

    def merge_named_data_store(self, other: NamedDataStoreOutput) -> None:
        """Add all that another store holds.

        Args:
            other: What `get_named_data_store_output` of the other store returned.

        Raises:
            DuplicateKeyError: As for `add_named_data`.
        """
        for tag, entries in [(None, other.pte_data), *other.external_data.items()]:
            for key, entry in entries.items():
                blob = other.buffers[entry.buffer_index]
                self.add_named_data(key, blob, entry.alignment or 1, tag, entry.tensor_layout)

    def externalize_pte_data(self, max_data_bytes: int, tag_prefix: str) -> None:
        """Move what is meant for the program into external files of bounded size.

        Blobs are packed in the order of their keys, so that equal stores give equal files whatever
        the order of adding. A tag is the prefix, `_`, and the SHA-256 of the file's keys. It either
        moves all or changes nothing.

        Args:
            max_data_bytes: Largest sum of blob sizes in one file, in bytes.
            tag_prefix: What the tags begin with.

        Raises:
            LayoutError: A cap or prefix of another kind, a blob larger than the cap, or a tag that
                is there already with other contents.
        """
        if type(max_data_bytes) is not int or max_data_bytes <= 0:
            raise LayoutError(
                "external data shard cap must be a positive integer",
                expected="1 or more",
                actual=repr(max_data_bytes),
            )
        if not tag_prefix:
            raise LayoutError(
                "external data tag prefix must be nonempty",
                expected="a string that is not empty",
                actual=repr(tag_prefix),
            )
        import hashlib  # loads OpenSSL

        external_data = {tag: dict(entries) for tag, entries in self.external_data.items()}
        for keys in self._shards(max_data_bytes):
            digest = hashlib.sha256("\0".join(keys).encode()).hexdigest()
            tag = f"{tag_prefix}_{digest}"
            entries = {key: self.pte_data[key] for key in keys}
            if external_data.setdefault(tag, entries) != entries:
                raise LayoutError(
                    f"external data tag collision for {tag}",
                    expected=f"keys {keys[:16]}",
                    actual=f"keys {list(external_data[tag])[:16]}",
                )
        self.external_data = external_data
        self.pte_data = {}

    def _shards(self, max_data_bytes: int) -> list[list[str]]:
        """Return the sorted keys of each file."""
        keys_of: dict[int, list[str]] = {}
        for key in sorted(self.pte_data):
            keys_of.setdefault(self.pte_data[key].buffer_index, []).append(key)
        shards: list[list[str]] = []
        room = 0
        for index, keys in sorted(keys_of.items(), key=lambda item: item[1]):
            size = self._size(index)
            if size > max_data_bytes:
                raise LayoutError(
                    f"buffer {index} exceeds external data shard cap",
                    source=f"key {keys[0]!r}",
                    expected=f"at most {max_data_bytes} bytes",
                    actual=f"{size} bytes",
                )
            if not shards or size > room:
                shards.append([])
                room = max_data_bytes
            shards[-1] += keys
            room -= size
        return [sorted(keys) for keys in shards]

    def _size(self, index: int) -> int:
        known = self._known_cords()
        if index < len(known):
            return len(known[index])
        held = self.buffers[index]  # whatever has a length, as in ExecuTorch
        return held.nbytes if isinstance(held, memoryview) else len(held)  # type: ignore[arg-type]

    def get_named_data_store_output(self) -> NamedDataStoreOutput:
        """Return the contents, without external tags that have no keys; nothing is copied.

        Arrays, paths and buffers other than `bytes` are Cords there, so that what comes after need
        not know them, and may make deep copies.
        """
        self.external_data = {tag: data for tag, data in self.external_data.items() if data}
        known = self._known_cords()
        if all(map(_is_bytes, self.buffers[: len(known)])):
            return self._output(self.buffers)
        put_out = [
            held if _is_bytes(held) else cord
            for held, cord in zip(self.buffers, known, strict=False)
        ]
        return self._output(put_out + self.buffers[len(known) :])

    def _output(self, buffers: list[object]) -> NamedDataStoreOutput:
        return NamedDataStoreOutput(buffers, self.pte_data, self.external_data)


@dataclass(frozen=True, slots=True)
class NamedSegments:
    """Blobs as segments, one for each blob that a key names, in the order of the keys.

    Attributes:
        keys: The first key of each.
        blobs: The bytes of each.
        alignments: The alignment of each, in bytes.
        index: For each key, the position of its blob among them.
    """

    keys: Sequence[str]
    blobs: Sequence[Cord]
    alignments: Sequence[int]
    index: Mapping[str, int]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All of them as segments, named after their first keys."""
        return tuple(map(self._segment, range(len(self.blobs))))

    @property
    def distinct(self) -> tuple[Segment, ...]:
        """The first segment of each alignment: enough to find the segment base."""
        count = len(self.alignments)
        firsts = dict(zip(reversed(self.alignments), reversed(range(count)), strict=True))
        return tuple(map(self._segment, sorted(firsts.values())))

    def _segment(self, number: int) -> Segment:
        name = f"key {self.keys[number]!r}"
        return Segment(name, self.blobs[number], self.alignments[number])


def blob_segments(
    buffers: Sequence[object], entries: Mapping[str, DataEntry], alignment: int = 1
) -> NamedSegments:
    """Make segments of the blobs that keys name, one for each place in `buffers`.

    Args:
        buffers: The blobs.
        entries: What each key stands for. An alignment of 0 counts as 1, as in ExecuTorch.
        alignment: Alignment of every segment, in bytes.

    Returns:
        The segments, each aligned to the least common multiple of `alignment` and what all of its
        keys ask for.

    Raises:
        LayoutError: A key, an alignment or an index that cannot be stored.
    """
    places: dict[int, int] = {}  # position of the segment by place in `buffers`
    index: dict[str, int] = {}
    keys: list[str] = []
    alignments: list[int] = []
    for key, entry in entries.items():
        place = entry.buffer_index
        number = places.get(place)
        if number is None:
            if not 0 <= place < len(buffers):
                raise _no_blob(key, place, len(buffers))
            number = places[place] = len(keys)
            keys.append(key)
            alignments.append(alignment)
        index[check_key(key)] = number
        asked, together = entry.alignment or 1, alignments[number]
        if type(asked) is not int or asked < 1 or together % asked:
            check_alignment(asked, f"key {key!r}")
            common = math.lcm(together, asked)
            alignments[number] = check_alignment(common, f"key {keys[number]!r}")
    blobs = [blob_cord(buffers[place]) for place in places]
    return NamedSegments(keys, blobs, alignments, index)


def _no_blob(key: str, place: int, count: int) -> LayoutError:
    return LayoutError(
        "no such blob",
        source=f"key {key!r}",
        expected=f"an index from 0 to {count - 1}",
        actual=place,
    )


_UNFIT = re.compile("[\0\ud800-\udfff]")


def check_key(key: object) -> str:
    """Return a key if a file can hold it.

    Raises:
        LayoutError: It is no string, empty, or holds NUL, where the runtime would end it, or half
            of a surrogate pair.
    """
    if isinstance(key, str) and key:
        is_fit = "\0" not in key if key.isascii() else not _UNFIT.search(key)
        if is_fit:
            return key
    raise LayoutError(
        "key cannot be stored",
        expected="a string that is not empty and holds no NUL and no lone surrogate",
        actual=repr(key)[:80],
    )


def _is_bytes(blob: object) -> bool:
    """Tell whether a blob is sized, comparable to `bytes` and immutable, as ExecuTorch's are."""
    return isinstance(blob, bytes | Cord) or hasattr(blob, "_path")


def layout_facts(layout: TensorLayout) -> LayoutFacts:
    """Return what a tensor is, comparable: also of ExecuTorch's layouts, and whatever lists."""
    return int(layout.scalar_type), tuple(layout.sizes), tuple(layout.dim_order)


def facts_text(facts: LayoutFacts) -> str:
    """Return what a tensor is, in words: `FLOAT [2, 3]`, and the dim order unless row-major."""
    number, sizes, dim_order = facts
    kind = ScalarType.get(number)
    text = f"{number if kind is None else kind.name} {first_of(sizes)}"
    if dim_order == tuple(range(len(sizes))):
        return text
    return f"{text} in dim order {first_of(dim_order)}"


def layout_text(layout: TensorLayout) -> str:
    """Return a tensor layout in words; see `facts_text`."""
    return facts_text(layout_facts(layout))


def _tag_text(tag: str | None) -> str:
    return "the program" if tag is None else f"external tag {tag!r}"
