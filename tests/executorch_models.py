"""A dozen kinds of exported models, as ExecuTorch lowers them; one is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import (
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge,
    to_edge_transform_and_lower,
)
from executorch.exir.passes.external_constants_pass import (
    delegate_external_constants_pass_unlifted,
)
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

Module: Any = torch.nn.Module

__all__ = ["CONFIGS", "INPUTS", "MODELS", "Conditional", "Counter", "Linear", "manager"]


class Linear(Module):  # type: ignore[misc]  # its base is not known without torch
    def __init__(self, size: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(size, size)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(x))


class Convolution(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = torch.nn.Conv2d(3, 8, 3)

    def forward(self, x: Any) -> Any:
        return torch.sigmoid(self.convolution(x)).permute(0, 2, 3, 1)


class Lstm(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(4, 8, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


class Attention(Module):  # type: ignore[misc]
    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Counter(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.arange(6.0).reshape(2, 3))

    def forward(self, x: Any) -> Any:
        self.state.add_(x)
        return self.state * 2


class Dynamic(Module):  # type: ignore[misc]
    def forward(self, x: Any, y: Any) -> Any:
        return x + y * 0.5


class Conditional(Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, [x])


class Types(Module):  # type: ignore[misc]
    """Constants of many types, and scalars."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float64"):
            values = torch.tensor([0, 1, 1, 0], dtype=getattr(torch, name))
            self.register_buffer(name, values)

    def forward(self, x: Any) -> Any:
        total = x
        for buffer in self.buffers():
            total = total + buffer
        return total, torch.nan_to_num(x, posinf=float("inf"), neginf=-1.5)


def _edge(module: Any, *inputs: Any, dynamic: Any = None) -> EdgeProgramManager:
    exported = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic, strict=True)
    return to_edge(exported)


def _lowered(module: Any, *inputs: Any) -> EdgeProgramManager:
    exported = torch.export.export(module, inputs)
    return to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])


def _quantized() -> EdgeProgramManager:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import (  # type: ignore[import-untyped]
        convert_pt2e,
        prepare_pt2e,
    )

    inputs = (torch.ones(2, 16),)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(Linear(16).eval(), inputs).module(), quantizer)
    prepared(*inputs)
    return _lowered(convert_pt2e(prepared), *inputs)


def _several() -> EdgeProgramManager:
    methods = {
        "forward": torch.export.export(Linear().eval(), (torch.ones(2, 4),)),
        "other": torch.export.export(Dynamic(), (torch.ones(3), torch.ones(3))),
    }
    return to_edge(methods, constant_methods={"get_vocab_size": 32000, "get_name": "größe"})


def _two_lowered() -> EdgeProgramManager:
    methods = {
        name: torch.export.export(Linear(64).eval(), (torch.ones(2, 64),))
        for name in ("encode", "decode")
    }
    return to_edge_transform_and_lower(methods, partitioner=[XnnpackPartitioner()])


def _lowered_external() -> EdgeProgramManager:
    inputs = (torch.ones(2, 64),)
    module = torch.export.export(Linear(64).eval(), inputs).module()
    delegate_external_constants_pass_unlifted(module, gen_tag_fn=lambda node: "weights")
    return _lowered(module, *inputs)


_BATCH = {0: torch.export.Dim("batch", min=1, max=10)}

MODELS: dict[str, Callable[[], EdgeProgramManager]] = {
    "linear": lambda: _edge(Linear(), torch.ones(2, 4)),
    "convolution": lambda: _edge(Convolution(), torch.ones(1, 3, 8, 8)),
    "lstm": lambda: _edge(Lstm(), torch.ones(1, 3, 4)),
    "attention": lambda: _edge(Attention(), *[torch.ones(1, 2, 4, 8)] * 3),
    "quantized": _quantized,
    "several methods": _several,
    "constant methods": lambda: to_edge(
        torch.export.export(Dynamic(), (torch.ones(1), torch.ones(1))),
        constant_methods={"flag": True, "ratio": 0.25, "shape": [1, 2], "table": torch.ones(3)},
    ),
    "delegate": lambda: _lowered(Linear(64).eval(), torch.ones(2, 64)),
    "two delegates": _two_lowered,
    "delegate with external data": _lowered_external,
    "external constants": lambda: _edge(Linear(), torch.ones(2, 4)),
    "mutable buffer": lambda: _edge(Counter(), torch.ones(2, 3)),
    "dynamic shapes": lambda: _edge(
        Dynamic(), torch.ones(3, 2), torch.ones(3, 2), dynamic=(_BATCH, _BATCH)
    ),
    "control flow": lambda: _edge(Conditional(), torch.ones(3)),
    "types": lambda: _edge(Types(), torch.ones(4)),
}
"""Makes each model."""

CONFIGS: dict[str, ExecutorchBackendConfig] = {
    "external constants": ExecutorchBackendConfig(external_constants=True),
    "mutable buffer": ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(["state"])], emit_mutable_buffer_names=True
    ),
    "convolution": ExecutorchBackendConfig(emit_stacktrace=True, segment_alignment=4096),
    "delegate": ExecutorchBackendConfig(extract_delegate_segments=False, delegate_alignment=64),
    "lstm": ExecutorchBackendConfig(constant_tensor_alignment=64),
}
"""How each is lowered; as ExecuTorch does by default if it is not here."""

INPUTS: dict[str, tuple[Any, ...]] = {
    "linear": (torch.ones(2, 4),),
    "delegate": (torch.ones(2, 64),),
    "delegate with external data": (torch.ones(2, 64),),
    "external constants": (torch.ones(2, 4),),
    "mutable buffer": (torch.ones(2, 3),),
    "control flow": (torch.ones(3),),
}
"""What those are called with that the runtime runs in the tests."""


@cache
def manager(name: str) -> ExecutorchProgramManager:
    """Return a model as ExecuTorch itself serializes it; once for all tests."""
    return MODELS[name]().to_executorch(CONFIGS.get(name))
