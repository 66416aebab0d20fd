"""Tries: a tensor of dynamic shape whose upper bound overflows to 0 bytes of planned memory.

Stopped by: sizes overflow for no tensor, whatever its shape may become.
"""

from __future__ import annotations

from typing import Any

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, program, value


@pytest.mark.parametrize("number", [0, 3])
def test_it_is_found(number: int) -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        tensor: Any = (plan.values or ())[number].val
        tensor.sizes, tensor.dim_order = [2**30, 2**30, 4], [0, 1, 2]
        tensor.shape_dynamism = schema.TensorShapeDynamism.DYNAMIC_BOUND

    data = program(change)
    what = f"value {number} of method 'forward': sizes of the tensor overflow"
    assert found(data)[:2] == (position_of(value(data, number)), what)
