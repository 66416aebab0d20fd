"""Tries: a second suite for a method, which a runtime never sees.

Stopped by: each method has one suite.
"""

from __future__ import annotations

from cordbundle import bpte_schema as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import found, metadata, root


def test_it_is_found() -> None:
    suites = [schema.BundledMethodTestSuite(name, []) for name in ("f", "g", "f")]
    data = metadata(schema.BundledProgram(method_test_suites=suites, program=b""), b"BP08")
    place = position_of(root(data).method_test_suites[2])
    assert found(data) == (place, "two suites are for one method", "unique names", "'f'")
