"""What the system and the standard library offer: the floor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from benchmarks.child import Action, Task
from benchmarks.terms import MIB

__all__ = [
    "copyfile",
    "cp",
    "importing",
    "inspect",
    "python",
    "read_start",
    "sync",
    "write_alone",
]

_TIMED = "import time; s = time.perf_counter(); import {}; print(time.perf_counter() - s)"


def copyfile(task: Task) -> Action:
    """`shutil.copyfile`, then `fsync` where the file is to be durable."""

    def action() -> dict[str, object]:
        shutil.copyfile(task.source, task.target)
        sync(task)
        return {}

    return action


def write_alone(task: Task) -> Action:
    """Reserve a file as long as the source and fill it with one MiB again and again.

    That is what is left of a copy when reading costs nothing.
    """
    block, size = os.urandom(MIB), os.stat(task.source).st_size

    def action() -> dict[str, object]:
        with open(task.target, "wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            for at in range(0, size, MIB):
                file.write(block[: size - at])
        sync(task)
        return {}

    return action


def cp(task: Task) -> Action:
    """`cp --reflink=…`, with the start of its process; then `fsync` as for `copyfile`."""
    command = ["cp", f"--reflink={task.options['reflink']}", "--", task.source, task.target]

    def action() -> dict[str, object]:
        subprocess.run(command, check=True)
        sync(task)
        return {}

    return action


def read_start(task: Task) -> Action:
    """Open a file and read its first 64 KiB, unbuffered."""

    def action() -> dict[str, object]:
        with open(task.source, "rb", buffering=0) as file:
            return {"bytes": len(file.read(1 << 16))}

    return action


def python(task: Task) -> Action:
    """A process of Python that does nothing."""
    return _process([sys.executable, "-c", "pass"])


def inspect(task: Task) -> Action:
    """`cordbundle inspect`, which lists a file."""
    return _process([sys.executable, "-m", "cordbundle", "inspect", task.source])


def importing(task: Task) -> Action:
    """An import in a process of its own, which says how long it took."""
    command = [sys.executable, "-c", _TIMED.format(task.options["names"])]

    def action() -> dict[str, object]:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=_environment())
        return {"seconds": float(done.stdout)}

    return action


def _process(command: list[str]) -> Action:
    def action() -> dict[str, object]:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=_environment())
        return {"printed": len(done.stdout)}

    return action


def _environment() -> dict[str, str]:
    """Return the environment of a user, whose modules were compiled when they were installed."""
    return {name: it for name, it in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def sync(task: Task) -> None:
    """Wait until the target is on the disk, where it is to be durable."""
    if task.durability == "none":
        return
    descriptor = os.open(task.target, os.O_WRONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
