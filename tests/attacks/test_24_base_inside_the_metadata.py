"""Tries: segments that are the metadata, to be changed through a blob.

Stopped by: the base is compared with the end of the metadata.
"""

from __future__ import annotations

from tests.attacks.surgery import findings, program, put_header


def test_it_is_found() -> None:
    data = program()
    put_header(data, segment_base_offset=1024)
    assert findings(data) == [
        (24, "segment base is inside the metadata", "1128 or more", "1024"),
        (1024, "segment 0 begins inside the metadata", "a begin at or after 1128", "1024"),
        (1284, "bytes after the last segment", "none", "128"),
    ]
