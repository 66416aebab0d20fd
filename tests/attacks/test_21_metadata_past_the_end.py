"""Tries: metadata larger than the file.

Stopped by: what the header promises is compared with the size of the file when it is opened.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import program, put_header, read, refusal


def test_it_is_refused_with_what_is_missing() -> None:
    data = program()
    put_header(data, flatbuffer_size=5000)
    what = "file ends before its metadata do"
    expected = (cb.TruncatedError, what, 1412, "5000 bytes", "1412 bytes")
    assert refusal(lambda: read(data)) == expected
