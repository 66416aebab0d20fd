"""Tries: a change of one bit in a segment or in the metadata.

Stopped by: digests cover every byte of a bundle.
"""

from __future__ import annotations

import pytest

from tests.attacks.surgery import bundle, found


@pytest.mark.parametrize(
    ("place", "at", "what"),
    [
        (17023, 640, "xxh3-128 of segment 0 (forward/0/input 1), bytes 640 to 17024"),
        (18595, 18436, "xxh3-128 of segment 2 (named data 'key'), bytes 18436 to 18596"),
        (64, 48, "xxh3-128 of header and metadata, bytes 0 to 640"),
        (639, 48, "xxh3-128 of header and metadata, bytes 0 to 640"),
    ],
)
def test_it_is_found(place: int, at: int, what: str) -> None:
    data = bundle("segmented", digest=True)
    data[place] ^= 4
    assert found(data)[:2] == (at, what)
