"""Tries: a tensor planned over the end of its memory.

Stopped by: offset and bytes are compared with the size of the planned buffer.
"""

from __future__ import annotations

from typing import Any

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, plan, program, put_element, value


def test_it_is_found() -> None:
    data = program()
    put_element(data, plan(data), "non_const_buffer_sizes", 1, 23)
    what = "value 0 of method 'forward': planned memory passes the end of buffer 1"
    assert found(data) == (position_of(value(data, 0)), what, "at most 23", "24")


@pytest.mark.parametrize("number", [0, 2, 2**32 - 1])
def test_a_buffer_that_does_not_exist_is_found(number: int) -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        tensor: Any = (plan.values or ())[0].val
        tensor.allocation_info.memory_id = number

    what = "value 0 of method 'forward': planned buffer does not exist"
    assert found(program(change))[1:] == (what, "1 to 1", str(number))


def test_an_offset_above_32_bits_is_found() -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        tensor: Any = (plan.values or ())[0].val
        tensor.allocation_info.memory_offset_high = 1

    assert found(program(change))[2:] == ("at most 24", str(2**32 + 24))
