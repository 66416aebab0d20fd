"""Tries: a bundle whose program is something else.

Stopped by: the program is checked as a file of its own.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import bundle, found, put_bytes, read, refusal


def test_it_is_found_and_refused() -> None:
    data = bundle()
    place = read(data).program_offset
    put_bytes(data, place + 4, b"FT01")
    what, expected = "another kind of file", "b'ET12'"
    actual = "b'FT01', an ExecuTorch weights (.ptd)"
    assert found(data) == (place, f"program: {what}", expected, actual)
    assert refusal(lambda: cb.PteFile(read(data).program, "p")) == (
        cb.FormatError,
        what,
        4,
        expected,
        actual,
    )
