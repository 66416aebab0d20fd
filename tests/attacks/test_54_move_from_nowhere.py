"""Tries: a move from or to a value that does not exist.

Stopped by: indices of values are compared with their number.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, instruction, program


@pytest.mark.parametrize("call", [schema.MoveCall(9, 0), schema.MoveCall(0, 9)])
def test_it_is_found(call: schema.MoveCall) -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        ((plan.chains or ())[0].instructions or ())[2].instr_args = call

    data = program(change)
    what = "instruction 2 of chain 0 of method 'forward': move: index of a value"
    assert found(data) == (position_of(instruction(data, 2)), what, "an index below 9", "9")
