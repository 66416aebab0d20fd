"""Tries: a method name that is no text.

Stopped by: strings are decoded strictly.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import found, methods, program, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    place = data.index(b"forward\0")
    data[place + 2] = 0xFF
    what = "ExecutionPlan.name is not UTF-8"
    assert found(data) == (place + 2, what, "UTF-8", "invalid start byte")
    assert refusal(lambda: methods(data))[:3] == (cb.FormatError, what, place + 2)
