"""Tries: constants in the flatbuffer and in a segment, so that two readers see two models.

Stopped by: one place is allowed.
"""

from __future__ import annotations

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, metadata, root, whole_plan


def test_it_is_found() -> None:
    table = schema.SubsegmentOffsets(0, [0, 0])
    data = metadata(
        schema.Program(
            execution_plan=[whole_plan()],
            constant_buffer=[schema.Buffer(b"x")],
            segments=[schema.DataSegment()],
            constant_segment=table,
        )
    )
    place = position_of(root(data).constant_segment)
    assert found(data) == (place, "constants are in two places", "one", "1 in the flatbuffer too")
