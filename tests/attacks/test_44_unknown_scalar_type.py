"""Tries: a scalar type that no table of element sizes has.

Stopped by: scalar types are looked up, not indexed with.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, methods, program, put, refusal, value


def test_it_is_found_and_refused() -> None:
    data = program()
    view = value(data, 0)
    put(data, view, "scalar_type", 99)
    what = "value 0 of method 'forward': unknown scalar type"
    assert found(data) == (position_of(view), what, "one of the schema", "99")
    assert refusal(lambda: methods(data))[1].endswith("has an unknown scalar type")
