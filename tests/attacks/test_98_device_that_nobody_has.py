"""Tries: a tensor on a device whose type no runtime knows.

Stopped by: types of devices are those of the schema.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, metadata, plan, value, whole_plan
from tests.support import tensor


@pytest.mark.parametrize("number", [0, 1, 2, -1])
def test_it_is_found(number: int) -> None:
    info = schema.ExtraTensorInfo(device_type=number)
    values = [schema.EValue(tensor([1], extra_tensor_info=info))]
    buffer = schema.NonConstBufferDevice(1, number, 0)
    data = metadata(
        schema.Program(execution_plan=[whole_plan(values=values, non_const_buffer_device=[buffer])])
    )
    told = [
        (position_of(plan(data)), "method 'f': unknown type of device", "0 or 1", str(number)),
        (
            position_of(value(data, 0)),
            "value 0 of method 'f': unknown type of device",
            "0 or 1",
            str(number),
        ),
    ]
    assert findings(data) == ([] if number in (0, 1) else told)
