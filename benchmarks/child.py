"""The process under test: `python -m benchmarks.child`, told by its parent what to do.

Rules of this file: nothing is imported at the start that a competitor does not need; standard
output belongs to the parent, whatever a competitor prints goes to standard error. Nothing is kept
from one call to the next: a process measures one.

    parent                                child
    {"entry", "task", "warm_up"}    ->    imports the competitor
                                    <-    {"memory"}: what is resident after the import
    "go"                            ->    warms up, prepares, measures
                                    <-    {"seconds", "processor_seconds", "memory", "io", "facts"}
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

from benchmarks.procfs import bytes_written_to, io_counters, memory, reset_peak, rollup

__all__ = ["MARK", "Action", "Facts", "Task", "main"]

Facts = dict[str, object]

Action = Callable[[], "Facts | Callable[[], Facts]"]
"""What is measured. It returns facts, or a function that finds them and is called after the
measuring: the digest of what was made, say. "seconds" among the facts of a way that measures
itself, in a process that it starts, stands in place of what was measured here."""

MARK = "/no-such-path/measured"
"""Looked for before and after what is measured, so that a trace of system calls shows where."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one run is to do.

    Attributes:
        source: Path of the program, bundle, weights or index of blobs.
        cases: Path of an `.npz` file with its inputs and expected outputs.
        target: Path of the file to make, which does not exist.
        durability: "none", or "file" if the bytes have to be on the disk at the end.
        options: What distinguishes ways that share a function.
        count: How many values or tensors to make, where that is what counts.
        device: Number of the block device under the target, if nobody else writes to it.
        marked: Whether a trace is to show where the measuring begins and ends.
    """

    source: str
    cases: str = ""
    target: str = ""
    durability: Literal["none", "file"] = "none"
    options: Mapping[str, object] = field(default_factory=dict)
    count: int = 0
    device: str = ""
    marked: bool = False


def main() -> None:
    """Do one run."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: dict[str, object]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    order = json.loads(sys.stdin.readline())
    module, _, function = order["entry"].partition(":")
    prepare: Callable[[Task], Action] = getattr(importlib.import_module(module), function)
    answer({"memory": memory() | rollup()})
    if sys.stdin.readline().strip() != "go":  # the parent is gone
        return
    if order["warm_up"] is not None:
        _facts(prepare(Task(**order["warm_up"]))())
    answer(_measure(prepare, Task(**order["task"])))


def _measure(prepare: Callable[[Task], Action], task: Task) -> dict[str, Any]:
    """Prepare a task and run it once."""
    action = prepare(task)
    written = _written(task)
    gc.collect()
    reset_peak()
    own_reading = _difference(io_counters(), io_counters())
    before = io_counters()
    processor = _processor_seconds()
    _mark(task)
    start = perf_counter()
    found = action()
    seconds = perf_counter() - start
    _mark(task)
    processor = _processor_seconds() - processor
    after = io_counters()
    used = _difference(before, after)
    resident = memory()
    written = _written(task) - written
    facts = _facts(found)
    return {
        "seconds": facts.pop("seconds", seconds),
        "processor_seconds": processor,
        "memory": resident,
        "io": {name: used[name] - own_reading[name] for name in used},
        **({"device_bytes": written} if task.device else {}),
        "facts": facts,
    }


def _mark(task: Task) -> None:
    if task.marked:
        os.access(MARK, os.F_OK)


def _written(task: Task) -> int:
    """Return what has gone to the target's device, after all that is to go there has gone."""
    if not task.device:
        return 0
    subprocess.run(["sync", "-f", os.path.dirname(task.target)], check=True)
    return bytes_written_to(task.device)


def _facts(found: Facts | Callable[[], Facts]) -> Facts:
    return found() if callable(found) else found


def _processor_seconds() -> float:
    """Return what this process, its threads and the processes it waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(it.ru_utime + it.ru_stime for it in used)


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in before}


if __name__ == "__main__":
    main()
