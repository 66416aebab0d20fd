"""The process under test: `python -m benchmarks.child`, told by its parent what to do.

Rules of this file: nothing is imported at the start that a competitor does not need; standard
output belongs to the parent, whatever a competitor prints goes to standard error.

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
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

from benchmarks.procfs import io_counters, memory, reset_peak

__all__ = ["Action", "Task", "main"]

Action = Callable[[], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Task:
    """What one run is to do.

    Attributes:
        source: Path of the program or bundle.
        cases: Path of an `.npz` file with its inputs and expected outputs.
        target: Path of the file to make, which does not exist.
        durability: "none", or "file" if the bytes have to be on the disk at the end.
        options: What distinguishes ways that share a function.
    """

    source: str
    cases: str = ""
    target: str = ""
    durability: Literal["none", "file"] = "none"
    options: Mapping[str, object] = field(default_factory=dict)


def main() -> None:
    """Do one run."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: dict[str, object]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    order = json.loads(sys.stdin.readline())
    module, _, function = order["entry"].partition(":")
    prepare: Callable[[Task], Action] = getattr(importlib.import_module(module), function)
    answer({"memory": memory()})
    if sys.stdin.readline().strip() != "go":  # the parent is gone
        return
    if order["warm_up"] is not None:
        prepare(Task(**order["warm_up"]))()
    answer(_measure(prepare, Task(**order["task"])))


def _measure(prepare: Callable[[Task], Action], task: Task) -> dict[str, Any]:
    """Prepare a task and run it once."""
    action = prepare(task)
    gc.collect()
    reset_peak()
    own_reading = _difference(io_counters(), io_counters())
    before = io_counters()
    processor, start = _processor_seconds(), perf_counter()
    facts = action()
    seconds, processor = perf_counter() - start, _processor_seconds() - processor
    after = io_counters()
    used = _difference(before, after)
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "memory": memory(),
        "io": {name: used[name] - own_reading[name] for name in used},
        "facts": facts,
    }


def _processor_seconds() -> float:
    """Return what this process, its threads and the processes it waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(it.ru_utime + it.ru_stime for it in used)


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in before}


if __name__ == "__main__":
    main()
