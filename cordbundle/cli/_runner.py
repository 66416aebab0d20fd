"""The child process of `cordbundle run`: it loads, executes, compares and reports.

Rules of this file: it reads one JSON object from standard input and prints one JSON line for each
case on what was its standard output; whatever the runtime prints goes to standard error, the
parent's log. A case gets a program and a method of its own, since buffers keep state.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import cordbundle as cb
from cordbundle.cli._compare import compare
from cordbundle.cli.kinds import as_bundle

if TYPE_CHECKING:
    import torch

__all__ = ["main"]

_KERNELS = {
    "llama": "executorch.extension.llm.custom_ops.custom_ops",
    "quantized_decomposed": "executorch.kernels.quantized",
}
"""Modules that register the kernels of a namespace when they are imported."""


def main() -> None:
    """Run the cases that standard input asks for."""
    request = json.load(sys.stdin)
    results = os.dup(1)
    os.dup2(2, 1)
    with cb.open(request["bundle"]) as file, open(results, "wb", buffering=0) as stream:
        bundle = as_bundle(file)
        runtime = _runtime()
        _load_kernels(runtime, _operators(request["program"]))
        suites = bundle.suites
        for suite, index in request["cases"]:
            method = suites[suite].method_name
            result = _result(runtime, request, method, suites[suite].test_cases[index])
            sys.stderr.flush()
            result["log_end"] = os.fstat(2).st_size
            stream.write(json.dumps(result).encode("ascii") + b"\n")


def _runtime() -> Any:
    """Return the module that loads programs.

    `portable_lib` imports the exporter, which takes four seconds and prints warnings, only to set
    up what the two exceptions here need.
    """
    import torch  # noqa: F401  # the runtime's library needs PyTorch's

    light = sys.platform != "win32" and find_spec("openvino") is None
    if light and find_spec("executorch.extension.pybindings._C") is not None:
        return import_module("executorch.extension.pybindings._C")
    return import_module("executorch.extension.pybindings.portable_lib")


def _operators(program: str) -> set[str]:
    """Return the operators of a program; none where we cannot read what the runtime perhaps can."""
    with cb.open(program) as file:
        try:
            methods = file.methods.values() if isinstance(file, cb.PteFile) else ()
        except cb.FormatError:
            return set()
        return {name for method in methods for name in method.operators}


def _load_kernels(runtime: Any, operators: Iterable[str]) -> None:
    """Load the kernels that ExecuTorch ships in libraries of their own, where they are needed."""
    missing = set(operators) - set(runtime._get_operator_names())
    for namespace in sorted({name.partition("::")[0] for name in missing} & _KERNELS.keys()):
        if find_spec(_KERNELS[namespace]) is not None:
            import_module(_KERNELS[namespace])


def _result(
    runtime: Any, request: dict[str, Any], method_name: str, case: cb.MethodTestCase
) -> dict[str, object]:
    """Run one case and return what became of it."""
    try:
        loaded = runtime._load_program(request["program"], data_path=request["data"])
        method = loaded.load_method(method_name)
        outputs = method([_argument(value) for value in case.inputs], clone_outputs=False)
    except (RuntimeError, cb.CordBundleError) as error:  # what the runtime raises; a type of ours
        return {"outputs": [], "failure": str(error)}
    expected: Sequence[object] = case.expected_outputs
    if expected and len(expected) != len(outputs):
        counts = f"the method gives {len(outputs)} outputs, the case expects {len(expected)}"
        return {"outputs": [], "failure": counts}
    compared = [
        compare(expected[i] if expected else None, value, request["rtol"], request["atol"])
        for i, value in enumerate(outputs)
    ]
    return {"outputs": compared, "failure": None}


def _argument(value: object) -> object:
    """Return an input as the runtime's bindings take it."""
    return _tensor(value) if isinstance(value, cb.TensorView) else value


def _tensor(view: cb.TensorView) -> torch.Tensor:
    """Return a tensor of its own: a method may write to its inputs, and the file is mapped.

    The bindings read a row-major dim order off every tensor that is contiguous, and abort if its
    strides say otherwise, as they may for dimensions of size 1.
    """
    tensor = view.torch().clone()
    if not tensor.is_contiguous():
        return tensor
    return tensor.as_strided(tensor.shape, tensor.new_empty(tensor.shape).stride())
