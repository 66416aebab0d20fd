"""Tries: lists whose items are out of range, or of another kind than the list.

Stopped by: items of lists are indices of values of their kind; -1 stands for None in optional
lists alone.
"""

from __future__ import annotations

import pytest

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, program, put_element, value


@pytest.mark.parametrize(
    ("number", "index", "what", "expected", "actual"),
    [
        (2, 9, "items: index of a value", "an index below 9", "9"),
        (2, -1, "items: index of a value", "an index below 9", "-1"),
        (2, 0, "items: kind of a value", "Int", "value 0 is Tensor"),
        (4, -1, "items: index of a value", "an index below 9", "-1"),
        (4, 1, "items: kind of a value", "Tensor", "value 1 is Int"),
        (5, -2, "items: index of a value", "-1 or an index below 9", "-2"),
        (5, 6, "items: kind of a value", "Tensor or Null", "value 6 is Bool"),
    ],
)
def test_it_is_found(number: int, index: int, what: str, expected: str, actual: str) -> None:
    data = program()
    view = value(data, number)
    put_element(data, view, "items", 0, index)
    text = f"value {number} of method 'forward': {what}"
    assert found(data) == (position_of(view), text, expected, actual)
