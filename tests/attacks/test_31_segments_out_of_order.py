"""Tries: a segment table that is not sorted, for a reader that takes the last one as the end.

Stopped by: each segment begins behind the one before.
"""

from __future__ import annotations

from tests.attacks.surgery import findings, program, put, root


def test_it_is_found() -> None:
    data = program()
    _, second, third = root(data).segments
    put(data, second, "offset", 256)
    put(data, third, "offset", 128)
    assert findings(data) == [
        (1280, "segment 2 stands before segment 1", "a begin at or after 1415", "1280"),
        (
            1408,
            "segment 1 ends after the file",
            "an end at or before 1412",
            "an end at 1415, 3 bytes missing",
        ),
    ]
