"""Tries: an input that the runtime copies from behind its bytes.

Stopped by: sizes times the element size are compared with the bytes that there are.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import bundle, found, large_input, put_element, read, refusal


def test_it_is_found_and_refused() -> None:
    data = bundle()
    view = large_input(data)
    put_element(data, view, "sizes", 0, 65)
    what = "forward/0/input 1: bytes"
    assert found(data) == (position_of(view), what, "at least 16640", "16384")
    what = "method 'forward', case 0, input 1: tensor of FLOAT with sizes (65, 64) has other bytes"
    expected = (cb.FormatError, what, None, "16640 bytes", "16384 bytes")
    assert refusal(lambda: read(data).suites) == expected
