"""Tries: a delegate that does not say where its data is, or says it wrongly.

Stopped by: places of payloads are checked as indices and are never assumed.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import delegate, found, metadata, program, whole_plan


@pytest.mark.parametrize(
    ("place", "what", "expected", "actual"),
    [
        (None, "data missing", "a place", "none"),
        ((1, 3), "segment does not exist", "an index below 0", "3"),
        ((0, 9), "inline data does not exist", "an index below 1", "9"),
        ((0, 0), "inline data is empty", "a byte vector", "none"),
        ((5, 0), "unknown location of data", "0 or 1", "5"),
    ],
)
def test_it_is_found(place: tuple[int, int] | None, what: str, expected: str, actual: str) -> None:
    reference = schema.BackendDelegateDataReference(*place) if place else None
    delegates = [schema.BackendDelegate("b", reference)]
    data = metadata(
        schema.Program(
            execution_plan=[whole_plan(delegates=delegates)],
            backend_delegate_data=[schema.BackendDelegateInlineData()],
        )
    )
    text = f"delegate 0 of method 'f': {what}"
    assert found(data) == (position_of(delegate(data)), text, expected, actual)


def test_one_without_a_backend_is_found() -> None:
    data = program(lambda plan: setattr((plan.delegates or ())[0], "id", None))
    what = "delegate 0 of method 'forward': backend without a name"
    assert found(data)[1:] == (what, "text", "None")
