"""Tries: an instruction whose argument has an index out of range, below 0 too.

Stopped by: indices of values are compared with their number, as signed numbers.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, instruction, program, put_element


@pytest.mark.parametrize("index", [9, -1])
@pytest.mark.parametrize("number", [0, 1])
def test_it_is_found(number: int, index: int) -> None:
    data = program()
    view = instruction(data, number)
    put_element(data, view.instr_args, "args", 0, index)
    what = f"instruction {number} of chain 0 of method 'forward': arguments: index of a value"
    assert found(data) == (position_of(view), what, "an index below 9", str(index))


def test_arguments_that_are_missing_are_found() -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        ((plan.chains or ())[0].instructions or ())[0].instr_args = schema.KernelCall(0)

    data = program(change)
    what = "instruction 0 of chain 0 of method 'forward': arguments missing"
    assert found(data) == (position_of(instruction(data, 0)), what, "a vector", "none")
