"""ExecuTorch as installed with many test cases, and cordbundle in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)

from benchmarks.child import Action, Facts, Task
from benchmarks.serializing import listed, small_cases
from benchmarks.ways.with_system import sync

__all__ = ["bundle", "dropin", "listing"]


def bundle(task: Task) -> Action:
    """Bundle a program with cases of tensors, and write the file."""
    return _bundling(task, serialize_from_bundled_program_to_flatbuffer)


def dropin(task: Task) -> Action:
    """Do the same with cordbundle's function of this name."""
    from cordbundle import executorch as dropins

    return _bundling(task, dropins.serialize_from_bundled_program_to_flatbuffer)


def _bundling(task: Task, serialize: Callable[[Any], bytes]) -> Action:
    cases = [
        MethodTestCase(
            *(
                [torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(sizes)]
                for sizes, data in pair
            )
        )
        for pair in small_cases(task.count)
    ]

    def action() -> Facts:
        suites = [MethodTestSuite("forward", cases)]
        bundled = BundledProgram(None, suites, pte_file_path=task.source)
        data = serialize(bundled)
        with open(task.target, "wb") as file:
            file.write(data)
        sync(task)
        return {}

    return action


def listing(task: Task) -> Action:
    """Decode a bundle that is in memory, and list its cases."""
    data = Path(task.source).read_bytes()

    def action() -> Callable[[], Facts]:
        rows: list[tuple[int, list[int]]] = []
        for suite in deserialize_from_flatbuffer_to_bundled_program(data).method_test_suites:
            for case in suite.test_cases:
                for value in (*case.inputs, *case.expected_outputs):
                    rows.append((int(value.val.scalar_type), list(value.val.sizes)))
        return lambda: listed(rows)

    return action
