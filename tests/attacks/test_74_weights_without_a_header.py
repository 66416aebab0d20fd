"""Tries: weights whose header is missing, or of another version.

Stopped by: weights without their header have no segments.
"""

from __future__ import annotations

import pytest

import cordbundle as cb
from tests.attacks.surgery import put_bytes, read, refusal, weights


@pytest.mark.parametrize("magic", [b"FH02", b"eh00", b"\0\0\0\0"])
def test_it_is_refused(magic: bytes) -> None:
    data = weights()
    put_bytes(data, 8, magic)
    what = "weights file has no extended header"
    assert refusal(lambda: read(data)) == (cb.FormatError, what, 8, "b'FH01'", repr(magic))
