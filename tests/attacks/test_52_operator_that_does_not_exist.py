"""Tries: a call of an operator, or a delegate, with an index out of range.

Stopped by: indices of operators and delegates are compared with their number.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, instruction, program


@pytest.mark.parametrize(("number", "word"), [(0, "operator"), (1, "delegate")])
@pytest.mark.parametrize("index", [1, -1])
def test_it_is_found(number: int, word: str, index: int) -> None:
    call = schema.DelegateCall(index, [0]) if number else schema.KernelCall(index, [0])

    def change(plan: schema.ExecutionPlan) -> None:
        ((plan.chains or ())[0].instructions or ())[number].instr_args = call

    data = program(change)
    what = f"instruction {number} of chain 0 of method 'forward': {word} does not exist"
    assert found(data) == (
        position_of(instruction(data, number)),
        what,
        "an index below 1",
        str(index),
    )
