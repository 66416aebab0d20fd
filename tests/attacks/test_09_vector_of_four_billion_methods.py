"""Tries: a vector that claims more elements than the file has bytes.

Stopped by: a length times the width is compared with the size before anything is allocated.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import (
    findings,
    found,
    methods,
    program,
    put_u32,
    refusal,
    root,
    target_at,
)
from tests.support import peak


def test_it_is_found_and_refused_without_memory() -> None:
    data = program()
    place = target_at(root(data), "execution_plan")
    put_u32(data, place, 2**32 - 1)
    what = "Program.execution_plan passes the end"
    room = (1128 - place - 4) // 4
    assert found(data) == (place, what, f"up to {room} elements", "4294967295")
    assert refusal(lambda: methods(data))[:3] == (cb.TruncatedError, what, place)
    assert peak(lambda: findings(data)) < 1 << 20
