"""Tries: a file that is shorter than its header says.

Stopped by: what the header promises is compared with the size of the file when it is opened.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import program, read, refusal


def test_it_is_refused_with_what_is_missing() -> None:
    data = program()[:-3]
    what = "file ends before its segments do"
    expected = (cb.TruncatedError, what, 1409, "1412 bytes", "1409 bytes")
    assert refusal(lambda: read(data)) == expected
