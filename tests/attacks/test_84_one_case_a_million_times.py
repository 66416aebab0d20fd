"""Tries: suites, cases and inputs that all point to the first.

Stopped by: what a walk visits is counted, up to four times the metadata and 64 KiB.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle import bpte_schema
from tests.attacks.surgery import findings, metadata, point_to_first, read, refusal, root
from tests.support import peak


def test_it_is_found_and_refused_not_walked() -> None:
    values = [bpte_schema.Value(bpte_schema.Int(7)) for _ in range(100)]
    cases = [bpte_schema.BundledMethodTestCase(values)]
    cases += [bpte_schema.BundledMethodTestCase() for _ in range(99)]
    suites = [bpte_schema.BundledMethodTestSuite("f", cases)]
    suites += [bpte_schema.BundledMethodTestSuite("f") for _ in range(99)]
    data = metadata(bpte_schema.BundledProgram(method_test_suites=suites, program=b""), b"BP08")
    outer = root(data).method_test_suites
    inner = outer[0].test_cases
    for vector in (outer, inner, inner[0].inputs):
        point_to_first(data, vector)
    what = "tables, vectors or strings are used too often"
    assert [said for _, said, _, _ in findings(data)] == [what]
    assert refusal(lambda: read(data).suites)[:2] == (cb.FormatError, what)
    assert peak(lambda: refusal(lambda: read(data).suites)) < 1 << 21
