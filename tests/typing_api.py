"""The types of the main entry points, as a user's checker sees them.

Nothing here runs: `mypy` reads it with the tests, and fails where a type is another one or where a
call that is marked as wrong is no longer refused.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import cordbundle as cb
from cordbundle import program as schema

if TYPE_CHECKING:
    import io

    from typing_extensions import assert_type


def cords(cord: cb.Cord) -> None:
    assert_type(cb.Cord(b"abc"), cb.Cord)
    assert_type(cb.Cord.from_file(Path("a"), 1, 2), cb.Cord)
    assert_type(cord[0], int)
    assert_type(cord[1:2], cb.Cord)
    assert_type(cord + b"abc", cb.Cord)
    assert_type(b"abc" + cord, cb.Cord)
    assert_type(len(cord), int)
    assert_type(bytes(cord), bytes)
    assert_type(cord.chunks(), Iterator[memoryview])
    assert_type(cord.parts(1), Iterator[cb.Cord])
    assert_type(cord.open(), "io.BufferedReader")
    assert_type(cord.xxh3_128(), bytes)
    assert_type(cord.try_flat(), memoryview | None)
    cb.Cord("text")  # type: ignore[arg-type]


def writing(cord: cb.Cord, path: Path, file: io.BytesIO) -> None:
    assert_type(cb.write(cord, path, durability="dir"), cb.WriteReport)
    assert_type(cb.write(cord, file, progress=lambda done, total: None), cb.WriteReport)
    assert_type(cb.write(cord, 1).transfers, Mapping[str, int])
    assert_type(cb.write_all({path: cord}), dict[Path, cb.WriteReport])
    assert_type(cb.write_all({"a": cord}), dict[str, cb.WriteReport])
    cb.write(cord, path, durability="disk")  # type: ignore[arg-type]
    cb.write(cord, path, "dir")  # type: ignore[call-arg]


def bundling(path: Path) -> None:
    suites = [cb.MethodTestSuite("forward", [cb.MethodTestCase([1.5])])]
    bundle = cb.bundle(path, suites, form="detached")
    assert_type(bundle, cb.Bundle)
    assert_type(bundle.cord, cb.Cord)
    assert_type(bundle.layout, cb.Layout)
    assert_type(bundle.notes, tuple[str, ...])
    assert_type(bundle.write(path), cb.WriteReport)
    cb.bundle(path, suites, form="zip")  # type: ignore[arg-type]


def reading(path: Path) -> None:
    with cb.open(path) as file:
        assert_type(file, cb.PteFile | cb.PtdFile | cb.BundleFile)
        assert_type(file.verify(), list[cb.Finding])
        if isinstance(file, cb.BundleFile):
            assert_type(file.suites, tuple[cb.MethodTestSuite, ...])
            assert_type(file.suite("forward").test_cases[0].inputs[0], object)
            assert_type(file.program, cb.Cord)
            assert_type(file.named_data, Mapping[str, cb.Cord])
        elif isinstance(file, cb.PteFile):
            assert_type(file.methods, Mapping[str, cb.Method])
            assert_type(file.methods["forward"].inputs[0], cb.TensorSpec | cb.ValueSpec)
            assert_type(file.segments, tuple[cb.Cord, ...])
            assert_type(file.program(), schema.Program)
        else:
            assert_type(file, cb.PtdFile)
            assert_type(file["a"], cb.TensorView | cb.Cord)
            assert_type(file.keys(), KeysView[str])


def serializing(path: Path, array: memoryview) -> None:
    assert_type(cb.serialize_pte(schema.Program()), cb.Cord)
    assert_type(cb.serialize_ptd({"a": array, "b": path}), cb.Cord)
    assert_type(cb.save_ptd({"a": array}, path), cb.WriteReport)
    assert_type(cb.load_ptd(path), dict[str, cb.TensorView | cb.Cord])
    assert_type(cb.ptd_from_safetensors(path), cb.Cord)
    assert_type(cb.ptd_from_safetensors([path], max_bytes=1), tuple[cb.Cord, ...])
