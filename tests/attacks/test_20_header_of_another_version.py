"""Tries: a header that a reader does not know, so that segments are looked for from 0.

Stopped by: a header that is none of ours is told, and segments without one have no place.
"""

from __future__ import annotations

from tests.attacks.surgery import findings, program, put_bytes


def test_it_is_found() -> None:
    data = program()
    put_bytes(data, 8, b"eh01")
    assert findings(data) == [
        (8, "unknown extended header", "b'eh00'", "b'eh01'"),
        (8, "segments without an extended header to say where they begin", "b'eh00'", "b'eh01'"),
        (1128, "bytes after the flatbuffer", "none", "284"),
    ]
