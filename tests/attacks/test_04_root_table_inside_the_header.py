"""Tries: a root table made of the numbers of the extended header.

Stopped by: the root offset is compared with the length of the header.
"""

from __future__ import annotations

from tests.attacks.surgery import findings, program, put_u32


def test_it_is_found() -> None:
    data = program()
    put_u32(data, 0, 16)
    assert findings(data)[0] == (
        0,
        "root table is inside the extended header",
        "40 or more",
        "16",
    )
