"""Tries: a call of so many tensors that the runtime finds no kernel, and calls what was never set.

Stopped by: scalar types and dim orders of a call's tensors have 658 bytes at most, written down.
"""

from __future__ import annotations

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, instruction, metadata, whole_plan
from tests.support import tensor


@pytest.mark.parametrize(
    ("rank", "count", "size"),
    [(16, 16, 658), (16, 17, 699), (0, 163, 654), (0, 164, 658), (0, 165, 662)],
)
def test_it_is_found(rank: int, count: int, size: int) -> None:
    values = [schema.EValue(tensor([1] * rank, cb.ScalarType.BOOL)), schema.EValue(schema.Int(1))]
    call = schema.KernelCall(0, [1, *[0] * count])
    plan = whole_plan(
        values=values,
        operators=[schema.Operator("aten::cat", "out")],
        chains=[schema.Chain([], [], [schema.Instruction(call)])],
    )
    data = metadata(schema.Program(execution_plan=[plan]))
    what = "instruction 0 of chain 0 of method 'f': scalar types and dim orders of"
    assert findings(data) == (
        []
        if size <= 658
        else [
            (
                position_of(instruction(data, 0)),
                f"{what} {count} tensors",
                "at most 658 bytes",
                str(size),
            )
        ]
    )


def test_a_tensor_without_a_dim_order_counts_as_row_major() -> None:
    values = [schema.EValue(schema.Tensor(11, 0, [1] * 16))]
    plan = whole_plan(
        values=values,
        operators=[schema.Operator("aten::cat", "out")],
        chains=[schema.Chain([], [], [schema.Instruction(schema.KernelCall(0, [0] * 17))])],
    )
    told = findings(metadata(schema.Program(execution_plan=[plan])))
    assert [found for _, what, _, found in told if what.endswith("17 tensors")] == ["699"]
