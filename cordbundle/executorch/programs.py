"""Programs: from an emitter's output to `.pte` and `.ptd` files, and back.

Rules of this file: signatures, meaning and bytes are ExecuTorch's `exir/_serialize/_serialize.py`
and `_program.py`; what is handed in is never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from executorch.exir import schema as exir_schema
from executorch.exir._serialize._named_data_store import NamedDataStoreOutput
from executorch.exir._serialize._program import PTEFile
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.exir.tensor_layout import TensorLayout

from cordbundle import program as schema
from cordbundle.cord import Cord
from cordbundle.errors import DuplicateKeyError, FormatError
from cordbundle.executorch.blobs import CordBackedData
from cordbundle.executorch.flat_tensor import FlatTensorSerializer
from cordbundle.executorch.named_data import NamedDataStore
from cordbundle.executorch.records import factories
from cordbundle.flatbuffer import decode
from cordbundle.inputs import blob_cord, source_cord, source_name
from cordbundle.layout import Blobs
from cordbundle.pte import PteFile
from cordbundle.pte_writer import Options, assemble
from cordbundle.tags import tensor_data_paths
from cordbundle.writer import write_all

if TYPE_CHECKING:
    from executorch.exir._serialize.data_serializer import DataSerializer
    from executorch.exir.capture._config import ExecutorchBackendConfig
    from executorch.exir.emit import EmitterOutput
    from typing_extensions import Buffer

__all__ = [
    "deserialize_pte_binary",
    "serialize_for_executorch",
    "serialize_pte_binary",
    "write_tensor_data_to_file",
]


def serialize_for_executorch(
    emitter_output: EmitterOutput,
    config: ExecutorchBackendConfig,
    data_serializer: DataSerializer,
    named_data_store: NamedDataStoreOutput | None = None,
) -> tuple[Cord, dict[str, Cord]]:
    """Serialize what the emitter made as a `.pte` file and its `.ptd` files.

    Args:
        emitter_output: The program, its mutable data and external constants.
        config: Alignments, and whether delegates become segments.
        data_serializer: Makes the `.ptd` files; this package's, ExecuTorch's or any other.
        named_data_store: Named data for the program and for external files.

    Returns:
        The program, and the external files by tag; no dict entry without external data. What
        `data_serializer` returns is passed on, everything else is by reference.

    Raises:
        DuplicateKeyError: An external constant and a key of the store that differ.
        LayoutError: Something that cannot be stored.
    """
    store = named_data_store or NamedDataStoreOutput(buffers=[], pte_data={}, external_data={})
    pte_data = None
    if store.buffers and store.pte_data:
        pte_data = NamedDataStoreOutput(store.buffers, store.pte_data, external_data={})
    pte = serialize_pte_binary(
        PTEFile(emitter_output.program, emitter_output.mutable_data, pte_data),
        extract_delegate_segments=config.extract_delegate_segments,
        segment_alignment=config.segment_alignment,
        constant_tensor_alignment=config.constant_tensor_alignment,
        delegate_alignment=config.delegate_alignment,
    )
    if emitter_output.external_constant_map:
        store = _with_constants(emitter_output, store)
    buffers = _plain_buffers(store.buffers, data_serializer)
    return pte, {
        tag: data_serializer.serialize(DataPayload(buffers, entries))
        for tag, entries in store.external_data.items()
    }


def _with_constants(
    emitter_output: EmitterOutput, store: NamedDataStoreOutput
) -> NamedDataStoreOutput:
    """Return the store with the external constants of the emitter before its own blobs."""
    layouts = _external_layouts(emitter_output.program)
    merged = NamedDataStore()
    for tag, constants in emitter_output.external_constant_map.items():
        for name, index in constants.items():
            if name not in layouts:
                raise FormatError(
                    "no tensor of the program is this external constant",
                    source=f"key {name!r}",
                    expected=f"one of {sorted(layouts)[:16]}",
                    actual=repr(name),
                )
            merged.add_named_data(
                name,
                emitter_output.external_constant_buffer[index],
                tensor_layout=layouts[name],
                external_tag=tag,
            )
    merged.merge_named_data_store(store)
    return merged  # not its output: a tag stays although it has no keys, as in ExecuTorch


def _external_layouts(program: Any) -> dict[str, TensorLayout]:
    """Return the layouts of the tensors whose data is external, by name."""
    layouts = {}
    for plan in program.execution_plan:
        for value in plan.values:
            tensor = value.val
            if not isinstance(tensor, exir_schema.Tensor) or tensor.extra_tensor_info is None:
                continue
            info = tensor.extra_tensor_info
            is_external = info.location == exir_schema.TensorDataLocation.EXTERNAL
            if is_external and info.fully_qualified_name is not None:
                layouts[info.fully_qualified_name] = TensorLayout(
                    tensor.scalar_type, tensor.sizes, tensor.dim_order
                )
    return layouts


def _plain_buffers(buffers: Sequence[Any], serializer: DataSerializer) -> Sequence[Any]:
    """Return blobs as ExecuTorch would have them: only this package's takes Cords by reference."""
    if isinstance(serializer, FlatTensorSerializer):
        return buffers
    return [bytes(blob) if isinstance(blob, Cord | CordBackedData) else blob for blob in buffers]


