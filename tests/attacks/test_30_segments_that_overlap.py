"""Tries: two segments that share bytes, so that one blob is changed through the other.

Stopped by: each segment begins behind the one before.
"""

from __future__ import annotations

from tests.attacks.surgery import found, program, put, root


def test_it_is_found() -> None:
    data = program()
    segment = root(data).segments[1]
    put(data, segment, "size", 130)
    assert found(data) == (
        1408,
        "segment 2 begins inside segment 1",
        "a begin at or after 1410",
        "1408",
    )
