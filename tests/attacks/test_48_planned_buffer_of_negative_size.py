"""Tries: a planned buffer of -1 bytes.

Stopped by: sizes of planned buffers are 0 or more.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, plan, program, put_element


def test_it_is_found() -> None:
    data = program()
    put_element(data, plan(data), "non_const_buffer_sizes", 0, -1)
    what = "method 'forward': size of a planned buffer is negative"
    assert found(data) == (position_of(plan(data)), what, "0 or more", "-1")
