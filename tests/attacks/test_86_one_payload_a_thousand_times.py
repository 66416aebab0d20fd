"""Tries: 1,000 delegates that all name one payload, or the same bytes as segments of their own.

Stopped by: a payload is searched once, and no more bytes in all than the file has.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.weights_check import WeightsCheck, check_weights
from tests.attacks.surgery import with_segments
from tests.faults import counted_call

COUNT = 1000
KEY = "0123456789abcdef" * 4
GRAPH = struct.pack("<I", 64) + KEY.encode() + bytes(1 << 18)
PAYLOAD = struct.pack("<4x4sHII12x", b"XH00", 30, 32, len(GRAPH)) + b"\0\0" + GRAPH


def check(path: Path) -> tuple[WeightsCheck, int]:
    """Return what a comparison with no weights finds, and how many bytes it reads."""
    with cb.open(path) as file, counted_call("preadv") as calls:
        assert isinstance(file, cb.PteFile)
        found = check_weights(file, [])
    return found, sum(memoryview(view).nbytes for _, views, _ in calls for view in views)


@pytest.mark.parametrize("segments", [1, COUNT])
def test_its_bytes_are_read_once(tmp_path: Path, segments: int) -> None:
    places = [schema.BackendDelegateDataReference(1, n % segments) for n in range(COUNT)]
    plan = schema.ExecutionPlan(
        "f", delegates=[schema.BackendDelegate("XnnpackBackend", place) for place in places]
    )
    record = schema.Program(
        execution_plan=[plan],
        segments=[schema.DataSegment(0, len(PAYLOAD)) for _ in range(segments)],
    )
    data = with_segments(record, PAYLOAD)
    (tmp_path / "m.pte").write_bytes(data)
    found, size = check(tmp_path / "m.pte")

    assert found.keys == (KEY,)
    assert found.backends == (() if segments == 1 else ("XnnpackBackend",))
    assert size < 3 * len(data)
