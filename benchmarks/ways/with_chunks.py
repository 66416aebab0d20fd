"""Writing many chunks as one does without a library: join, `writev`, a buffered file."""

from __future__ import annotations

import os
from collections.abc import Callable

from benchmarks.child import Action, Task
from benchmarks.serializing import chunks, file_digest

__all__ = ["buffered", "join", "writev"]

_MOST_VIEWS = 1024  # of one call


def join(task: Task) -> Action:
    """Join all in memory, then write once."""
    return _writing(task, _join)


def writev(task: Task) -> Action:
    """Write groups of 1024, each by one call."""
    return _writing(task, _writev)


def buffered(task: Task) -> Action:
    """Write one by one to a buffered file, as `open()` returns it."""
    return _writing(task, _buffered)


def _writing(task: Task, write: Callable[[str, list[bytes]], None]) -> Action:
    data = chunks(task.count, task.options["size"])

    def action() -> Callable[[], dict[str, object]]:
        write(task.target, data)
        return lambda: file_digest(task.target)

    return action


def _join(path: str, data: list[bytes]) -> None:
    with open(path, "wb", buffering=0) as file:
        _all(file.fileno(), memoryview(b"".join(data)))


def _writev(path: str, data: list[bytes]) -> None:
    with open(path, "wb", buffering=0) as file:
        for at in range(0, len(data), _MOST_VIEWS):
            group = data[at : at + _MOST_VIEWS]
            count = os.writev(file.fileno(), group)
            if count < sum(map(len, group)):
                _all(file.fileno(), memoryview(b"".join(group))[count:])


def _buffered(path: str, data: list[bytes]) -> None:
    with open(path, "wb") as file:
        for chunk in data:
            file.write(chunk)


def _all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]
