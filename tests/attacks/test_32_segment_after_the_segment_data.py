"""Tries: a segment in bytes that the header does not count.

Stopped by: the end of each segment is compared with the size of the segment data.
"""

from __future__ import annotations

from tests.attacks.surgery import findings, program, put_header


def test_it_is_found() -> None:
    data = program()
    put_header(data, segment_data_size=258)
    assert findings(data) == [
        (
            1408,
            "segment 2 ends after the segment data",
            "an end at or before 1410",
            "an end at 1412",
        ),
        (1410, "bytes after the last segment", "none", "2"),
    ]
