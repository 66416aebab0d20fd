"""Tries: an extended header of 4 GiB, for a reader that skips or copies it.

Stopped by: only known fields are read; the length is compared with the root offset.
"""

from __future__ import annotations

from tests.attacks.surgery import found, methods, program, put_header


def test_it_is_read_for_what_is_known_and_found() -> None:
    data = program()
    put_header(data, length=2**32 - 1)
    place = int.from_bytes(data[:4], "little")
    what = "root table is inside the extended header"
    assert found(data) == (0, what, str(2**32 + 7) + " or more", str(place))
    assert list(methods(data)) == ["forward"]
