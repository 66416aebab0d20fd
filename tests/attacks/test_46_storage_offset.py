"""Tries: a tensor that begins elsewhere in its buffer than it is checked for.

Stopped by: a storage offset is 0, as in the runtime.
"""

from __future__ import annotations

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, program, value


def test_it_is_found() -> None:
    change = schema.Tensor(6, 100, [4], [0], data_buffer_idx=1)
    data = program(lambda plan: setattr((plan.values or ())[3], "val", change))
    what = "value 3 of method 'forward': storage offset"
    assert found(data) == (position_of(value(data, 3)), what, "0", "100")
