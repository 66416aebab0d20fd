"""Tries: a payload in a segment with an index out of range.

Stopped by: every index of a segment is compared with their number.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import delegate, found, methods, program, put, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    put(data, delegate(data).processed, "index", 2**32 - 1)
    what = "delegate 0 of method 'forward': segment does not exist"
    assert found(data) == (
        position_of(delegate(data)),
        what,
        "an index below 3",
        "4294967295",
    )
    assert refusal(lambda: methods(data))[1:] == (
        "segment of delegate 'backend': index is out of range",
        None,
        "an index below 3",
        "4294967295",
    )
