"""cordbundle in ExecuTorch's place: its drop-ins, called with ExecuTorch's own objects."""

from __future__ import annotations

import cordbundle.executorch as dropins
from benchmarks.child import Action, Task
from benchmarks.ways.serialize_executorch import (
    decoding,
    deserializing,
    serializing,
    writing,
)

__all__ = ["decode", "read_weights", "serialize", "write_weights"]


def serialize(task: Task) -> Action:
    """Serialize a program."""
    return serializing(dropins.serialize_pte_binary, task)


def decode(task: Task) -> Action:
    """Decode a program that is in memory."""
    return decoding(dropins.deserialize_pte_binary, task)


def write_weights(task: Task) -> Action:
    """Serialize named tensors as a `.ptd` file."""
    return writing(dropins.FlatTensorSerializer(), task)


def read_weights(task: Task) -> Action:
    """Deserialize a `.ptd` file that is in memory."""
    return deserializing(dropins.FlatTensorSerializer(), task)
