"""Tries: weights with sizes of -2 and -3, whose product is right.

Stopped by: sizes are 0 or more, one by one.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import entries, found, put_element, refusal, weights


def test_it_is_found_and_refused() -> None:
    data = weights()
    layout = entries(data)[0].tensor_layout
    put_element(data, layout, "sizes", 0, -2)
    put_element(data, layout, "sizes", 1, -3)
    assert found(data) == (position_of(layout), "key 'aa': negative size", "0 or more", "[-2, -3]")
    expected = (cb.FormatError, "key 'aa': negative size", None, "0 or more", "[-2, -3]")
    assert refusal(lambda: cb.load_ptd(bytes(data))) == expected
