"""Tries: a union with a type and no value, for a reader that follows the type alone.

Stopped by: tag and value are there together or not at all.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, methods, plan, program, put_u16, refusal, vtable_at


def test_it_is_found_and_refused() -> None:
    data = program()
    view = (plan(data).values or ())[0]
    put_u16(data, vtable_at(view) + 6, 0)
    what = "EValue.val is half a union"
    assert (position_of(view), what, "a type and a value", "type 5 and no value") in findings(data)
    assert refusal(lambda: methods(data))[1] == what
