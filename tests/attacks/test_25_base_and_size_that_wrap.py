"""Tries: a base near 2**64, so that base + size is small again in 64 bits.

Stopped by: sums are exact, and an end that no file can have is refused.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import program, put_header, read, refusal


def test_it_is_refused() -> None:
    data = program()
    put_header(data, segment_base_offset=2**64 - 128, segment_data_size=256)
    what = "segments would end where no file can"
    expected = (cb.FormatError, what, 8, f"at most {2**63 - 1}", str(2**64 + 128))
    assert refusal(lambda: read(data)) == expected
