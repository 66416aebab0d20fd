"""Tries: a case with fewer inputs than the method takes, for a runtime that reads on behind them.

Stopped by: suites are compared with the methods of the program, cases with their numbers of values.
"""

from __future__ import annotations

import pytest

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, root
from tests.support import floats, program, suite, tensor


def made(inputs: int, outputs: int, method: str = "forward") -> bytes:
    """Return a bundle of a program of two inputs and one output."""
    pte = program([tensor((2,)), tensor((2,))], [tensor((2,))])
    case = cb.MethodTestCase([floats((2,))] * inputs, [floats((2,))] * outputs)
    return bytes(cb.bundle(pte, [suite(case, method=method)], check=False).cord)


@pytest.mark.parametrize(
    ("inputs", "outputs", "what", "expected", "actual"),
    [
        (1, 1, "inputs", "2", "1"),
        (0, 1, "inputs", "2", "0"),
        (3, 1, "inputs", "2", "3"),
        (2, 2, "expected outputs", "1", "2"),
    ],
)
def test_another_number_of_values_is_found(
    inputs: int, outputs: int, what: str, expected: str, actual: str
) -> None:
    data = made(inputs, outputs)
    place = position_of(root(data).method_test_suites[0].test_cases[0])
    assert found(data) == (place, f"forward/0: number of {what}", expected, actual)


@pytest.mark.parametrize("outputs", [0, 1])
def test_as_many_as_the_method_has_or_no_expected_outputs_are_sound(outputs: int) -> None:
    assert findings(made(2, outputs)) == []


def test_a_suite_for_a_method_that_does_not_exist_is_found() -> None:
    data = made(2, 1, method="backward")
    place = position_of(root(data).method_test_suites[0])
    what = "suite for a method that does not exist"
    assert found(data) == (place, what, "a method of the program", "'backward'")