def serialize_pte_binary(
    pte_file: PTEFile,
    *,
    extract_delegate_segments: bool = False,
    segment_alignment: int = 128,
    constant_tensor_alignment: int | None = None,
    delegate_alignment: int | None = None,
) -> Cord:
    """Serialize a program as a `.pte` file; see `cordbundle.serialize_pte`.

    Unlike that, it adds no placeholder where the program has no constant buffer at all.

    Args:
        pte_file: The program, its mutable data and named data.
        extract_delegate_segments: Whether delegate payloads become segments.
        segment_alignment: Alignment of every segment in bytes, from the start of the file.
        constant_tensor_alignment: Alignment of each constant in bytes; 16 if None.
        delegate_alignment: Alignment of inline delegate payloads in bytes; 16 if None.

    Raises:
        LayoutError: Something that cannot be stored.
    """
    return assemble(
        pte_file.program,
        pte_file.program.constant_buffer,
        pte_file.mutable_data,
        pte_file.named_data,
        Options(
            segment_alignment,
            constant_tensor_alignment,
            delegate_alignment,
            extract_delegate_segments,
        ),
    )


def deserialize_pte_binary(program_data: Buffer | Cord) -> PTEFile:
    """Read a `.pte` file into ExecuTorch's records, as they were before it was serialized.

    Args:
        program_data: The whole file.

    Returns:
        The program with constants and delegates inline, its mutable data and its named data, all
        payload as `bytes`. Alignments and tensor layouts of named data are not in the file.

    Raises:
        FormatError: It is no program, or a damaged one.
    """
    cord = source_cord(program_data)
    file = PteFile(cord, source_name(None, cord, "<memory>"))
    program: Any = decode(file.root, factories=factories(exir_schema, schema.Program))
    if not file.header or not file.header.segment_base_offset:
        return PTEFile(program=program, mutable_data=None, named_data=None)
    return _Restorer(file, program).restore()


class _Restorer:
    """A program whose segments are put back to where they were."""

    def __init__(self, file: PteFile, program: Any) -> None:
        self._file = file
        self._program = program
        self._segments: dict[int, bytes] = {}

    def restore(self) -> PTEFile:
        program = self._program
        self._restore_delegates()
        constants = program.constant_segment
        if constants is not None and constants.offsets:
            program.constant_buffer = self._parts(constants, "the constants")
            constants.segment_index = 0
            constants.offsets = []
        mutable_data = None
        if program.mutable_data_segments:
            mutable_data = self._mutable_data(program.mutable_data_segments)
            program.mutable_data_segments = None
        named_data = self._named_data(program.named_data) if program.named_data else None
        program.named_data = []
        program.segments = []
        return PTEFile(program=program, mutable_data=mutable_data, named_data=named_data)

    def _segment(self, index: int, what: str) -> bytes:
        known = self._segments.get(index)
        if known is None:
            known = self._segments[index] = bytes(self._file.segment(index, what))
        return known

    def _restore_delegates(self) -> None:
        program = self._program
        for plan in program.execution_plan or ():
            for delegate in plan.delegates or ():
                place = delegate.processed
                if place is None or place.location == exir_schema.DataLocation.INLINE:
                    continue
                what = f"delegate {delegate.id!r} of method {plan.name!r}"
                payload = self._segment(place.index, what)
                if program.backend_delegate_data is None:
                    program.backend_delegate_data = []
                delegate.processed = exir_schema.BackendDelegateDataReference(
                    exir_schema.DataLocation.INLINE, len(program.backend_delegate_data)
                )
                inline = exir_schema.BackendDelegateInlineData(data=payload)
                program.backend_delegate_data.append(inline)

    def _parts(self, table: Any, what: str) -> list[Any]:
        """Cut a segment at its offsets; what pads a part belongs to it, as in ExecuTorch."""
        data = self._segment(table.segment_index, what)
        offsets: list[int] = table.offsets or []
        ends = [*offsets[1:], len(data)]
        return [
            exir_schema.Buffer(storage=data[begin:end])
            for begin, end in zip(offsets, ends, strict=True)
        ]

    def _mutable_data(self, tables: Sequence[Any]) -> list[Any]:
        if len(tables) > 1:
            raise FormatError(
                "several segments of mutable data",
                source=self._file.name,
                expected="one",
                actual=len(tables),
            )
        return self._parts(tables[0], "the mutable data")

    def _named_data(self, entries: Iterable[Any]) -> NamedDataStoreOutput:
        known = Blobs()
        buffers: list[bytes] = []
        pte_data: dict[str, DataEntry] = {}
        for entry in entries:
            data = self._segment(entry.segment_index, f"key {entry.key!r}")
            number = known.find(Cord(data))
            if number == len(buffers):
                buffers.append(data)
            found = pte_data.setdefault(entry.key, DataEntry(number, 1, None))
            if found.buffer_index != number:
                raise DuplicateKeyError(
                    "key stands twice, with different data",
                    source=self._file.name,
                    actual=repr(entry.key),
                )
        return NamedDataStoreOutput(buffers=buffers, pte_data=pte_data, external_data={})


def write_tensor_data_to_file(manager: Any, outdir: str | os.PathLike[str]) -> None:
    """Write the external data files of a program manager, as its own method of that name does.

    All files appear or none, and no tag becomes a path outside the folder.

    Args:
        manager: The manager, or an ExecuTorch program; the method's `self`.
        outdir: The folder.

    Raises:
        LayoutError: A tag that is no file name.
        DuplicateKeyError: Two tags that would be one file.
        WriteError: A file cannot be written.
    """
    data = manager._tensor_data or {}
    cords = {tag: blob_cord(cord) for tag, cord in data.items()}
    write_all(tensor_data_paths(cords, outdir), durability="none")
