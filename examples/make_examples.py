"""Make the example programs and their cases: `python make_examples.py [FOLDER]`.

Rules of this file: a model is a few lines of PyTorch with its weights drawn from a fixed seed;
expected outputs are what eager PyTorch computes; nothing is written that the ExecuTorch runtime
did not reproduce first. Running it again with the same versions gives the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.runtime import Runtime
from safetensors.torch import save
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

Value = Tensor | int | float | bool


@dataclass(frozen=True)
class Case:
    """One set of inputs of `method`, and what eager PyTorch makes of them."""

    method: str
    inputs: tuple[Value, ...]
    outputs: tuple[Tensor, ...]


class Classifier(nn.Module):
    """Give class probabilities of a feature vector: two linear layers, static shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, features: Tensor) -> Tensor:
        return torch.softmax(self.layers(features), dim=-1)


class Quantizer(nn.Module):
    """Encode bfloat16 vectors as the indices of the nearest entries of a codebook, and back."""

    codebook: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codebook", torch.randn(16, 4).to(torch.bfloat16))

    def encode(self, vectors: Tensor) -> Tensor:
        entries = self.codebook.to(torch.float32)
        score = vectors.to(torch.float32) @ entries.t() - (entries * entries).sum(-1) / 2
        return score.argmax(-1)

    def decode(self, indices: Tensor) -> Tensor:
        return nn.functional.embedding(indices, self.codebook)


class Encode(nn.Module):
    """Stand for `Quantizer.encode` alone, since a method is exported as a module's forward."""

    def __init__(self, quantizer: Quantizer) -> None:
        super().__init__()
        self.quantizer = quantizer

    def forward(self, vectors: Tensor) -> Tensor:
        return self.quantizer.encode(vectors)


class Decode(nn.Module):
    """Stand for `Quantizer.decode` alone."""

    def __init__(self, quantizer: Quantizer) -> None:
        super().__init__()
        self.quantizer = quantizer

    def forward(self, indices: Tensor) -> Tensor:
        return self.quantizer.decode(indices)


class Regression(nn.Module):
    """Give a prediction and its row sum, for any batch of up to eight rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        prediction = torch.tanh(self.linear(rows))
        return prediction, prediction.sum(-1)


class RunningMean(nn.Module):
    """Give the mean of all vectors seen so far, and their number: two mutable buffers."""

    count: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        self.count += 1
        self.total += vector
        return self.total / self.count, self.count.clone()


class Scale(nn.Module):
    """Take an int, a bool and a float besides a tensor; export traces their values in."""

    def forward(self, x: Tensor, repeat: int, shift: bool, by: float) -> Tensor:
        return x * repeat + by if shift else x * repeat


class Edges(nn.Module):
    """Convolve a channels-last image; both layers run in the XNNPACK delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(image))))


def eager(module: nn.Module, inputs: Sequence[Value]) -> tuple[Tensor, ...]:
    """Run `module` on `inputs` in eager PyTorch and return its outputs as a flat tuple."""
    with torch.no_grad():
        outputs = module(*inputs)
    return tuple(outputs) if isinstance(outputs, tuple) else (outputs,)


def portable(methods: Mapping[str, ExportedProgram]) -> bytes:
    """Lower `methods` to one program of portable kernels."""
    return bytes(to_edge(dict(methods)).to_executorch().buffer)


def reproduce(program: bytes, cases: Sequence[Case]) -> None:
    """Run every case on the ExecuTorch runtime and compare, each on a program loaded afresh.

    Raises:
        AssertionError: An output of the runtime differs from the eager one.
    """
    for case in cases:
        method = Runtime.get().load_program(program).load_method(case.method)
        assert method is not None
        actual = method.execute(case.inputs)
        assert len(actual) == len(case.outputs), f"{len(actual)} outputs"
        for got, expected in zip(actual, case.outputs, strict=True):
            exact = not expected.dtype.is_floating_point or expected.dtype == torch.bfloat16
            tolerance = 0.0 if exact else 1e-5
            torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def entries(case: Case, prefix: str = "") -> dict[str, Value]:
    """Name the values of a case by the keys of a case file."""
    named = {f"{prefix}inputs.{i}": value for i, value in enumerate(case.inputs)}
    return named | {f"{prefix}outputs.{i}": value for i, value in enumerate(case.outputs)}


def prefixed(cases: Sequence[Case]) -> dict[str, Value]:
    """Name the values of several cases of several methods, for one file."""
    numbers: dict[str, int] = {}
    named: dict[str, Value] = {}
    for case in cases:
        number = numbers[case.method] = numbers.get(case.method, -1) + 1
        named |= entries(case, f"{case.method}.{number}.")
    return named


