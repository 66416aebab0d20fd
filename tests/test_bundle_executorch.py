"""Bundles and ExecuTorch: its runtime runs ours, its reader reads ours, and we read its own."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import (
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.exir import ExecutorchProgramManager, to_edge
from executorch.extension.pybindings.portable_lib import _load_bundled_program_from_buffer

from tests.support import bundle_file

pytestmark = pytest.mark.executorch


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]  # torch is imported at run time
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x: Any, y: Any) -> Any:
        return self.linear(x) + y, x * 2


@pytest.fixture(scope="module")
def manager() -> ExecutorchProgramManager:
    inputs = (torch.zeros(32, 64), torch.zeros(32, 64))
    return to_edge(torch.export.export(Model(), inputs)).to_executorch()


def cases(count: int) -> list[tuple[Any, Any]]:
    torch.manual_seed(1)
    model = Model()
    inputs = [(torch.randn(32, 64), torch.randn(32, 64)) for _ in range(count)]
    return [(given, tuple(out.detach() for out in model(*given))) for given in inputs]


def test_the_runtime_runs_and_verifies_every_case_with_large_tensors_after_the_flatbuffer(
    manager: ExecutorchProgramManager,
) -> None:
    suites = [cb.MethodTestSuite("forward", [cb.MethodTestCase(*case) for case in cases(5)])]
    bundle = cb.bundle(manager, suites)
    assert sum("input" in place.name for place in bundle.layout.placements) == 10
    module = _load_bundled_program_from_buffer(bytes(bundle.cord))
    for number, (_, expected) in enumerate(cases(5)):
        outputs = module.verify_result_with_bundled_expected_output(
            "forward", number, rtol=1e-4, atol=1e-5
        )
        for output, wanted in zip(outputs, expected, strict=True):
            torch.testing.assert_close(output, wanted)


def test_the_runtime_tells_a_wrong_expected_output(manager: ExecutorchProgramManager) -> None:
    ((inputs, (first, second)),) = cases(1)
    wrong = second.clone()
    wrong[31, 63] += 1
    bundle = cb.bundle(
        manager, [cb.MethodTestSuite("forward", [cb.MethodTestCase(inputs, (first, wrong))])]
    )
    module = _load_bundled_program_from_buffer(bytes(bundle.cord))
    with pytest.raises(RuntimeError, match="verification failed"):
        module.verify_result_with_bundled_expected_output("forward", 0)


def test_executorchs_own_reader_decodes_ours(manager: ExecutorchProgramManager) -> None:
    ((inputs, outputs),) = cases(1)
    suites = [cb.MethodTestSuite("forward", [cb.MethodTestCase(inputs, outputs)])]
    for form in ("bp08", "detached"):
        bundle = cb.bundle(manager, suites, form=form)
        decoded = deserialize_from_flatbuffer_to_bundled_program(bytes(bundle.cord))
        assert bytes(decoded.program) == (manager.buffer if form == "bp08" else b"")
        (suite,) = decoded.method_test_suites
        (case,) = suite.test_cases
        stored = [bytes(value.val.data) for value in (*case.inputs, *case.expected_outputs)]
        assert stored == [tensor.numpy().tobytes() for tensor in (*inputs, *outputs)]


def test_a_program_manager_is_taken_by_reference_and_never_joined(
    manager: ExecutorchProgramManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = bytes(cb.Cord(manager.buffer))

    def joined(self: ExecutorchProgramManager) -> bytes:
        raise AssertionError("the program was joined")

    monkeypatch.setattr(ExecutorchProgramManager, "buffer", property(joined))
    assert bundle_file(cb.bundle(manager, [])).program == wanted


def test_what_executorch_bundles_is_read_with_all_its_suites(
    manager: ExecutorchProgramManager,
) -> None:
    given = cases(3)
    theirs = BundledProgram(
        manager, [MethodTestSuite("forward", [MethodTestCase(*case) for case in given])]
    )
    data = serialize_from_bundled_program_to_flatbuffer(theirs)
    file = cb.open(data)
    assert isinstance(file, cb.BundleFile)
    assert (file.form, file.header, file.verify()) == ("bp08", None, [])
    assert file.program == manager.buffer
    for case, (inputs, outputs) in zip(file.suite("forward").test_cases, given, strict=True):
        views = [*case.inputs, *case.expected_outputs]
        for view, tensor in zip(views, [*inputs, *outputs], strict=True):
            assert isinstance(view, cb.TensorView)
            assert torch.equal(view.torch(), tensor)


def test_executorchs_own_suites_are_taken(manager: ExecutorchProgramManager) -> None:
    given = cases(2)
    theirs = [MethodTestSuite("forward", [MethodTestCase(*case) for case in given])]
    ours = [cb.MethodTestSuite("forward", [cb.MethodTestCase(*case) for case in given])]
    assert bytes(cb.bundle(manager, theirs).cord) == bytes(cb.bundle(manager, ours).cord)


def test_public_bundles_of_many_versions_are_read(real_files: Path) -> None:
    with cb.open(real_files / "bundled_program.bpte") as file:
        assert isinstance(file, cb.BundleFile)
        (suite,) = file.suites
        assert (suite.method_name, len(suite.test_cases)) == ("forward", 10)
        assert all(len(case.inputs) == 2 for case in suite.test_cases)
        assert (file.program_offset, len(file.program), file.verify()) == (64, 1696, [])
    with cb.open(real_files / "tutorial_bundled_program.bp") as file:
        assert isinstance(file, cb.BundleFile)
        assert [len(suite.test_cases) for suite in file.suites] == [2]
        assert isinstance(cb.open(file.program), cb.PteFile)


def test_a_public_bundle_made_anew_still_runs(real_files: Path) -> None:
    with cb.open(real_files / "bundled_program.bpte") as file:
        assert isinstance(file, cb.BundleFile)
        again = cb.bundle(file.program, file.suites)
    module = _load_bundled_program_from_buffer(bytes(again.cord))
    for number in range(10):
        assert len(module.verify_result_with_bundled_expected_output("forward", number)) == 1


def test_errors_can_be_pickled_back_to_a_parent_process() -> None:
    error = cb.TruncatedError("cut", source="f", offset=3, expected=4, actual=2)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offset, again.expected) == (str(error), 3, 4)
