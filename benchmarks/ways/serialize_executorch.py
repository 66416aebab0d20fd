"""ExecuTorch as installed; what its functions are called with serves the drop-ins as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from executorch.exir import schema
from executorch.exir._serialize._cord import Cord, FileBackedData
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir._serialize._program import (
    PTEFile,
    deserialize_pte_binary,
    serialize_pte_binary,
)
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.exir.scalar_type import ScalarType
from executorch.exir.tensor_layout import TensorLayout
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

from benchmarks.child import Action, Facts, Task
from benchmarks.serializing import (
    blob_paths,
    decoded,
    digest,
    named_tensors,
    program,
    weights_digest,
)
from benchmarks.ways.with_system import sync

__all__ = [
    "decode",
    "decoding",
    "deduplicate",
    "delegate",
    "deserializing",
    "read_weights",
    "serialize",
    "serializing",
    "write_constants",
    "write_weights",
    "writing",
]


def serialize(task: Task) -> Action:
    """Serialize a program."""
    return serializing(serialize_pte_binary, task)


def decode(task: Task) -> Action:
    """Decode a program that is in memory."""
    return decoding(deserialize_pte_binary, task)


def write_weights(task: Task) -> Action:
    """Serialize named tensors as a `.ptd` file."""
    return writing(FlatTensorSerializer(), task)


def read_weights(task: Task) -> Action:
    """Deserialize a `.ptd` file that is in memory."""
    return deserializing(FlatTensorSerializer(), task)


def deduplicate(task: Task) -> Action:
    """Add blobs to a store that keeps equal ones once; from files or from memory."""
    paths = blob_paths(task.source)
    in_memory = task.options["held"] == "memory"
    blobs = [path.read_bytes() if in_memory else FileBackedData(str(path)) for path in paths]

    def action() -> Facts:
        store = NamedDataStore()
        for number, blob in enumerate(blobs):
            store.add_named_data(f"blob {number}", blob)
        return {"made": f"{len(store.buffers)} blobs"}

    return action


def write_constants(task: Task) -> Action:
    """Write a program with all constants given as `bytes`, since it takes nothing else."""
    constants = [path.read_bytes() for path in blob_paths(task.source)]
    made = program(schema, ScalarType.FLOAT, values=max(8, len(constants) * 2), constants=constants)

    def action() -> Facts:
        cord = serialize_pte_binary(PTEFile(made), extract_delegate_segments=True)
        with open(task.target, "wb") as file:
            cord.write_to_file(file)
        sync(task)
        return {}

    return action


def delegate(task: Task) -> Action:
    """Serialize a program whose delegate payload is `bytes`; all bytes are read after."""
    (path,) = blob_paths(task.source)
    made = program(schema, ScalarType.FLOAT, values=8, payload=path.read_bytes())
    extract = bool(task.options["extract"])

    def action() -> Callable[[], Facts]:
        cord = serialize_pte_binary(PTEFile(made), extract_delegate_segments=extract)
        return lambda: digest(cord.write_to_file)

    return action


def serializing(function: Callable[..., Any], task: Task) -> Action:
    """Return the action of serializing a program with a function."""
    made = program(schema, ScalarType.FLOAT, values=task.count)

    def action() -> Callable[[], Facts]:
        cord = function(PTEFile(made), extract_delegate_segments=True)
        return lambda: digest(cord.write_to_file)

    return action


def decoding(function: Callable[[bytes], Any], task: Task) -> Action:
    """Return the action of decoding a program with a function."""
    data = Path(task.source).read_bytes()

    def action() -> Callable[[], Facts]:
        found = function(data)
        return lambda: decoded(found.program)

    return action


def writing(serializer: Any, task: Task) -> Action:
    """Return the action of writing named tensors with a serializer."""
    tensors = list(named_tensors(task.count))
    payload = DataPayload(
        [tensor.data for tensor in tensors],
        {
            tensor.name: DataEntry(number, 1, TensorLayout(ScalarType.FLOAT, tensor.sizes, [0, 1]))
            for number, tensor in enumerate(tensors)
        },
    )

    def action() -> Callable[[], Facts]:
        cord = serializer.serialize(payload)
        return lambda: digest(cord.write_to_file)

    return action


def deserializing(serializer: Any, task: Task) -> Action:
    """Return the action of reading a `.ptd` file with a serializer."""
    cord = Cord(Path(task.source).read_bytes())

    def action() -> Callable[[], Facts]:
        payload = serializer.deserialize(cord)
        if task.options:  # the drop-in cuts them out when they are asked for
            payload.buffers = list(payload.buffers)

        def rows() -> Iterator[tuple[str, Any, list[int], bytes]]:
            for name, entry in payload.named_data.items():
                layout = entry.tensor_layout
                yield name, layout.scalar_type, layout.sizes, payload.buffers[entry.buffer_index]

        return lambda: weights_digest(rows())

    return action
