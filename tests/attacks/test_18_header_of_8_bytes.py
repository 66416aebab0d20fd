"""Tries: an extended header too short for any number in it.

Stopped by: the length is compared with the shortest that any version had.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import program, put_header, read, refusal


def test_it_is_refused() -> None:
    data = program()
    put_header(data, length=8)
    what = "length of the extended header eh00 is too small"
    assert refusal(lambda: read(data)) == (cb.FormatError, what, 12, "at least 24", "8")
