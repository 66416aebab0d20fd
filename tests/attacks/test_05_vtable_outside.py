"""Tries: a table whose vtable is far before the file.

Stopped by: the position of a vtable is checked before it is read.
"""

from __future__ import annotations

from tests.attacks.surgery import found, methods, program, put_u32, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    place = int.from_bytes(data[:4], "little")
    put_u32(data, place, 2**31 - 1)
    assert found(data) == (
        place,
        "vtable of Program is outside",
        "a position up to 1124",
        str(place - 2**31 + 1),
    )
    assert refusal(lambda: methods(data))[1] == "vtable of Program is outside"
