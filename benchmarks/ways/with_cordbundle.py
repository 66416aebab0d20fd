"""cordbundle."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

import cordbundle as cb
from benchmarks.child import Action, Facts, Task
from benchmarks.serializing import chunks, file_digest
from benchmarks.ways.with_system import sync
from cordbundle.writer import WriteReport

__all__ = [
    "bundle",
    "bundle_head",
    "cat",
    "cut",
    "extract",
    "from_safetensors",
    "realign",
    "verify",
    "write_chunks",
]


def bundle(task: Task) -> Action:
    """Bundle a program from its path with its cases, and write the file."""
    suites = _suites(task)
    options: dict[str, Any] = dict(task.options)

    def action() -> Facts:
        planned = cb.bundle(task.source, suites, **options)
        return _facts(planned.write(task.target, durability=task.durability))

    return action


def cat(task: Task) -> Action:
    """`cat` the same bundle together from its head, made before, and the program."""
    head = f"{task.target}-head"
    Path(head).write_bytes(bundle_head(task))
    return _shell(task, f"cat {quote(head)} {quote(task.source)}")


def bundle_head(task: Task) -> bytes:
    """Return what stands before the program in a bundle of it."""
    planned = cb.bundle(task.source, _suites(task), digest=False)
    (program,) = (it for it in planned.layout.placements if it.name == "program")
    return bytes(planned.cord[: program.offset])


def cut(task: Task) -> Action:
    """Cut the program out with `tail` and `head`, knowing where it stands."""
    with cb.open(task.source) as file:
        assert isinstance(file, cb.BundleFile)
        (program,) = (it for it in cb.rewrite(file).layout.placements if it.name == "program")
    tail = f"tail -c +{program.offset + 1} {quote(task.source)}"
    return _shell(task, f"{tail} | head -c {program.size}")


def _shell(task: Task, command: str) -> Action:
    whole = f"{command} > {quote(task.target)}"

    def action() -> Facts:
        subprocess.run(["sh", "-c", whole], check=True)
        sync(task)
        return {}

    return action


def extract(task: Task) -> Action:
    """Open a bundle and write its program."""

    def action() -> Facts:
        with cb.open(task.source) as file:
            assert isinstance(file, cb.BundleFile)
            report = cb.write(file.program, task.target, durability=task.durability)
        return _facts(report)

    return action


def realign(task: Task) -> Action:
    """Move the segments of a program to multiples of 64 KiB."""

    def action() -> Facts:
        with cb.open(task.source) as file:
            editor = cb.PteEditor(file)
            editor.align_segments(1 << 16)
            report = editor.finish().write(task.target, durability=task.durability)
        return _facts(report)

    return action


def from_safetensors(task: Task) -> Action:
    """Make a `.ptd` file of a safetensors file."""
    options: dict[str, Any] = dict(task.options)

    def action() -> Facts:
        cord = cb.ptd_from_safetensors(task.source, **options)
        return _facts(cb.write(cord, task.target, durability=task.durability))

    return action


def verify(task: Task) -> Action:
    """Open a bundle and verify it."""

    def action() -> Facts:
        with cb.open(task.source) as file:
            file.check()
        return {}

    return action


def write_chunks(task: Task) -> Action:
    """Write many chunks as one Cord."""
    data = chunks(task.count, task.options["size"])

    def joined() -> cb.Cord:
        cord = cb.Cord()
        for chunk in data:
            cord.append(chunk)
        return cord

    ready = None if task.options.get("append") else joined()

    def action() -> Callable[[], Facts]:
        cb.write(ready or joined(), task.target, durability=task.durability)
        return lambda: file_digest(task.target)

    return action


def _suites(task: Task) -> list[cb.MethodTestSuite]:
    with np.load(task.cases) as arrays:
        case = cb.MethodTestCase([arrays["inputs.0"]], [arrays["outputs.0"]])
    return [cb.MethodTestSuite("forward", [case])]


def _facts(report: WriteReport) -> Facts:
    return {"transfers": dict(report.transfers)}