def save_npz(path: Path, named: Mapping[str, Value]) -> None:
    """Write `named` as a NumPy archive; a scalar becomes a 0-d entry."""
    np.savez(path, **{key: np.asarray(value) for key, value in named.items()})


def mlp(folder: Path) -> None:
    """A static shape; each file is one case of the program's only method."""
    module = Classifier().eval()
    cases = [
        Case("forward", (features,), eager(module, (features,)))
        for features in (torch.randn(1, 8), torch.zeros(1, 8), torch.linspace(-2, 2, 8)[None])
    ]
    program = portable({"forward": export(module, cases[0].inputs)})
    reproduce(program, cases)
    (folder / "mlp.pte").write_bytes(program)
    for number, case in enumerate(cases):
        save_npz(folder / f"mlp-{number}.npz", entries(case))


def two_methods(folder: Path) -> None:
    """Two methods and bfloat16, which only a `.safetensors` file can hold, in one case file."""
    quantizer = Quantizer()
    encode, decode = Encode(quantizer), Decode(quantizer)
    vectors = [torch.randn(5, 4).to(torch.bfloat16), quantizer.codebook[3:8].clone()]
    indices = [torch.tensor([0, 3, 15, 3, 7]), torch.arange(5, 10)]
    cases = [Case("encode", (x,), eager(encode, (x,))) for x in vectors]
    cases += [Case("decode", (x,), eager(decode, (x,))) for x in indices]
    methods = {"encode": export(encode, (vectors[0],)), "decode": export(decode, (indices[0],))}
    program = portable(methods)
    reproduce(program, cases)
    (folder / "two_methods.pte").write_bytes(program)
    tensors = {key: torch.as_tensor(value) for key, value in prefixed(cases).items()}
    (folder / "two_methods.safetensors").write_bytes(save(tensors))


def dynamic(folder: Path) -> None:
    """A dynamic batch; all cases in one file."""
    module = Regression().eval()
    cases = [
        Case("forward", (rows,), eager(module, (rows,)))
        for rows in (torch.randn(batch, 6) for batch in (1, 2, 5, 8))
    ]
    shapes = {"rows": {0: Dim("batch", min=1, max=8)}}
    exported = export(module, (torch.zeros(3, 6),), dynamic_shapes=shapes)
    program = portable({"forward": exported})
    reproduce(program, cases)
    (folder / "dynamic.pte").write_bytes(program)
    save_npz(folder / "dynamic.npz", prefixed(cases))


def counter(folder: Path) -> None:
    """State in mutable buffers: each case expects a method that was just loaded."""
    inputs = [torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.randn(4)]
    cases = [Case("forward", (x,), eager(RunningMean(), (x,))) for x in inputs]
    program = portable({"forward": export(RunningMean(), (inputs[0],))})
    reproduce(program, cases)
    (folder / "counter.pte").write_bytes(program)
    save_npz(folder / "counter.npz", prefixed(cases))


def scalars(folder: Path) -> None:
    """Scalar inputs, 0-d entries in the file; they must be the values that were traced in."""
    module, traced = Scale(), (3, True, 0.5)
    cases = [
        Case("forward", (x, *traced), eager(module, (x, *traced)))
        for x in (torch.tensor([1.0, -2.0, 0.0]), torch.randn(3))
    ]
    program = portable({"forward": export(module, cases[0].inputs)})
    reproduce(program, cases)
    (folder / "scalars.pte").write_bytes(program)
    save_npz(folder / "scalars.npz", prefixed(cases))


def conv_xnnpack(folder: Path) -> None:
    """A delegate, channels-last in and out; the case file is row-major, as every `.npz` is."""
    module = Edges().eval()
    images = [
        image.to(memory_format=torch.channels_last)
        for image in (torch.randn(1, 3, 8, 8), torch.eye(8).expand(1, 3, 8, 8))
    ]
    cases = [Case("forward", (image,), eager(module, (image,))) for image in images]
    exported = export(module, cases[0].inputs)
    manager = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    program = bytes(manager.to_executorch().buffer)
    reproduce(program, cases)
    (folder / "conv_xnnpack.pte").write_bytes(program)
    save_npz(folder / "conv_xnnpack.npz", prefixed(cases))


EXAMPLES: tuple[Callable[[Path], None], ...] = (
    mlp,
    two_methods,
    dynamic,
    counter,
    scalars,
    conv_xnnpack,
)


def main(folder: Path) -> None:
    """Write every example into `folder`, each from its own seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, example in enumerate(EXAMPLES):
        torch.manual_seed(seed)
        example(folder)
        print(f"{example.__name__}: the runtime reproduced every case")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
