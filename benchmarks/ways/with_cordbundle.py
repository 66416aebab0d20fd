"""cordbundle."""

from __future__ import annotations

import numpy as np

import cordbundle as cb
from benchmarks.child import Action, Task

__all__ = ["bundle", "open_and_list"]


def bundle(task: Task) -> Action:
    """Bundle a program from its path with its cases, and write the file."""
    with np.load(task.cases) as arrays:
        case = cb.MethodTestCase([arrays["inputs.0"]], [arrays["outputs.0"]])
    suites = [cb.MethodTestSuite("forward", [case])]
    digest = bool(task.options["digest"])

    def action() -> dict[str, object]:
        planned = cb.bundle(task.source, suites, digest=digest)
        report = planned.write(task.target, durability=task.durability)
        return {"transfers": dict(report.transfers)}

    return action


def open_and_list(task: Task) -> Action:
    """Open a bundle and list its cases, with the scalar types and sizes of all tensors."""

    def action() -> dict[str, object]:
        tensors = 0
        with cb.open(task.source) as file:
            assert isinstance(file, cb.BundleFile)
            for suite in file.suites:
                for case in suite.test_cases:
                    for value in (*case.inputs, *case.expected_outputs):
                        assert isinstance(value, cb.TensorView)
                        tensors += bool(value.scalar_type and value.sizes)
        return {"tensors": tensors}

    return action
