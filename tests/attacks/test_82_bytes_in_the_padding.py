"""Tries: bytes hidden between two segments of a bundle.

Stopped by: padding is zero in files of our own.
"""

from __future__ import annotations

from tests.attacks.surgery import bundle, found, read


def test_they_are_found() -> None:
    data = bundle()
    first, second = read(data).segment_ranges[:2]
    assert first.end + 4 < second.offset
    data[first.end] = 1
    assert found(data) == (first.end, "padding", "0", "1")
