"""Tries: two methods of one name, so that the one that is checked is not the one that runs.

Stopped by: it is found; the first one counts, as in the runtime.
"""

from __future__ import annotations

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, metadata, methods, root, whole_plan


def test_it_is_found_and_the_first_is_taken() -> None:
    values = [schema.EValue(schema.Int(1)), schema.EValue(schema.Int(2))]
    plans = [whole_plan(values=values, inputs=[index]) for index in (0, 1)]
    data = metadata(schema.Program(execution_plan=plans))
    second = root(data).execution_plan[1]
    assert found(data) == (position_of(second), "two methods have one name", "unique names", "'f'")
    assert methods(data)["f"].inputs == (cb.ValueSpec("int", 1),)


@pytest.mark.parametrize("name", [None, "", "f\0g"])
def test_a_name_that_is_none_is_found(name: str | None) -> None:
    data = metadata(schema.Program(execution_plan=[whole_plan(name=name)]))
    assert found(data)[1:] == ("name of a method", "a name without NUL", repr(name))
