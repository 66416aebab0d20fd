"""Tries: a key whose segment has an index out of range.

Stopped by: every index of a segment is compared with their number.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import entries, found, put, read, refusal, weights


def test_it_is_found_and_refused() -> None:
    data = weights()
    entry = entries(data)[1]
    put(data, entry, "segment_index", 3)
    what = "segment of key 'bb' does not exist"
    assert found(data) == (position_of(entry), what, "an index below 3", "3")
    for call in (lambda: cb.load_ptd(bytes(data)), lambda: read(data)["bb"]):
        assert refusal(call) == (cb.FormatError, what, None, "an index below 3", "3")
