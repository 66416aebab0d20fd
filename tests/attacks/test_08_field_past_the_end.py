"""Tries: a field 60,000 bytes behind its table.

Stopped by: a table is inside the file up to the end of its last field.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, methods, plan, program, put_u16, refusal, vtable_at


def test_it_is_found_and_refused() -> None:
    data = program()
    view = plan(data)
    put_u16(data, vtable_at(view) + 4, 60000)
    place = position_of(view)
    what = "table ExecutionPlan passes the end"
    assert found(data) == (place, what, "60004 bytes", str(1128 - place))
    assert refusal(lambda: methods(data))[:3] == (cb.TruncatedError, what, place)
