"""What fuzzing found, kept as tests: one for each kind of failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb
from cordbundle import bpte_schema
from cordbundle import program as schema
from cordbundle.flatbuffer import encode
from cordbundle.headers import PROGRAM_HEADER, ExtendedHeader, flatbuffer_with_header
from cordbundle.layout import Layout
from cordbundle.rewriting import assembly
from cordbundle.rewriting.relayout import place
from tests.support import bundle_file, floats, program, suite, tensor


def test_the_place_of_a_program_in_a_segment_that_does_not_exist_is_refused() -> None:
    root = bpte_schema.BundledProgram(program=b"", program_segment=3)
    file = cb.open(bytes(encode(root, bpte_schema.BUNDLED_PROGRAM_IDENTIFIER).cord))
    assert isinstance(file, cb.BundleFile)

    with pytest.raises(cb.FormatError, match="segment of the program does not exist"):
        _ = file.program_offset


def test_a_long_key_does_not_fill_the_rows_of_all_others_with_blanks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("typer")
    from cordbundle.cli import main

    keys = {"k" * 5000: b"x"} | {f"key {i}": b"x" for i in range(100)}
    cb.write(cb.serialize_ptd(keys), tmp_path / "weights.ptd")

    assert main(["inspect", str(tmp_path / "weights.ptd")]) == 0

    out = capsys.readouterr().out
    assert len(out) < 20_000
    assert all(f"{key} " in out for key in keys)


def test_the_name_of_a_method_is_not_repeated_in_full_for_each_of_its_tensors() -> None:
    name = "m" * 5000
    given = program([tensor([1024])], names=[name])
    cases = [cb.MethodTestCase([floats([1024], start=i)]) for i in range(20)]

    layout = bundle_file(cb.bundle(given, [suite(*cases, method=name)])).layout

    assert len(layout.placements) == 21
    assert sum(len(place.name) for place in layout.placements) < len(name)


def test_a_bundle_without_header_whose_segments_are_in_its_metadata_is_not_put_together() -> None:
    root = bpte_schema.BundledProgram(
        segments=[bpte_schema.DataSegment(0, 16)],
        named_data=[bpte_schema.NamedData("key", 0)],
    )
    data = bytes(encode(root, bpte_schema.BUNDLED_PROGRAM_IDENTIFIER).cord)

    with pytest.raises(cb.FormatError, match="overlaps what stands before it"):
        cb.rewrite(cb.open(data))  # it became a file of a MiB


def test_an_input_without_a_value_is_a_finding() -> None:
    case = bpte_schema.BundledMethodTestCase([bpte_schema.Value(None)])
    root = bpte_schema.BundledProgram(
        method_test_suites=[bpte_schema.BundledMethodTestSuite("forward", [case])]
    )
    data = bytes(encode(root, bpte_schema.BUNDLED_PROGRAM_IDENTIFIER).cord)

    found = {finding.what: finding for finding in cb.open(data).verify()}

    finding = found["forward/0/input 0: value"]
    assert (finding.expected, finding.actual) == ("a tensor or a scalar", "none")


def test_laying_out_a_program_ends_where_its_base_is_inside_a_head_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = schema.Program(execution_plan=[schema.ExecutionPlan(name="f" * 63)], segments=[])
    metadata = encode(root, schema.PROGRAM_IDENTIFIER).cord
    layouts = 0

    def counted(*arguments: Any) -> Layout:
        nonlocal layouts
        layouts += 1
        assert layouts <= 5, "the same two layouts follow each other forever"
        return place(*arguments)

    monkeypatch.setattr(assembly, "place", counted)
    for unused in range(0, 128, 4):  # bytes; one of these sizes is that of the new metadata
        size = len(metadata) + 32 + unused
        header = PROGRAM_HEADER.pack(ExtendedHeader(0, size, 128, size - 128), 32)
        file = cb.open(bytes(flatbuffer_with_header(metadata, header)) + bytes(unused))
        edit = cb.PteEditor(file)
        edit.move_in({"key": b"blob"})

        layouts = 0
        found = cb.open(edit.finish().cord)

        assert isinstance(found, cb.PteFile)
        assert found.named_data["key"] == b"blob"
