"""Tries: a root table that begins in the file identifier.

Stopped by: the first 8 bytes hold no table.
"""

from __future__ import annotations

from tests.attacks.surgery import findings, program, put_u32


def test_it_is_found() -> None:
    data = program()
    put_u32(data, 0, 4)
    assert findings(data) == [
        (0, "root table is inside the extended header", "40 or more", "4"),
        (0, "root offset points into the head of the flatbuffer", "8 or more", "4"),
    ]
