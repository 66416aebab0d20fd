"""Tries: a key that is another one for a reader of C strings.

Stopped by: keys hold no NUL.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import entries, found, put_bytes, target_at, weights


def test_it_is_found() -> None:
    data = weights()
    entry = entries(data)[1]
    put_bytes(data, target_at(entry, "key") + 4, b"a\0")
    assert found(data) == (position_of(entry), "key holds NUL", "text without NUL", r"'a\x00'")
