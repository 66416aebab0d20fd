"""Tries: a bundle without the vectors and names that a runtime follows unasked.

Stopped by: what the runtime follows has to be there, if only with a length of 0.
"""

from __future__ import annotations

import pytest

from cordbundle import bpte_schema as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, metadata, root

TENSOR = {"scalar_type": 6, "sizes": [1], "data": b"\0\0\0\0", "dim_order": [0]}
CASE: dict[str, object] = {"inputs": [], "expected_outputs": []}
SUITE = {"method_name": "forward", "test_cases": []}
ROOT = {"method_test_suites": [], "program": b""}


def bundle_of(record: object) -> bytearray:
    """Return a bundle that holds a record of any kind."""
    if isinstance(record, schema.Tensor):
        record = schema.BundledMethodTestCase([schema.Value(record)], [])
    if isinstance(record, schema.BundledMethodTestCase):
        record = schema.BundledMethodTestSuite("forward", [record])
    if isinstance(record, schema.BundledMethodTestSuite):
        record = schema.BundledProgram(method_test_suites=[record], program=b"")
    return metadata(record, b"BP08")


@pytest.mark.parametrize(
    ("cls", "fields", "name", "what", "expected"),
    [
        (schema.BundledProgram, ROOT, "program", "BundledProgram.program", "a vector"),
        (
            schema.BundledProgram,
            ROOT,
            "method_test_suites",
            "BundledProgram.method_test_suites",
            "a vector",
        ),
        (
            schema.BundledMethodTestSuite,
            SUITE,
            "method_name",
            "suite 0: name of the method",
            "a string",
        ),
        (schema.BundledMethodTestSuite, SUITE, "test_cases", "forward: test cases", "a vector"),
        (schema.BundledMethodTestCase, CASE, "inputs", "forward/0: inputs", "a vector"),
        (
            schema.BundledMethodTestCase,
            CASE,
            "expected_outputs",
            "forward/0: expected outputs",
            "a vector",
        ),
        (schema.Tensor, TENSOR, "sizes", "forward/0/input 0: sizes", "a vector"),
        (schema.Tensor, TENSOR, "data", "forward/0/input 0: data", "a vector"),
        (schema.Tensor, TENSOR, "dim_order", "forward/0/input 0: dim order", "a vector"),
    ],
)
def test_it_is_found(
    cls: type, fields: dict[str, object], name: str, what: str, expected: str
) -> None:
    assert findings(bundle_of(cls(**fields))) == []
    data = bundle_of(cls(**{**fields, name: None}))
    assert found(data)[1:] == (f"{what} missing", expected, "none")


def test_it_is_found_at_its_place() -> None:
    data = bundle_of(schema.BundledMethodTestCase([], None))
    case = root(data).method_test_suites[0].test_cases[0]
    assert found(data)[0] == position_of(case)
