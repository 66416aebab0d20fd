"""Tries: a constant that is an input, or what a kernel writes to, and so overwritten in the file.

Stopped by: neither is a constant, unless memory is planned for it.
"""

from __future__ import annotations

from typing import Any

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, instruction, plan, program


def test_it_is_found() -> None:
    data = program(lambda plan: setattr(plan, "inputs", [0, 1, 3]))
    what = "method 'forward': inputs: constant"
    assert found(data) == (position_of(plan(data)), what, "a tensor that can be set", "value 3")


@pytest.mark.parametrize("location", [0, 1])
def test_memory_of_the_caller_takes_the_place_of_external_data(location: int) -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        plan.inputs = [3]
        tensor: Any = (plan.values or ())[3].val
        tensor.extra_tensor_info = schema.ExtraTensorInfo(0, "key", location)

    assert len(findings(program(change))) == 1 - location


@pytest.mark.parametrize("args", [[0, 3], [3], [3, 0], [3, 1], []], ids=str)
def test_one_that_a_kernel_writes_to_is_found(args: list[int]) -> None:
    """Value 3 is a constant, value 0 has planned memory, value 1 is a number."""

    def change(plan: schema.ExecutionPlan) -> None:
        calls = (plan.chains or ())[0].instructions or ()
        calls[0].instr_args = schema.KernelCall(0, args)

    data = program(change)
    what = "instruction 0 of chain 0 of method 'forward': last argument: constant"
    told = (position_of(instruction(data, 0)), what, "what a kernel may write to", "value 3")
    assert findings(data) == ([told] if args and args[-1] == 3 else [])


def test_external_data_that_a_kernel_writes_to_is_found() -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        tensor = (plan.values or ())[3].val
        assert isinstance(tensor, schema.Tensor)
        tensor.data_buffer_idx = 0
        tensor.extra_tensor_info = schema.ExtraTensorInfo(0, "key", 1)
        calls = (plan.chains or ())[0].instructions or ()
        calls[0].instr_args = schema.KernelCall(0, [0, 3])

    ((_, what, *_),) = findings(program(change))
    assert what == "instruction 0 of chain 0 of method 'forward': last argument: constant"
