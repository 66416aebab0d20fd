"""Tries: a file cut in its last segment, with a header that does not say where it ends.

Stopped by: each segment is compared with the size of the file.
"""

from __future__ import annotations

from tests.attacks.surgery import found, program, put_header


def test_it_is_found_with_what_is_missing() -> None:
    data = program()
    put_header(data, length=24)
    assert found(data[:-3]) == (
        1408,
        "segment 2 ends after the file",
        "an end at or before 1409",
        "an end at 1412, 3 bytes missing",
    )
