"""Tries: a tensor whose data is in another file, under no name.

Stopped by: external data has a name.
"""

from __future__ import annotations

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, program, value


def test_it_is_found() -> None:
    extra = schema.ExtraTensorInfo(location=1)
    change = schema.Tensor(6, 0, [4], [0], extra_tensor_info=extra)
    data = program(lambda plan: setattr((plan.values or ())[3], "val", change))
    what = "value 3 of method 'forward': external data without a name"
    assert found(data) == (position_of(value(data, 3)), what, "text", "None")
