"""Tries: a segment whose offset + size is small again in 64 bits.

Stopped by: sums are exact: the end is behind the file.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import findings, program, put, read, refusal, root


def test_it_is_found_and_refused() -> None:
    data = program()
    segment = root(data).segments[2]
    put(data, segment, "offset", 2**64 - 2)
    offset, what, expected, actual = findings(data)[0]
    assert (offset, what) == (1152 + 2**64 - 2, "segment 2 ends after the file")
    assert (expected, actual) == (
        "an end at or before 1412",
        f"an end at {1152 + 2**64 + 2}, 4 bytes missing",
    )
    assert refusal(lambda: read(data).named_data)[:2] == (
        cb.TruncatedError,
        "key 'key' ends after the file",
    )
