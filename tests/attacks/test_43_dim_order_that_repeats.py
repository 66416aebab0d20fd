"""Tries: a dim order that names one dimension twice, and so leaves a stride unset.

Stopped by: a dim order is a permutation of the dimensions.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, methods, program, put_element, refusal, value


def test_it_is_found_and_refused() -> None:
    data = program()
    view = value(data, 0)
    put_element(data, view, "dim_order", 1, 0)
    what = "dim order is no permutation of the dimensions"
    text = f"value 0 of method 'forward': {what}"
    assert found(data) == (position_of(view), text, "each below 2 once", "[0, 0]")
    assert refusal(lambda: methods(data))[1].endswith(what)
