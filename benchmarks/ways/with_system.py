"""What the system and the standard library offer: the floor."""

from __future__ import annotations

import os
import shutil
import subprocess

from benchmarks.child import Action, Task

__all__ = ["copyfile", "cp", "read_start"]


def copyfile(task: Task) -> Action:
    """`shutil.copyfile`, then `fsync` where the file is to be durable."""

    def action() -> dict[str, object]:
        shutil.copyfile(task.source, task.target)
        _sync(task)
        return {}

    return action


def cp(task: Task) -> Action:
    """`cp --reflink=…`, with the start of its process; then `fsync` as for `copyfile`."""
    command = ["cp", f"--reflink={task.options['reflink']}", "--", task.source, task.target]

    def action() -> dict[str, object]:
        subprocess.run(command, check=True)
        _sync(task)
        return {}

    return action


def read_start(task: Task) -> Action:
    """Open a file and read its first 64 KiB, unbuffered."""

    def action() -> dict[str, object]:
        with open(task.source, "rb", buffering=0) as file:
            return {"bytes": len(file.read(1 << 16))}

    return action


def _sync(task: Task) -> None:
    if task.durability == "none":
        return
    descriptor = os.open(task.target, os.O_WRONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
