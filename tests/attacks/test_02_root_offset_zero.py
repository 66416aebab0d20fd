"""Tries: a root table that is the root offset itself.

Stopped by: an offset of 0 is refused wherever one is followed.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import findings, methods, program, put_u32, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    put_u32(data, 0, 0)
    assert findings(data) == [
        (0, "root table is inside the extended header", "40 or more", "0"),
        (0, "root offset: offset is zero", "1 or more", "0"),
    ]
    assert refusal(lambda: methods(data))[:2] == (cb.FormatError, "root offset: offset is zero")
