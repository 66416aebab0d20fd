"""Tries: a length before a segment that an old runtime believes and ours does not.

Stopped by: the length before a segment is the size in the segment table.
"""

from __future__ import annotations

from tests.attacks.surgery import bundle, found, put_u32, read


def test_it_is_found() -> None:
    data = bundle()
    place = read(data).segment_ranges[0].offset - 4
    put_u32(data, place, 16)
    assert found(data) == (place, "length before forward/0/input 1", "16384", "16")
