"""Tries: weights of a scalar type that no table has, or with a dim order of another rank.

Stopped by: scalar types are looked up; a dim order is a permutation.
"""

from __future__ import annotations

import pytest

from cordbundle import ptd_schema
from tests.attacks.surgery import found, weights_of


@pytest.mark.parametrize(
    ("layout", "what", "expected", "actual"),
    [
        (ptd_schema.TensorLayout(8, [1], [0]), "unknown scalar type", "one of the schema", "8"),
        (
            ptd_schema.TensorLayout(6, [1], [0, 1]),
            "dim order is no permutation of the dimensions",
            "each below 1 once",
            "[0, 1]",
        ),
        (ptd_schema.TensorLayout(6, [1]), "dim order missing", "a vector", "none"),
        (ptd_schema.TensorLayout(6, None, [0]), "sizes missing", "a vector", "none"),
        (
            ptd_schema.TensorLayout(6, [1] * 10_000, [0] * 10_000),
            "too many dimensions",
            "at most 16",
            "10000",
        ),
    ],
)
def test_it_is_found(
    layout: ptd_schema.TensorLayout, what: str, expected: str, actual: str
) -> None:
    assert found(weights_of(layout))[1:] == (f"key 'k': {what}", expected, actual)
