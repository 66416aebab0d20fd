"""Bundled programs in ExecuTorch's terms: its exact bytes, with the program by reference."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb

pytestmark = pytest.mark.executorch

if find_spec("executorch") is None or find_spec("torch") is None:
    pytest.skip("ExecuTorch and PyTorch are not installed", allow_module_level=True)

import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program import core
from executorch.devtools.bundled_program import serialize as originals
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.util.test_util import get_common_executorch_program

import cordbundle.executorch as ours
from tests.executorch_models import manager
from tests.executorch_suite.originals import forbidden


def tensors() -> list[Any]:
    """Return tensors in every kind of memory."""
    torch.manual_seed(0)
    image = torch.randn(2, 3, 4, 5)
    return [
        torch.randn(3, 2),
        torch.randn(3, 2).t(),
        image.contiguous(memory_format=torch.channels_last),
        image[:, 1:, :, ::2],
        torch.ones(1, 3, 1, 1).to(memory_format=torch.channels_last),
        torch.randn(4)[1:3],
        torch.tensor(7),
        torch.ones(0, 3),
        torch.ones(3).expand(2, 3),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.ones(2, requires_grad=True),
    ]


def bundled(inputs: list[Any], outputs: list[Any] | None, path: Path) -> Any:
    """Return a bundled program that ExecuTorch does not check."""
    path.write_bytes(manager("linear").buffer)
    suites = [
        MethodTestSuite("zeta", []),
        MethodTestSuite("forward", [MethodTestCase(inputs, outputs)] * 2),
    ]
    return BundledProgram(None, suites, str(path))


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([1, -(2**63), True, False, 0], None, id="integers"),
        pytest.param([0.5, math.inf, -math.inf, -0.0, 1e-310], None, id="floats"),
        pytest.param(tensors(), tensors(), id="tensors"),
    ],
)
def test_a_bundle_has_executorchs_bytes(
    inputs: list[Any], outputs: list[Any] | None, tmp_path: Path
) -> None:
    expected = originals.serialize_from_bundled_program_to_flatbuffer(
        bundled(inputs, outputs, tmp_path / "m.pte")
    )

    with forbidden():
        found = ours.serialize_from_bundled_program_to_flatbuffer(
            bundled(inputs, outputs, tmp_path / "m.pte")
        )

    assert type(found) is bytes
    assert found == expected


def test_the_program_of_a_manager_goes_by_reference_without_its_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, suites = get_common_executorch_program()
    expected = originals.serialize_from_bundled_program_to_flatbuffer(
        BundledProgram(program, suites)
    )
    fresh, suites = get_common_executorch_program()
    given = BundledProgram(fresh, suites)
    monkeypatch.setattr(BundledProgram, "serialize_to_schema", None)

    with forbidden():
        cord = ours.bundled_program_cord(given)

    assert bytes(cord) == expected
    assert fresh._buffer is None
    assert given._bundled_program_in_schema is None


def test_a_program_file_goes_by_reference_after_a_prefix_of_64_bytes(tmp_path: Path) -> None:
    path = tmp_path / "large.pte"
    data = manager("linear").buffer.ljust(100_000, b"\0")
    path.write_bytes(data)
    given = BundledProgram(None, [], str(path))

    cord = ours.bundled_program_cord(given)

    assert bytes(cord[64 : 64 + len(data)]) == data
    report = cb.write(cord, tmp_path / "large.bpte", durability="none")
    assert sum(report.transfers.get(way, 0) for way in ("file", "kernel", "clone")) == len(data)


def test_what_executorch_has_cached_and_somebody_changed_is_what_is_written(tmp_path: Path) -> None:
    given = bundled([torch.ones(2), 3], [torch.ones(1)], tmp_path / "m.pte")
    given.serialize_to_schema().method_test_suites[0].method_name = "changed"
    expected = originals.serialize_from_bundled_program_to_flatbuffer(given)

    with forbidden():
        found = bytes(ours.bundled_program_cord(given))

    assert found == expected
    assert b"changed" in expected


def test_the_version_is_executorchs_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = bundled([], None, tmp_path / "m.pte")
    monkeypatch.setattr(core, "BUNDLED_PROGRAM_SCHEMA_VERSION", 77)

    data = ours.serialize_from_bundled_program_to_flatbuffer(given)

    assert ours.deserialize_from_flatbuffer_to_bundled_program(data).version == 77


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        pytest.param(
            [], [3], "case 0, expected output 0: .*found int, expected a tensor", id="out"
        ),
        pytest.param([2**63], None, "9223372036854775808", id="large"),
    ],
)
def test_what_no_bundle_can_hold_is_refused(
    inputs: list[Any], outputs: Any, text: str, tmp_path: Path
) -> None:
    with pytest.raises((cb.CaseMismatchError, cb.LayoutError), match=text):
        ours.bundled_program_cord(bundled(inputs, outputs, tmp_path / "m.pte"))


# Reading -------------------------------------------------------------------------------------


def test_a_bundle_is_read_into_equal_records(tmp_path: Path) -> None:
    inputs = [*tensors(), 3, True, 0.1]
    data = ours.serialize_from_bundled_program_to_flatbuffer(
        bundled(inputs, tensors(), tmp_path / "m.pte")
    )
    expected = originals.deserialize_from_flatbuffer_to_bundled_program(data)

    with forbidden():
        found = ours.deserialize_from_flatbuffer_to_bundled_program(data)

    assert found == expected
    value = found.method_test_suites[0].test_cases[0].inputs[0].val
    assert type(value.scalar_type) is type(
        expected.method_test_suites[0].test_cases[0].inputs[0].val.scalar_type
    )
    assert type(value.data) is type(found.program) is bytes


def test_executorch_rounds_floats_and_fails_on_infinities_and_we_read_what_is_there(
    tmp_path: Path,
) -> None:
    def read(value: float, function: Any) -> Any:
        data = ours.serialize_from_bundled_program_to_flatbuffer(
            bundled([value], None, tmp_path / "m.pte")
        )
        return function(data).method_test_suites[0].test_cases[0].inputs[0].val.double_val

    theirs = originals.deserialize_from_flatbuffer_to_bundled_program
    assert read(math.pi, theirs) == 3.14159265359
    with pytest.raises(ValueError, match="Expecting value"):
        read(math.inf, theirs)
    for value in (math.pi, math.inf, -math.inf):
        assert read(value, ours.deserialize_from_flatbuffer_to_bundled_program) == value


def test_our_own_bundle_is_read_as_executorch_reads_it() -> None:
    case = cb.MethodTestCase([torch.ones(2, 4)])
    bundle = bytes(cb.bundle(manager("linear"), [cb.MethodTestSuite("forward", [case])]).cord)

    with forbidden():
        found = ours.deserialize_from_flatbuffer_to_bundled_program(bundle)

    assert found == originals.deserialize_from_flatbuffer_to_bundled_program(bundle)


def test_a_segmented_bundle_is_refused() -> None:
    bundle = cb.bundle(manager("linear"), [], form="segmented")

    with pytest.raises(cb.UnsupportedVersionError, match="segmented"):
        ours.deserialize_from_flatbuffer_to_bundled_program(bundle.cord)


def test_a_bundle_cut_anywhere_is_an_error_from_the_tree(tmp_path: Path) -> None:
    data = ours.serialize_from_bundled_program_to_flatbuffer(
        bundled([torch.ones(2), 3], None, tmp_path / "m.pte")
    )

    for size in range(0, len(data), 7):
        with pytest.raises(cb.FormatError):
            ours.deserialize_from_flatbuffer_to_bundled_program(data[:size])
