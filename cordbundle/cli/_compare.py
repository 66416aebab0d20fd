"""Comparing an output with the expected one as the runtime's `verify_method_outputs` does.

Rules of this file: float32, float64 and float16 within tolerances, everything else bit by bit;
scalar type, shape and strides have to be equal; nan equals nan, and an infinity the same one. The
runtime also takes nan for -inf, which is not repeated here. Relative errors are those of
`compute_method_output_error_stats`: the difference over the larger magnitude, at least 1e-8. Both
functions are in ExecuTorch's `devtools/bundled_program/bundled_program.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

import cordbundle as cb
from cordbundle.scalar_types import scalar_type_of_name

if TYPE_CHECKING:
    import torch

__all__ = ["Comparison", "compare"]

_STEP = 1 << 20  # elements compared at a time
_MIN_MAGNITUDE = 1e-8


class Comparison(TypedDict):
    """What came of one output.

    Attributes:
        type: Scalar type and shape of the output.
        verdict: "matched", "mismatched" or "not compared".
        reason: Why it is not "matched", in a few words, or nothing.
        max_abs: Largest absolute error; None if nothing was compared element by element.
        max_rel: Largest relative error, likewise.
    """

    type: str
    verdict: str
    reason: str
    max_abs: float | None
    max_rel: float | None


def compare(expected: object, actual: object, rtol: float, atol: float) -> Comparison:
    """Compare an output of a method with what a case expects, or with nothing (None)."""
    import torch

    kind = _describe(actual) if isinstance(actual, torch.Tensor) else type(actual).__name__
    if expected is None:
        return _comparison(kind, "not compared", "")
    if not isinstance(actual, torch.Tensor) or not isinstance(expected, cb.TensorView):
        wanted = "tensor" if isinstance(expected, cb.TensorView) else type(expected).__name__
        return _comparison(kind, "mismatched", f"expected {wanted}; only tensors are compared")
    return _compare_tensors(kind, expected.torch(), actual, rtol, atol)


def _describe(tensor: torch.Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    scalar_type = scalar_type_of_name(name)
    return f"{name if scalar_type is None else scalar_type.name} {list(tensor.shape)}"


def _comparison(
    kind: str,
    verdict: str,
    reason: str,
    max_abs: float | None = None,
    max_rel: float | None = None,
) -> Comparison:
    return Comparison(type=kind, verdict=verdict, reason=reason, max_abs=max_abs, max_rel=max_rel)


def _compare_tensors(
    kind: str, expected: torch.Tensor, actual: torch.Tensor, rtol: float, atol: float
) -> Comparison:
    import torch

    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return _comparison(kind, "mismatched", f"expected {_describe(expected)}")
    if expected.stride() != actual.stride() and actual.numel():
        strides = f"strides {list(actual.stride())}, expected {list(expected.stride())}"
        return _comparison(kind, "mismatched", strides)
    tolerant = expected.dtype in (torch.float32, torch.float64, torch.float16)
    wrong, max_abs, max_rel = 0, 0.0, 0.0
    for want, got in _steps(expected, actual):
        close = _are_close(want, got, rtol, atol) if tolerant else _are_same_bits(want, got)
        wrong += int((~close).sum())
        absolute, relative = _errors(want.double(), got.double())
        max_abs, max_rel = max(max_abs, absolute), max(max_rel, relative)
    verdict = "mismatched" if wrong else "matched"
    differ = "out of tolerance" if tolerant else "differ in their bits"
    reason = f"{wrong} of {actual.numel()} elements {differ}" if wrong else ""
    return _comparison(kind, verdict, reason, max_abs, max_rel)


def _steps(
    expected: torch.Tensor, actual: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Give the elements of both in memory order, a part at a time."""
    count = actual.numel()
    flat = [tensor.as_strided((count,), (1,)) for tensor in (expected, actual)]
    for start in range(0, count, _STEP):
        yield flat[0][start : start + _STEP], flat[1][start : start + _STEP]


def _are_close(want: torch.Tensor, got: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    """Tell which elements are close, by their difference in their own type, as on the device."""
    import torch

    if want.dtype == torch.float16:
        want, got = want.double(), got.double()
    error = (want - got).abs().double()
    allowed = atol + (rtol * got.double()).abs()
    close = torch.isfinite(error) & (error <= allowed)
    return close | (want == got) | (want.isnan() & got.isnan())


def _are_same_bits(want: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    import torch

    size = want.element_size()
    bits = [tensor.view(torch.uint8).reshape(-1, size) for tensor in (want, got)]
    return (bits[0] == bits[1]).all(1)


def _errors(want: torch.Tensor, got: torch.Tensor) -> tuple[float, float]:
    """Return the largest absolute and relative error; elements without a difference count 0."""
    import torch

    same = (want == got) | (want.isnan() & got.isnan())
    infinity = float("inf")
    absolute = (want - got).abs().nan_to_num(nan=infinity, posinf=infinity).masked_fill(same, 0.0)
    magnitude = torch.maximum(want.abs(), got.abs()).clamp(min=_MIN_MAGNITUDE)
    relative = (absolute / magnitude).nan_to_num(nan=infinity, posinf=infinity)
    return float(absolute.max()), float(relative.masked_fill(same, 0.0).max())
