"""Tries: two fields of a table in the same bytes, so that a write to one changes the other.

Stopped by: the inline values of a table are compared with each other.
"""

from __future__ import annotations

from tests.attacks.surgery import found, methods, plan, program, put_u16, refusal, vtable_at


def test_it_is_found_and_refused() -> None:
    data = program()
    place = vtable_at(plan(data))
    first = int.from_bytes(data[place + 4 : place + 6], "little")
    put_u16(data, place + 8, first)
    offset, what, _, _ = found(data)
    assert offset == place
    assert what.endswith("overlaps what stands before it in its table")
    assert refusal(lambda: methods(data))[1] == what
