"""Tries: an operator whose name does not fit where the runtime joins it with its overload.

Stopped by: name, dot and overload have 99 bytes at most.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from cordbundle.record_check import shown
from tests.attacks.surgery import findings, found, metadata, plan, whole_plan


@pytest.mark.parametrize(
    ("name", "overload", "size"),
    [
        ("a" * 95, "out", 99),
        ("a" * 96, "out", 100),
        ("a" * 99, "", 99),
        ("a" * 100, "", 100),
        ("\u00e9" * 48, "out", 100),
    ],
)
def test_it_is_found_from_100_bytes_on(name: str, overload: str, size: int) -> None:
    operators = [schema.Operator(name, overload)]
    data = metadata(schema.Program(execution_plan=[whole_plan(operators=operators)]))
    what = f"method 'f': name of operator {shown(name)}"
    expected = [(position_of(plan(data)), what, "at most 99 bytes", str(size))]
    assert findings(data) == (expected if size > 99 else [])


def test_an_operator_without_an_overload_is_found() -> None:
    """The runtime logs it where a kernel fails."""
    data = metadata(
        schema.Program(execution_plan=[whole_plan(operators=[schema.Operator("a", None)])])
    )
    what = "method 'f': operator 'a' without an overload"
    assert found(data) == (position_of(plan(data)), what, "text, or an empty one", "none")
