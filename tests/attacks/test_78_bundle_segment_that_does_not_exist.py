"""Tries: a bundle whose program, tensor or key has a segment out of range.

Stopped by: every index of a segment is compared with their number.
"""

from __future__ import annotations

import pytest

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import bundle, findings, found, large_input, put, read, refusal, root


@pytest.mark.parametrize("number", [4, 9])
@pytest.mark.parametrize("form", ["bp08", "segmented"])
def test_a_program_without_one_is_found(form: str, number: int) -> None:
    data = bundle(form)
    put(data, root(data), "program_segment", number)
    what = "segment of the program does not exist"
    assert findings(data)[0] == (position_of(root(data)), what, "at most 3", str(number))
    expected = (cb.FormatError, what, None, "an index below 3", str(number - 1))
    assert refusal(lambda: read(data).program) == expected


def test_a_tensor_without_one_is_found_and_refused() -> None:
    data = bundle("segmented")
    view = large_input(data)
    put(data, view, "data_segment", 9)
    what = "segment of forward/0/input 1 does not exist"
    assert found(data) == (position_of(view), what, "at most 3", "9")
    what = "segment of method 'forward', case 0, input 1 does not exist"
    expected = (cb.FormatError, what, None, "an index below 3", "8")
    assert refusal(lambda: read(data).suites) == expected


def test_a_key_without_one_is_found_and_refused() -> None:
    data = bundle()
    entry = root(data).named_data[0]
    put(data, entry, "segment_index", 9)
    what = "segment of key 'key' does not exist"
    assert found(data) == (position_of(entry), what, "an index below 3", "9")
    expected = (cb.FormatError, what, None, "an index below 3", "9")
    assert refusal(lambda: read(data).named_data) == expected
