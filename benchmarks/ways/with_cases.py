"""cordbundle with many test cases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import cordbundle as cb
from benchmarks.child import Action, Facts, Task
from benchmarks.serializing import listed, small_cases

__all__ = ["bundle", "listing"]


def bundle(task: Task) -> Action:
    """Bundle a program with cases of arrays, and write the file."""
    cases = [
        cb.MethodTestCase(*([np.frombuffer(data, "<f4").reshape(sizes)] for sizes, data in pair))
        for pair in small_cases(task.count)
    ]

    def action() -> Facts:
        planned = cb.bundle(task.source, [cb.MethodTestSuite("forward", cases)])
        planned.write(task.target, durability=task.durability)
        return {}

    return action


def listing(task: Task) -> Action:
    """Open a bundle and list its cases, with the scalar types and sizes of all tensors."""

    def action() -> Callable[[], Facts]:
        rows: list[tuple[int, list[int]]] = []
        with cb.open(task.source) as file:
            assert isinstance(file, cb.BundleFile)
            for suite in file.suites:
                for case in suite.test_cases:
                    for value in (*case.inputs, *case.expected_outputs):
                        assert isinstance(value, cb.TensorView)
                        rows.append((int(value.scalar_type), list(value.sizes)))
        return lambda: listed(rows)

    return action
