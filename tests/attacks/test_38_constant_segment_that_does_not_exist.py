"""Tries: constants in a segment with an index out of range.

Stopped by: every index of a segment is compared with their number.
"""

from __future__ import annotations

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, metadata, root, whole_plan


def test_it_is_found() -> None:
    table = schema.SubsegmentOffsets(0, [0, 0])
    data = metadata(schema.Program(execution_plan=[whole_plan()], constant_segment=table))
    place = position_of(root(data).constant_segment)
    what = "segment of constants does not exist"
    assert found(data) == (place, what, "an index below 0", "0")


def test_the_placeholder_alone_needs_none() -> None:
    table = schema.SubsegmentOffsets(0, [0])
    buffers = [schema.Buffer(b"x")]
    data = metadata(
        schema.Program(
            execution_plan=[whole_plan()], constant_buffer=buffers, constant_segment=table
        )
    )
    assert findings(data) == []
