"""Tries: a vtable whose last entry is half a number.

Stopped by: the size of a vtable is even and at least 4.
"""

from __future__ import annotations

from tests.attacks.surgery import found, methods, program, put_u16, refusal, root, vtable_at


def test_it_is_found_and_refused() -> None:
    data = program()
    place = vtable_at(root(data))
    put_u16(data, place, 7)
    assert found(data) == (
        place,
        "vtable of Program has a bad size",
        "an even size of 4 or more",
        "7",
    )
    assert refusal(lambda: methods(data))[1] == "vtable of Program has a bad size"
