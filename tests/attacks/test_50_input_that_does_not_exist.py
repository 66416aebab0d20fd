"""Tries: an input or output whose index of a value is out of range.

Stopped by: indices of values are compared with their number.
"""

from __future__ import annotations

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, methods, plan, program, put_element, refusal


@pytest.mark.parametrize("index", [9, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("name", ["inputs", "outputs"])
def test_it_is_found_and_refused(name: str, index: int) -> None:
    data = program()
    put_element(data, plan(data), name, 0, index)
    what = f"method 'forward': {name}: index of a value"
    assert found(data) == (position_of(plan(data)), what, "an index below 9", str(index))
    text = f"{name} of method 'forward': index is out of range"
    assert refusal(lambda: methods(data)) == (
        cb.FormatError,
        text,
        None,
        "an index below 9",
        str(index),
    )


@pytest.mark.parametrize("name", ["inputs", "outputs"])
def test_one_of_a_chain_is_found(name: str) -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        setattr((plan.chains or ())[0], name, [9])

    data = program(change)
    place = position_of((plan(data).chains or ())[0])
    what = f"chain 0 of method 'forward': {name}: index of a value"
    assert found(data) == (place, what, "an index below 9", "9")


def test_instructions_that_are_missing_are_found() -> None:
    data = program(lambda plan: setattr((plan.chains or ())[0], "instructions", None))
    what = "chain 0 of method 'forward': instructions missing"
    assert found(data)[1:] == (what, "a vector", "none")
