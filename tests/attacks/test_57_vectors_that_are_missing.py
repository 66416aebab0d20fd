"""Tries: a method without the vectors that a runtime follows, some of them unasked.

Stopped by: what the runtime follows has to be there.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, metadata, plan, root, whole_plan


@pytest.mark.parametrize(
    "name",
    ["values", "inputs", "outputs", "chains", "operators", "delegates", "non_const_buffer_sizes"],
)
def test_it_is_found(name: str) -> None:
    data = metadata(schema.Program(execution_plan=[whole_plan(**{name: None})]))
    what = f"method 'f': {name} missing"
    assert found(data) == (position_of(plan(data)), what, "a vector", "none")


@pytest.mark.parametrize(
    ("item", "what", "expected"),
    [
        (schema.IntList(), "items missing", "a vector"),
        (schema.BoolList(), "items missing", "a vector"),
        (schema.TensorList(), "items missing", "a vector"),
        (schema.String(), "text missing", "a string"),
        (None, "no value", "one of the schema's kinds"),
    ],
)
def test_a_value_without_what_it_holds_is_found(item: object, what: str, expected: str) -> None:
    values = [schema.EValue(item)]  # type: ignore[arg-type]  # a value or none
    data = metadata(schema.Program(execution_plan=[whole_plan(values=values)]))
    assert found(data)[1:] == (f"value 0 of method 'f': {what}", expected, "none")


def test_an_instruction_without_one_is_found() -> None:
    chains = [schema.Chain([], [], [schema.Instruction()])]
    data = metadata(schema.Program(execution_plan=[whole_plan(chains=chains)]))
    what = "instruction 0 of chain 0 of method 'f': no instruction"
    assert found(data)[1:] == (what, "one of the schema's kinds", "none")


def test_a_program_without_methods_is_found() -> None:
    data = metadata(schema.Program())
    place = position_of(root(data))
    assert found(data) == (place, "Program.execution_plan missing", "a vector", "none")
