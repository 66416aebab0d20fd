"""ExecuTorch as installed: read the program, encode everything anew, write."""

from __future__ import annotations

import os

import numpy as np
import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer,
)

from benchmarks.child import Action, Task

__all__ = ["bundle"]


def bundle(task: Task) -> Action:
    """Bundle a program from its path with its cases, and write the file."""
    with np.load(task.cases) as arrays:
        inputs = [torch.from_numpy(arrays["inputs.0"])]
        outputs = [torch.from_numpy(arrays["outputs.0"])]
    suites = [MethodTestSuite("forward", [MethodTestCase(inputs, outputs)])]

    def action() -> dict[str, object]:
        bundled = BundledProgram(None, suites, pte_file_path=task.source)
        data = serialize_from_bundled_program_to_flatbuffer(bundled)
        with open(task.target, "wb") as file:
            file.write(data)
            if task.durability != "none":
                file.flush()
                os.fsync(file.fileno())
        return {}

    return action
