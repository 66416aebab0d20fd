"""Tries: 3,000 elements that point to one method of 300 operators, a walk of a million tables.

Stopped by: what a walk visits is counted, up to four times the file and 64 KiB.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle import program as schema
from tests.attacks.surgery import (
    found,
    metadata,
    methods,
    plan,
    point_to_first,
    read,
    refusal,
    root,
)
from tests.support import peak


def test_it_is_found_and_refused_not_walked() -> None:
    operators = [schema.Operator("aten::add", "out") for _ in range(300)]
    plans = [schema.ExecutionPlan("f", operators=operators)]
    plans += [schema.ExecutionPlan("f") for _ in range(3000)]
    data = metadata(schema.Program(execution_plan=plans))
    view = plan(data)
    point_to_first(data, view.operators)
    point_to_first(data, root(data).execution_plan)
    what = "tables, vectors or strings are used too often"
    budget = 4 * len(data) + (64 << 10)
    assert found(data)[1:] == (what, f"at most {budget} bytes visited in all", "more")
    for call in (lambda: methods(data), lambda: read(data).program()):
        assert refusal(call)[:2] == (cb.FormatError, what)
        assert peak(lambda call=call: refusal(call)) < 4 << 20  # type: ignore[misc]
