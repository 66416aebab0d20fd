"""Tries: segments counted from the start of the file, over the metadata.

Stopped by: a base of 0 means that there are none.
"""

from __future__ import annotations

from tests.attacks.surgery import findings, program, put_header


def test_it_is_found() -> None:
    data = program()
    put_header(data, segment_base_offset=0, segment_data_size=0)
    said = findings(data)
    assert (24, "segment base is 0 although there are segments", "1 or more", "0") in said
    assert (0, "segment 0 begins inside the metadata", "a begin at or after 1128", "0") in said
