"""Tries: a jump to an instruction that does not exist.

Stopped by: destinations are compared with the number of instructions.
"""

from __future__ import annotations

import pytest

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, instruction, program, put


@pytest.mark.parametrize("target", [6, -1, 2**31 - 1])
def test_it_is_found(target: int) -> None:
    data = program()
    view = instruction(data, 3)
    put(data, view.instr_args, "destination_instruction", target)
    what = "instruction 3 of chain 0 of method 'forward': destination of a jump"
    assert found(data) == (position_of(view), what, "0 to 5", str(target))


def test_a_condition_that_is_no_truth_value_is_found() -> None:
    data = program()
    view = instruction(data, 3)
    put(data, view.instr_args, "cond_value_index", 7)
    what = "instruction 3 of chain 0 of method 'forward': condition: kind of a value"
    assert found(data) == (position_of(view), what, "Bool or Tensor", "value 7 is String")


@pytest.mark.parametrize("index", [9, -1])
@pytest.mark.parametrize(
    ("number", "field", "what"),
    [(3, "cond_value_index", "condition"), (4, "value_index", "value to free")],
)
def test_a_value_that_does_not_exist_is_found(
    number: int, field: str, what: str, index: int
) -> None:
    data = program()
    view = instruction(data, number)
    put(data, view.instr_args, field, index)
    text = f"instruction {number} of chain 0 of method 'forward': {what}: index of a value"
    assert found(data) == (position_of(view), text, "an index below 9", str(index))


def test_the_first_value_may_be_freed() -> None:
    data = program()
    put(data, instruction(data, 4).instr_args, "value_index", 0)
    assert findings(data) == []
