"""Bundles as one makes them at first: with the flatbuffers builder, or by joining bytes."""

from __future__ import annotations

from pathlib import Path

import flatbuffers

from benchmarks.child import Action, Task
from benchmarks.ways.with_cordbundle import bundle_head
from benchmarks.ways.with_system import sync

__all__ = ["build", "join"]


def build(task: Task) -> Action:
    """Read the program, and put it into a bundle of no cases with the flatbuffers builder."""

    def action() -> dict[str, object]:
        builder = flatbuffers.Builder(1024)
        program = builder.CreateByteVector(Path(task.source).read_bytes())
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(2, program, 0)
        builder.Finish(builder.EndObject(), b"BP08")
        return _write(task, builder.Output())

    return action


def join(task: Task) -> Action:
    """Read the program, join it to a head that was made before, and write both at once."""
    head = bundle_head(task)

    def action() -> dict[str, object]:
        return _write(task, b"".join((head, Path(task.source).read_bytes())))

    return action


def _write(task: Task, data: bytes | bytearray) -> dict[str, object]:
    with open(task.target, "wb") as file:
        file.write(data)
    sync(task)
    return {}
