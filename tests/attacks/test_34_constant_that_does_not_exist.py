"""Tries: a tensor whose constant has an index out of range.

Stopped by: indices of constants are compared with their number.
"""

from __future__ import annotations

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, metadata, program, put, value, whole_plan


def test_it_is_found() -> None:
    data = program()
    view = value(data, 3)
    put(data, view, "data_buffer_idx", 2**32 - 1)
    what = "value 3 of method 'forward': constant does not exist"
    assert found(data) == (position_of(view), what, "an index below 2", "4294967295")


def test_it_is_found_of_a_tensor_of_any_size() -> None:
    tensor = schema.Tensor(0, 0, [2**31 - 1] * 2, [0, 1], data_buffer_idx=1, shape_dynamism=1)
    data = metadata(schema.Program(execution_plan=[whole_plan(values=[schema.EValue(tensor)])]))
    what = "value 0 of method 'f': constant does not exist"
    assert found(data) == (position_of(value(data, 0)), what, "an index below 0", "1")
