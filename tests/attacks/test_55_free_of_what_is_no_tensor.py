"""Tries: the release of a value that has no memory of its own.

Stopped by: only tensors are freed.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, instruction, program, put


def test_it_is_found() -> None:
    data = program()
    view = instruction(data, 4)
    put(data, view.instr_args, "value_index", 7)
    what = "instruction 4 of chain 0 of method 'forward': value to free: kind of a value"
    assert found(data) == (position_of(view), what, "Tensor", "value 7 is String")
