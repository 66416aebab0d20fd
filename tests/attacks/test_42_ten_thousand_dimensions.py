"""Tries: a tensor of 10,000 dimensions, whose product is a number of 300,000 bits.

Stopped by: more than 16 are refused, as by the runtime, before anything is multiplied.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, methods, program, refusal, value
from tests.support import peak, tensor


def test_it_is_found_and_refused_in_little_memory() -> None:
    sizes = [2**31 - 1] * 10_000
    data = program(
        lambda plan: setattr((plan.values or ())[0], "val", tensor(sizes, dim_order=[0] * 10_000))
    )
    what = "value 0 of method 'forward': too many dimensions"
    assert found(data) == (position_of(value(data, 0)), what, "at most 16", "10000")
    assert refusal(lambda: methods(data)) == (
        cb.FormatError,
        "a tensor of the inputs of method 'forward': too many dimensions",
        None,
        "at most 16",
        "10000",
    )
    assert peak(lambda: findings(data)) < 1 << 21
