"""Tries: a tensor whose vector of sizes is missing, for a reader that follows it unasked.

Stopped by: what the runtime follows has to be there.
"""

from __future__ import annotations

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, program, value


def test_it_is_found() -> None:
    data = program(lambda plan: setattr((plan.values or ())[3], "val", schema.Tensor(6, 0)))
    what = "value 3 of method 'forward': sizes missing"
    assert found(data) == (position_of(value(data, 3)), what, "a vector", "none")
