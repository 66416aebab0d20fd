"""Tries: a tensor of weights that reads on into the next one.

Stopped by: sizes times the element size are the size of the segment.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import entries, found, put_element, read, refusal, weights


def test_it_is_found_and_refused() -> None:
    data = weights()
    layout = entries(data)[0].tensor_layout
    put_element(data, layout, "sizes", 0, 200)
    assert found(data) == (position_of(layout), "key 'aa': bytes of its segment", "2400", "24")
    what = "key 'aa': tensor of FLOAT with sizes (200, 3) has other bytes"
    for call in (lambda: cb.load_ptd(bytes(data)), lambda: read(data)["aa"]):
        assert refusal(call) == (cb.FormatError, what, None, "2400 bytes", "24 bytes")
