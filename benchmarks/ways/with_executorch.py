"""ExecuTorch as installed: read the program, encode everything anew, write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)

from benchmarks.child import Action, Task
from benchmarks.ways.with_system import sync

__all__ = ["bundle", "extract"]


def bundle(task: Task) -> Action:
    """Bundle a program from its path with its cases, and write the file."""
    with np.load(task.cases) as arrays:
        inputs = [torch.from_numpy(arrays["inputs.0"])]
        outputs = [torch.from_numpy(arrays["outputs.0"])]
    suites = [MethodTestSuite("forward", [MethodTestCase(inputs, outputs)])]

    def action() -> dict[str, object]:
        bundled = BundledProgram(None, suites, pte_file_path=task.source)
        _write(serialize_from_bundled_program_to_flatbuffer(bundled), task)
        return {}

    return action


def extract(task: Task) -> Action:
    """Read a bundle, decode it, and write its program."""

    def action() -> dict[str, object]:
        bundled = deserialize_from_flatbuffer_to_bundled_program(Path(task.source).read_bytes())
        _write(bundled.program, task)
        return {}

    return action


def _write(data: bytes, task: Task) -> None:
    with open(task.target, "wb") as file:
        file.write(data)
    sync(task)
