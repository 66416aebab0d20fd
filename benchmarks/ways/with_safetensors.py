"""safetensors as installed: load all, save all."""

from __future__ import annotations

from safetensors.numpy import load_file, save_file

from benchmarks.child import Action, Task
from benchmarks.ways.with_system import sync

__all__ = ["save_again"]


def save_again(task: Task) -> Action:
    """Load every tensor of a file and save them to another."""

    def action() -> dict[str, object]:
        save_file(load_file(task.source), task.target)
        sync(task)
        return {}

    return action
