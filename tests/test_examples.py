"""The examples: read and bundled by the core, reproduced and verified by ExecuTorch."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle.cases import CaseFileCase, read_case_files

CASE_FILES = {
    "conv_xnnpack.pte": ["conv_xnnpack.npz"],
    "counter.pte": ["counter.npz"],
    "dynamic.pte": ["dynamic.npz"],
    "mlp.pte": ["mlp-0.npz", "mlp-1.npz", "mlp-2.npz"],
    "scalars.pte": ["scalars.npz"],
    "two_methods.pte": ["two_methods.safetensors"],
}
CASES = {
    "conv_xnnpack.pte": {"forward": 2},
    "counter.pte": {"forward": 2},
    "dynamic.pte": {"forward": 4},
    "mlp.pte": {"forward": 3},
    "scalars.pte": {"forward": 2},
    "two_methods.pte": {"decode": 2, "encode": 2},
}
PROGRAMS = sorted(CASE_FILES)


def scalar(view: cb.TensorView) -> int | float | bool:
    """Return the only value of a tensor of rank 0."""
    code = view.scalar_type.format
    assert code is not None
    value: int | float | bool = struct.unpack(f"<{code}", bytes(view.cord))[0]
    return value


def suites(examples: Path, name: str) -> list[cb.MethodTestSuite]:
    """Return the cases of an example, with scalars where the method takes them."""
    groups: dict[str, list[CaseFileCase]] = {}
    for case in read_case_files([examples / file for file in CASE_FILES[name]]):
        groups.setdefault(case.method or "forward", []).append(case)
    with cb.open(examples / name) as program:
        assert isinstance(program, cb.PteFile)
        kinds = {method: program.methods[method].inputs for method in groups}

    def inputs(case: CaseFileCase, method: str) -> Iterator[object]:
        for value, kind in zip(case.inputs, kinds[method], strict=True):
            yield scalar(value) if isinstance(kind, cb.ValueSpec) else value

    return [
        cb.MethodTestSuite(
            method,
            [cb.MethodTestCase(list(inputs(case, method)), case.outputs) for case in cases],
        )
        for method, cases in groups.items()
    ]


def plain(values: tuple[object, ...]) -> list[object]:
    """Return values with tensors as their facts, for comparison."""
    return [
        (value.scalar_type, value.sizes, bytes(value.cord))
        if isinstance(value, cb.TensorView)
        else (type(value), value)
        for value in values
    ]


def test_every_program_of_the_folder_has_cases_and_the_folder_is_small(examples: Path) -> None:
    files = {path.name for path in examples.iterdir() if path.suffix in (".npz", ".safetensors")}

    assert sorted(path.name for path in examples.glob("*.pte")) == PROGRAMS
    assert files == {file for files in CASE_FILES.values() for file in files}
    assert sum(path.stat().st_size for path in examples.iterdir() if path.is_file()) < 100_000


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_case_files_hold_the_cases_of_every_method(examples: Path, name: str) -> None:
    with cb.open(examples / name) as program:
        assert isinstance(program, cb.PteFile)
        methods = set(program.methods)

    found = {suite.method_name: len(suite.test_cases) for suite in suites(examples, name)}

    assert found == CASES[name]
    assert methods == set(found)


@pytest.mark.parametrize("form", ["bp08", "segmented"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_bundled_example_gives_program_and_cases_back(
    examples: Path, tmp_path: Path, name: str, form: str
) -> None:
    given = suites(examples, name)
    target = tmp_path / "bundle.bpte"

    cb.bundle(examples / name, given, form=form).write(target)  # type: ignore[arg-type]

    with cb.open(target) as file:
        assert isinstance(file, cb.BundleFile)
        assert file.verify() == []
        assert bytes(file.program) == (examples / name).read_bytes()
        assert [suite.method_name for suite in file.suites] == [s.method_name for s in given]
        for read, suite in zip(file.suites, given, strict=True):
            for found, case in zip(read.test_cases, suite.test_cases, strict=True):
                if name != "conv_xnnpack.pte":  # whose tensors are gathered into channels-last
                    assert plain(found.inputs) == plain(case.inputs)
                    assert plain(found.expected_outputs) == plain(case.expected_outputs)


def test_row_major_case_files_are_gathered_into_a_channels_last_method(examples: Path) -> None:
    given = suites(examples, "conv_xnnpack.pte")

    bundle = cb.bundle(examples / "conv_xnnpack.pte", given)

    with cb.open(bundle.cord) as file:
        assert isinstance(file, cb.BundleFile)
        stored = file.suites[0].test_cases[0].inputs[0]
    original = given[0].test_cases[0].inputs[0]
    assert isinstance(stored, cb.TensorView)
    assert isinstance(original, cb.TensorView)
    assert (stored.sizes, stored.dim_order) == ((1, 3, 8, 8), (0, 2, 3, 1))
    planes = [bytes(original.cord)[256 * c : 256 * (c + 1)] for c in range(3)]
    pixels = [plane[4 * i : 4 * i + 4] for i in range(64) for plane in planes]
    assert bytes(stored.cord) == b"".join(pixels)


@pytest.mark.executorch
def test_the_script_makes_the_programs_of_the_folder(examples: Path, tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    script = examples / "make_examples.py"

    run = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr
    made = {path.name: path.read_bytes() for path in tmp_path.glob("*.pte")}
    assert made == {name: (examples / name).read_bytes() for name in PROGRAMS}
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".pte") == sorted(
        file for files in CASE_FILES.values() for file in files
    )


@pytest.mark.executorch
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_runtime_verifies_every_case_of_a_bundled_example(examples: Path, name: str) -> None:
    runtime = pytest.importorskip("executorch.extension.pybindings.portable_lib")
    given = {suite.method_name: suite for suite in suites(examples, name)}
    bundle = bytes(cb.bundle(examples / name, given.values()).cord)

    for method, count in CASES[name].items():
        for index in range(count):
            # Loaded afresh for each case: state in buffers outlives a run.
            bundled = runtime._load_bundled_program_from_buffer(bundle)
            outputs = bundled.verify_result_with_bundled_expected_output(method, index)

            assert len(outputs) == len(given[method].test_cases[index].expected_outputs)
