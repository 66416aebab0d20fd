"""Tries: a tensor that reads on behind its constant.

Stopped by: sizes times the element size are compared with the bytes that there are.
"""

from __future__ import annotations

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, metadata, program, put_element, value, whole_plan


def test_it_is_found_in_a_segment() -> None:
    data = program()
    view = value(data, 3)
    put_element(data, view, "sizes", 0, 5)
    what = "value 3 of method 'forward': constant is shorter than its sizes"
    assert found(data) == (position_of(view), what, "20 bytes", "16")


def test_it_is_found_in_the_flatbuffer() -> None:
    tensor = schema.Tensor(6, 0, [5], [0], data_buffer_idx=1)
    plans = [whole_plan(values=[schema.EValue(tensor)])]
    buffers = [schema.Buffer(b""), schema.Buffer(bytes(16))]
    data = metadata(schema.Program(execution_plan=plans, constant_buffer=buffers))
    what = "value 0 of method 'f': constant is shorter than its sizes"
    assert found(data) == (position_of(value(data, 0)), what, "20 bytes", "16")
