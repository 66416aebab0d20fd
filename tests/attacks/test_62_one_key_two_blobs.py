"""Tries: two blobs under one key, so that two readers see two models.

Stopped by: it is found; the first one counts, as in the runtime.
"""

from __future__ import annotations

from typing import Any

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import (
    entries,
    found,
    put_bytes,
    read,
    root,
    target_at,
    weights,
    whole_plan,
    with_segments,
)
from tests.support import floats


def test_it_is_found_in_weights_and_the_first_is_taken() -> None:
    data = weights()
    put_bytes(data, target_at(entries(data)[1], "key") + 4, b"aa")
    place = position_of(entries(data)[1])
    assert found(data) == (place, "key is used twice", "unique keys", "'aa'")
    expected = floats([2, 3]).tobytes()
    blobs: list[Any] = [read(data)["aa"], cb.load_ptd(bytes(data))["aa"]]
    assert [bytes(blob.cord) for blob in blobs] == [expected, expected]


def test_it_is_found_in_a_program_and_the_first_is_taken() -> None:
    record = schema.Program(
        execution_plan=[whole_plan()],
        segments=[schema.DataSegment(0, 1), schema.DataSegment(1, 1)],
        named_data=[schema.NamedData("k", 0), schema.NamedData("k", 1)],
    )
    data = with_segments(record, b"12")
    place = position_of(root(data).named_data[1])
    assert found(data) == (place, "key is used twice", "unique keys", "'k'")
    assert bytes(read(data).named_data["k"]) == b"1"
