"""Tries: the root table 4 GiB behind the end of the file.

Stopped by: an offset is compared with the size before it is followed.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import found, methods, program, put_u32, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    put_u32(data, 0, 2**32 - 1)
    assert found(data) == (0, "root offset: offset points past the end", "up to 1124", "4294967295")
    assert refusal(lambda: methods(data))[:3] == (
        cb.FormatError,
        "root offset: offset points past the end",
        0,
    )
