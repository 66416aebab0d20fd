"""Tries: a size of -1, which is 2**64 - 1 as an unsigned number.

Stopped by: sizes are 0 or more.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, methods, program, put_element, refusal, value


def test_it_is_found_and_refused() -> None:
    data = program()
    view = value(data, 0)
    put_element(data, view, "sizes", 1, -1)
    what = "value 0 of method 'forward': negative size"
    assert found(data) == (position_of(view), what, "0 or more", "[2, -1]")
    assert refusal(lambda: methods(data))[1].endswith("negative size")
