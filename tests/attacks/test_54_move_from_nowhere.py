"""Tries: a move from or to a value that does not exist, or onto one of another kind.

Stopped by: indices of values are compared with their number, and kinds of values with each other.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, instruction, program


@pytest.mark.parametrize("call", [schema.MoveCall(9, 0), schema.MoveCall(0, 9)])
def test_it_is_found(call: schema.MoveCall) -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        ((plan.chains or ())[0].instructions or ())[2].instr_args = call

    data = program(change)
    what = "instruction 2 of chain 0 of method 'forward': move: index of a value"
    assert found(data) == (position_of(instruction(data, 2)), what, "an index below 9", "9")


@pytest.mark.parametrize(
    ("source", "target", "kinds"),
    [
        (1, 0, ("Int", "value 0 is Tensor")),
        (0, 1, ("Tensor", "value 1 is Int")),
        (3, 0, None),
        (1, 1, None),
    ],
)
def test_another_kind_is_found(source: int, target: int, kinds: tuple[str, str] | None) -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        calls = (plan.chains or ())[0].instructions or ()
        calls[2].instr_args = schema.MoveCall(source, target)

    data = program(change)
    what = "instruction 2 of chain 0 of method 'forward': target of a move: kind of a value"
    place = position_of(instruction(data, 2))
    assert findings(data) == ([] if kinds is None else [(place, what, *kinds)])
