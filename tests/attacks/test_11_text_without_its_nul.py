"""Tries: a name that a C string function would read on from.

Stopped by: the byte after a string is 0.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import found, methods, program, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    place = data.index(b"forward\0") + 7
    data[place] = 0x21
    what = "ExecutionPlan.name does not end with NUL"
    assert found(data) == (place, what, "0", "33")
    assert refusal(lambda: methods(data)) == (cb.FormatError, what, place, "0", "33")
