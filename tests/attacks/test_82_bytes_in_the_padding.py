"""Tries: bytes hidden between two segments, or before the first.

Stopped by: padding is zero.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.attacks.surgery import bundle, findings, found, program, put_header, read, weights


def test_they_are_found() -> None:
    data = bundle()
    first, second = read(data).segment_ranges[:2]
    assert first.end + 4 < second.offset
    data[first.end] = 1
    assert found(data) == (first.end, "padding", "0", "1")


@pytest.mark.parametrize("make", [program, weights])
def test_they_are_found_in_programs_and_weights(make: Callable[[], bytearray]) -> None:
    data = make()
    first, second = read(data).segment_ranges[:2]
    for place in (read(data).metadata_end, first.offset - 1, first.end, second.offset - 1):
        damaged = bytearray(data)
        damaged[place] = 7
        assert found(damaged) == (place, "padding", "0", "7")


@pytest.mark.parametrize("make", [program, weights, bundle])
def test_they_are_found_between_the_last_segment_and_the_end(
    make: Callable[[], bytearray],
) -> None:
    data = make()
    header = read(data).header
    put_header(data, segment_data_size=header.segment_data_size + 2)
    assert findings(data + b"\0\0") == []
    assert found(data + b"\0\5") == (len(data) + 1, "padding", "0", "5")
