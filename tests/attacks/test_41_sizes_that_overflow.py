"""Tries: sizes whose product is small again in 64 bits.

Stopped by: the product is exact and has to stay below 2**63.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, program, value
from tests.support import tensor


def test_it_is_found() -> None:
    big = [2**31 - 1, 2**31 - 1, 4]
    data = program(
        lambda plan: setattr((plan.values or ())[3], "val", tensor(big, data_buffer_idx=1))
    )
    what = "value 3 of method 'forward': sizes of the tensor overflow"
    room = f"at most {2**63 - 1} bytes"
    assert found(data) == (position_of(value(data, 3)), what, room, f"sizes {big}")
