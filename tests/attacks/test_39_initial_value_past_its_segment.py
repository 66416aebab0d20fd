"""Tries: a mutable tensor whose initial value reads on behind its segment.

Stopped by: as constants: sizes are compared with the bytes that there are.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, metadata, root, value, whole_plan


def test_it_is_found() -> None:
    planned = schema.AllocationDetails(1, 0, 0)
    tensor = schema.Tensor(6, 0, [5], [0], data_buffer_idx=1, allocation_info=planned)
    record = schema.Program(execution_plan=[whole_plan(values=[schema.EValue(tensor)])])
    mutable = [schema.Buffer(b""), schema.Buffer(bytes(16))]
    data = bytearray(bytes(cb.serialize_pte(record, mutable_data=mutable)))
    what = "value 0 of method 'f': initial value is shorter than its sizes"
    assert found(data) == (position_of(value(data, 0)), what, "20 bytes", "16")


def test_a_segment_that_does_not_exist_is_found() -> None:
    tables = [schema.SubsegmentOffsets(), schema.SubsegmentOffsets(1, [0])]
    record = schema.Program(
        execution_plan=[whole_plan()],
        segments=[schema.DataSegment()],
        mutable_data_segments=tables,
    )
    data = metadata(record)
    place = position_of(root(data).mutable_data_segments[1])
    what = "segment of mutable data 1 does not exist"
    assert found(data) == (place, what, "an index below 1", "1")
