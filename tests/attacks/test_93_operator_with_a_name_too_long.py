"""Tries: an operator whose name does not fit where the runtime joins it with its overload.

Stopped by: name, dot and overload have 99 bytes at most.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from cordbundle.record_check import shown
from tests.attacks.surgery import findings, metadata, plan, whole_plan


@pytest.mark.parametrize(
    ("name", "overload", "size"),
    [
        ("a" * 95, "out", 99),
        ("a" * 96, "out", 100),
        ("a" * 99, "", 99),
        ("a" * 99, None, 99),
        ("a" * 100, None, 100),
        ("\u00e9" * 48, "out", 100),
    ],
)
def test_it_is_found_from_100_bytes_on(name: str, overload: str | None, size: int) -> None:
    operators = [schema.Operator(name, overload)]
    data = metadata(schema.Program(execution_plan=[whole_plan(operators=operators)]))
    what = f"method 'f': name of operator {shown(name)}"
    expected = [(position_of(plan(data)), what, "at most 99 bytes", str(size))]
    assert findings(data) == (expected if size > 99 else [])
