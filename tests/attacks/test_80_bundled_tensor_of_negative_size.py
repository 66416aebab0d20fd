"""Tries: an input with a size below 0.

Stopped by: sizes are 0 or more.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import bundle, found, large_input, put_element, read, refusal


def test_it_is_found_and_refused() -> None:
    data = bundle()
    view = large_input(data)
    put_element(data, view, "sizes", 0, -64)
    what = "forward/0/input 1: negative size"
    assert found(data) == (position_of(view), what, "0 or more", "[-64, 64]")
    what = "method 'forward', case 0, input 1: negative size"
    expected = (cb.FormatError, what, None, "0 or more", "[-64, 64]")
    assert refusal(lambda: read(data).suites) == expected
