"""Tries: a second file hidden behind the last segment, or behind a file without segments.

Stopped by: the end that header, segments or flatbuffer give is compared with the size of the file.
"""

from __future__ import annotations

import pytest

import cordbundle as cb
from cordbundle import bpte_schema
from cordbundle import program as schema
from tests.attacks.surgery import (
    findings,
    found,
    metadata,
    methods,
    program,
    put_header,
    read,
    weights,
    whole_plan,
)


@pytest.mark.parametrize("length", [24, 32])
def test_they_are_found_and_the_file_is_read(length: int) -> None:
    data = program() + b"hidden"
    put_header(data, length=length)
    assert found(data) == (1412, "bytes after the last segment", "none", "6")
    assert list(methods(data)) == ["forward"]


def test_they_are_found_in_weights() -> None:
    data = weights() + b"hidden"
    assert found(data) == (644, "bytes after the last segment", "none", "6")


def test_they_are_found_in_a_program_without_a_header() -> None:
    data = metadata(schema.Program(execution_plan=[whole_plan()]))
    assert findings(data + bytes(100)) == []
    assert found(data + b"hidden")[1] == "bytes after the flatbuffer"
    assert list(methods(data + b"hidden")) == ["f"]


def test_they_are_found_in_a_bundle_without_a_header() -> None:
    inner = bytes(metadata(schema.Program(execution_plan=[whole_plan()])))
    outer = bpte_schema.BundledProgram(method_test_suites=[], program=inner)
    data = metadata(outer, b"BP08")
    assert findings(data) == []
    assert [said for _, said, _, _ in findings(data + b"hidden")] == ["bytes after the flatbuffer"]
    assert isinstance(read(data + b"hidden"), cb.BundleFile)
