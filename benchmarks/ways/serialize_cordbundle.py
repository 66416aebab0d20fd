"""cordbundle by itself, without ExecuTorch."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import cordbundle as cb
from benchmarks.child import Action, Facts, Task
from benchmarks.serializing import (
    blob_paths,
    decoded,
    digest,
    named_tensors,
    program,
    weights_digest,
)
from cordbundle import program as schema

__all__ = [
    "decode",
    "deduplicate",
    "delegate",
    "load",
    "serialize",
    "write_constants",
    "write_weights",
]


def serialize(task: Task) -> Action:
    """Serialize a program of cordbundle's own classes; its bytes are not ExecuTorch's."""
    made = program(schema, cb.ScalarType.FLOAT, values=task.count)

    def action() -> Facts:
        return {"size": len(cb.serialize_pte(made))}

    return action


def decode(task: Task) -> Action:
    """Decode a program from its path into cordbundle's own classes."""

    def action() -> Callable[[], Facts]:
        with cb.open(task.source) as file:
            assert isinstance(file, cb.PteFile)
            found = file.program()
        return lambda: decoded(found)

    return action


def write_weights(task: Task) -> Action:
    """Serialize arrays as a `.ptd` file."""
    arrays = {
        tensor.name: np.frombuffer(tensor.data, "<f4").reshape(tensor.sizes)
        for tensor in named_tensors(task.count)
    }

    def action() -> Callable[[], Facts]:
        cord = cb.serialize_ptd(arrays)
        return lambda: digest(cord.write_to_file)

    return action


def load(task: Task) -> Action:
    """Load a `.ptd` file from its path as a dict of views."""

    def action() -> Callable[[], Facts]:
        tensors = cb.load_ptd(task.source)

        def rows() -> Iterator[tuple[str, int, tuple[int, ...], memoryview]]:
            for name, tensor in tensors.items():
                assert isinstance(tensor, cb.TensorView)
                yield name, tensor.scalar_type, tensor.sizes, tensor.data

        return lambda: weights_digest(rows())

    return action


def deduplicate(task: Task) -> Action:
    """Add blobs to a store that keeps equal ones once; from files or from memory."""
    paths = blob_paths(task.source)
    in_memory = task.options["held"] == "memory"
    blobs: list[object] = [path.read_bytes() if in_memory else path for path in paths]

    def action() -> Facts:
        store = cb.NamedDataStore()
        for number, blob in enumerate(blobs):
            store.add_named_data(f"blob {number}", blob)
        return {"made": f"{len(store.buffers)} blobs"}

    return action


def write_constants(task: Task) -> Action:
    """Write a program with all constants given as mapped files."""
    constants = [_mapped(path) for path in blob_paths(task.source)]
    made = program(
        schema, cb.ScalarType.FLOAT, values=max(8, len(constants) * 2), constants=constants
    )

    def action() -> Facts:
        cord = cb.serialize_pte(made)
        report = cb.write(cord, task.target, durability=task.durability)
        return {"transfers": dict(report.transfers)}

    return action


def delegate(task: Task) -> Action:
    """Serialize a program whose delegate payload is a mapped file; all bytes are read after."""
    (path,) = blob_paths(task.source)
    made = program(schema, cb.ScalarType.FLOAT, values=8, payload=_mapped(path))
    extract = bool(task.options["extract"])

    def action() -> Callable[[], Facts]:
        cord = cb.serialize_pte(made, extract_delegate_segments=extract)
        return lambda: digest(cord.write_to_file)

    return action


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
