"""Tries: metadata of 4 bytes, so that everything in it is outside.

Stopped by: a reader sees the metadata alone, not the rest of the file.
"""

from __future__ import annotations

from tests.attacks.surgery import found, methods, program, put_header, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    put_header(data, flatbuffer_size=4)
    assert found(data) == (0, "root offset passes the end", "8 bytes", "4")
    assert refusal(lambda: methods(data))[1] == "root offset: offset points past the end"
