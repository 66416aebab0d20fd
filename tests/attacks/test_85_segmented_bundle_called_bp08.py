"""Tries: a segmented bundle with the identifier of one that old runtimes read.

Stopped by: in that form each large tensor is where its field points to.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import bundle, findings, large_input, put_bytes, read


def test_it_is_found() -> None:
    data = bundle("segmented")
    put_bytes(data, 4, b"BP08")
    what = "forward/0/input 1: data field"
    view = large_input(data)
    place = read(data).segment_ranges[0].offset
    said = (position_of(view), what, f"segment at {place}", "a vector at 416")
    assert findings(data)[0] == said
