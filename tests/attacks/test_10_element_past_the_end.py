"""Tries: an element of a vector of tables behind the end of the file.

Stopped by: each offset of a vector is checked as any other.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import element_at, found, methods, plan, program, put_u32, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    place = element_at(plan(data), "values", 0)
    put_u32(data, place, 2**31)
    what = "ExecutionPlan.values: offset points past the end"
    assert found(data) == (place, what, f"up to {1128 - place - 4}", str(2**31))
    assert refusal(lambda: methods(data))[:3] == (cb.FormatError, what, place)
