"""`cordbundle run`: cases on the real ExecuTorch runtime."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle.cli import main

pytest.importorskip("typer", reason="the command line needs the extra cli")
np = pytest.importorskip("numpy", reason="the command line needs the extra cli")
torch = pytest.importorskip("torch", reason="needs PyTorch")
runtime = pytest.importorskip(
    "executorch.extension.pybindings._C", reason="needs the ExecuTorch runtime"
)

from cordbundle.cli._compare import compare
from cordbundle.cli._runner import _tensor

pytestmark = pytest.mark.executorch

EXAMPLES = {
    "mlp": ["mlp-0.npz", "mlp-1.npz", "mlp-2.npz"],
    "two_methods": ["two_methods.safetensors"],
    "dynamic": ["dynamic.npz"],
    "counter": ["counter.npz"],
    "scalars": ["scalars.npz"],
    "conv_xnnpack": ["conv_xnnpack.npz"],
}
CASES = {
    "mlp": 3,
    "two_methods": 4,
    "dynamic": 4,
    "counter": 2,
    "scalars": 2,
    "conv_xnnpack": 2,
}


@dataclass(frozen=True)
class Outcome:
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str


Call = Callable[..., Outcome]


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Return a function that calls the command line in this process; its child is another."""

    def caller(*words: str | Path) -> Outcome:
        code = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return caller


@pytest.fixture
def bundled(call: Call, examples: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that bundles an example in a folder of its own."""

    def bundler(name: str, *words: str | Path) -> Path:
        out = tmp_path / f"{name}.bpte"
        cases = [examples / case for case in EXAMPLES[name]]
        outcome = call("bundle", examples / f"{name}.pte", *cases, "-o", out, *words)
        assert outcome.code == 0, outcome.err
        return out

    return bundler


def results(outcome: Outcome) -> list[list[str]]:
    """Return the rows of the table of results, split at spaces."""
    lines = outcome.out.splitlines()
    return [line.split() for line in lines if line.startswith("  ") and "/" in line.split()[0]]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_case_of_every_example_runs_and_matches(
    call: Call, bundled: Callable[..., Path], name: str
) -> None:
    bundle = bundled(name)
    before = sorted(bundle.parent.iterdir())

    outcome = call("run", bundle)

    assert outcome.code == 0, outcome.out
    assert outcome.err == ""
    assert outcome.out.splitlines()[-1] == f"{CASES[name]} cases: {CASES[name]} matched"
    assert {row[-1] for row in results(outcome)} == {"matched"}
    assert sorted(bundle.parent.iterdir()) == before  # the copy of the program is gone


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_runtime_itself_verifies_what_the_command_line_bundled(
    bundled: Callable[..., Path], name: str
) -> None:
    path = bundled(name)
    with cb.open(path) as bundle:
        assert isinstance(bundle, cb.BundleFile)
        cases = [
            (suite.method_name, number)
            for suite in bundle.suites
            for number in range(len(suite.test_cases))
        ]

    verified = []
    for method, number in cases:  # a fresh module for each, since buffers keep state
        module = runtime._load_bundled_program_from_buffer(path.read_bytes())
        module.verify_result_with_bundled_expected_output(method, number)  # raises on a mismatch
        verified.append((method, number))
    assert len(verified) == CASES[name]


@pytest.mark.parametrize("form", ["segmented", "detached"])
def test_other_forms_run_too(
    call: Call, bundled: Callable[..., Path], examples: Path, form: str
) -> None:
    bundle = bundled("mlp", "--form", form)

    outcome = call("run", bundle, "--program", examples / "mlp.pte")

    assert outcome.code == 0
    assert outcome.out.splitlines()[-1] == "3 cases: 3 matched"


def test_a_detached_bundle_needs_its_program(call: Call, bundled: Callable[..., Path]) -> None:
    outcome = call("run", bundled("mlp", "--form", "detached"))

    assert outcome.code == 2
    assert "say --program MODEL.pte" in outcome.err


def test_a_mismatch_is_code_1_with_its_errors(call: Call, examples: Path, tmp_path: Path) -> None:
    case = tmp_path / "off.npz"
    with np.load(examples / "mlp-0.npz") as arrays:
        wrong = arrays["outputs.0"].copy()
        wrong[0, 2] += 0.25
        np.savez(case, **{"inputs.0": arrays["inputs.0"], "outputs.0": wrong})
    out = tmp_path / "off.bpte"
    call("bundle", examples / "mlp.pte", examples / "mlp-1.npz", case, "-o", out)

    module = runtime._load_bundled_program_from_buffer(out.read_bytes())
    with pytest.raises(RuntimeError, match="verification failed"):
        module.verify_result_with_bundled_expected_output("forward", 1)
    strict = call("run", out)
    loose = call("run", out, "--atol", "0.3")

    first, second = results(strict)
    assert strict.code == 1
    assert first[-1] == "matched"
    assert second[:6] == ["forward/1", "0", "FLOAT", "[1,", "4]", "0.25"]
    assert " ".join(second[7:]) == "mismatched: 1 of 4 elements out of tolerance"
    assert strict.out.splitlines()[-1] == "2 cases: 1 matched, 1 mismatched"
    assert loose.code == 0
    assert loose.out.splitlines()[-1] == "2 cases: 2 matched"


def test_a_case_without_expected_outputs_is_run_and_not_compared(
    call: Call, examples: Path, tmp_path: Path
) -> None:
    case = tmp_path / "inputs.npz"
    np.savez(case, **{"inputs.0": np.zeros((1, 8), np.float32)})
    out = tmp_path / "out.bpte"
    call("bundle", examples / "mlp.pte", case, "-o", out)

    outcome = call("run", out)

    assert outcome.code == 0
    assert results(outcome) == [["forward/0", "0", "FLOAT", "[1,", "4]", "not", "compared"]]
    assert outcome.out.splitlines()[-1] == "1 case: 1 not compared"


def test_one_method_may_be_run_alone(call: Call, bundled: Callable[..., Path]) -> None:
    bundle = bundled("two_methods")

    outcome = call("run", bundle, "--method", "encode")
    misspelled = call("run", bundle, "--method", "encod")

    assert outcome.code == 0
    assert [row[0] for row in results(outcome)] == ["encode/0", "encode/1"]
    assert misspelled.code == 2
    assert "no cases for 'encod'; it has 'decode', 'encode'" in misspelled.err


def test_what_the_runtime_refuses_fails_with_its_words(
    call: Call, examples: Path, tmp_path: Path
) -> None:
    case = tmp_path / "double.npz"
    np.savez(case, **{"inputs.0": np.zeros((1, 8), np.float64)})
    out = tmp_path / "out.bpte"
    call("bundle", examples / "mlp.pte", case, examples / "mlp-0.npz", "--no-check", "-o", out)

    outcome = call("run", out)

    assert outcome.code == 1
    assert "FAILED: method->set_inputs() for method 'forward' failed" in outcome.out
    assert "unexpected scalar type: expected Float but was Double" in outcome.out
    assert outcome.out.splitlines()[-1] == "2 cases: 1 failed, 1 matched"


def test_each_of_many_failures_has_its_own_words(
    call: Call, examples: Path, tmp_path: Path
) -> None:
    cases = [tmp_path / f"{number}.npz" for number in range(60)]
    for case in cases:
        np.savez(case, **{"inputs.0": np.zeros((1, 8), np.float64)})
    out = tmp_path / "out.bpte"
    call("bundle", examples / "mlp.pte", *cases, "--no-check", "-o", out)

    outcome = call("run", out)

    lines = outcome.out.splitlines()
    words = "unexpected scalar type: expected Float but was Double"
    assert sum(words in line for line in lines) == len(cases)
    assert sum(line.endswith("the runtime's last words:") for line in lines) == len(cases)


def test_a_runtime_that_dies_is_reported_and_the_next_case_is_run(
    call: Call, examples: Path, tmp_path: Path
) -> None:
    program = bytearray((examples / "mlp.pte").read_bytes())
    metadata_end = struct.unpack_from("<Q", program, 16)[0]
    words = (metadata_end - 72) // 4
    program[72 : 72 + 4 * words] = b"\xff\xff\xff\x7f" * words  # offsets that lead anywhere
    (tmp_path / "damaged.pte").write_bytes(program)
    case = cb.MethodTestCase([np.zeros((1, 8), np.float32)])
    out = tmp_path / "out.bpte"
    suite = cb.MethodTestSuite("forward", [case, case])
    cb.bundle(tmp_path / "damaged.pte", [suite], check=False).write(out)
    before = sorted(tmp_path.iterdir())

    outcome = call("run", out)

    assert outcome.code == 1
    rows = [" ".join(row) for row in results(outcome)]
    for number, row in enumerate(rows):
        assert re.fullmatch(
            rf"forward/{number} FAILED: the runtime died of SIG(SEGV|BUS|ABRT)", row
        )
    assert len(rows) == 2
    assert outcome.out.splitlines()[-1] == "2 cases: 2 failed"
    assert outcome.err == ""
    assert sorted(tmp_path.iterdir()) == before


def test_another_number_of_outputs_is_a_failure(call: Call, examples: Path, tmp_path: Path) -> None:
    zeros = np.zeros((1, 4), np.float32)
    case = cb.MethodTestCase([np.zeros((1, 8), np.float32)], [zeros, zeros])
    out = tmp_path / "out.bpte"
    cb.bundle(examples / "mlp.pte", [cb.MethodTestSuite("forward", [case])], check=False).write(out)

    outcome = call("run", out)

    assert outcome.code == 1
    assert "FAILED: the method gives 1 outputs, the case expects 2" in outcome.out


@pytest.mark.parametrize("where", ["named", "option"])
def test_external_weights_come_from_the_bundle_or_the_option(
    call: Call, real_files: Path, tmp_path: Path, where: str
) -> None:
    case, out = tmp_path / "case.npz", tmp_path / "xor.bpte"
    np.savez(case, **{"inputs.0": np.zeros((1, 2), np.float32), "inputs.1": np.zeros(1, np.int64)})
    weights = real_files / "xor.ptd"
    named = ["--named", f"weights={weights}"] if where == "named" else []
    call("bundle", real_files / "xor.pte", case, "--method", "forward", *named, "-o", out)

    without = call("run", out)
    outcome = call("run", out, *(["--data", weights] if where == "option" else []))

    assert outcome.code == 0, outcome.out
    assert len(results(outcome)) == 10
    assert without.code == (0 if where == "named" else 1)


@pytest.mark.parametrize("where", ["named", "option"])
def test_several_weights_files_are_merged_for_the_runtime(
    call: Call, real_files: Path, tmp_path: Path, where: str
) -> None:
    case, out = tmp_path / "case.npz", tmp_path / "xor.bpte"
    np.savez(case, **{"inputs.0": np.zeros((1, 2), np.float32), "inputs.1": np.zeros(1, np.int64)})
    tensors = cb.load_ptd(real_files / "xor.ptd")
    parts = [tmp_path / "even.ptd", tmp_path / "odd.ptd"]
    for number, part in enumerate(parts):
        chosen = {key: tensors[key] for key in list(tensors)[number::2]}
        cb.write(cb.serialize_ptd(chosen), part)
    words = [f"--named={part.stem}={part}" for part in parts] if where == "named" else []
    call("bundle", real_files / "xor.pte", case, "--method", "forward", *words, "-o", out)
    before = sorted(tmp_path.iterdir())

    data = [f"--data={part}" for part in parts] if where == "option" else []
    outcome = call("run", out, *data)

    assert outcome.code == 0, outcome.out
    assert len(results(outcome)) == 10
    assert sorted(tmp_path.iterdir()) == before  # the merged file is gone


def test_weights_files_that_share_a_key_are_refused_with_both_names(
    call: Call, real_files: Path, bundled: Callable[..., Path]
) -> None:
    weights = real_files / "xor.ptd"
    bundle = bundled("mlp", "--named", f"a={weights}", "--named", f"b={weights}")

    by_option = call("run", bundle, "--data", weights, "--data", weights)
    by_bundle = call("run", bundle)

    assert by_option.code == by_bundle.code == 1
    assert f"stands twice in {weights}" in by_option.err
    assert f"stands in {bundle}: 'a' and in {bundle}: 'b'" in by_bundle.err


@pytest.mark.parametrize("option", ["--program", "--data"])
def test_a_file_of_another_kind_is_refused_before_anything_runs(
    call: Call, bundled: Callable[..., Path], option: str
) -> None:
    bundle = bundled("mlp")

    outcome = call("run", bundle, option, bundle)

    assert outcome.code == 1
    assert "bundled program (.bpte)" in outcome.err


def test_run_wants_a_bundle(call: Call, examples: Path) -> None:
    outcome = call("run", examples / "mlp.pte")

    assert outcome.code == 1
    assert outcome.err.startswith(f"cordbundle: error: {examples / 'mlp.pte'}: no bundle")


def test_a_bundle_without_cases_has_nothing_to_run(
    call: Call, examples: Path, tmp_path: Path
) -> None:
    model = shutil.copy(examples / "mlp.pte", tmp_path)
    call("bundle", model)

    outcome = call("run", tmp_path / "mlp.bpte")

    assert (outcome.code, outcome.out) == (0, f"{tmp_path / 'mlp.bpte'}: no cases\n")


def test_the_child_imports_nothing_from_the_working_folder(
    call: Call, bundled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundled("mlp")
    (bundle.parent / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(bundle.parent)

    assert call("run", bundle).code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are no UTF-8")
@pytest.mark.parametrize("of_its_own", [False, True])
def test_paths_that_are_no_utf8_reach_the_runtime(
    bundled: Callable[..., Path], tmp_path: Path, of_its_own: bool
) -> None:
    folder = tmp_path / os.fsdecode(b"line\nbreak\xff")
    folder.mkdir()
    bundle = bundled("mlp").rename(folder / os.fsdecode(b"\xfe.bpte"))
    model = folder / os.fsdecode(b"\xfd.pte")
    with cb.open(bundle) as file:
        assert isinstance(file, cb.BundleFile)
        cb.write(file.program, model)

    code = main(["run", str(bundle), *(["--program", str(model)] if of_its_own else [])])

    assert code == 0
    assert sorted(folder.iterdir()) == sorted([bundle, model])


@pytest.mark.skipif(sys.platform != "linux", reason="counts bytes of a name")
def test_a_bundle_may_have_the_longest_name_there_is(
    call: Call, bundled: Callable[..., Path]
) -> None:
    bundle = bundled("mlp")
    longest = bundle.rename(bundle.with_name("n" * 250 + ".bpte"))

    assert call("run", longest).code == 0


def test_the_number_of_cases_is_not_bounded_by_a_command_line(
    call: Call, tmp_path: Path, examples: Path
) -> None:
    model = examples / "mlp.pte"
    case = cb.MethodTestCase([memoryview(bytes(32)).cast("f", (1, 8))])
    out = tmp_path / "many.bpte"
    cb.bundle(model, [cb.MethodTestSuite("forward", [case] * 15_000)]).write(out)

    outcome = call("run", out)

    assert outcome.code == 0, outcome.err
    assert outcome.out.endswith("15000 cases: 15000 not compared\n")


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_run_that_is_told_to_end_leaves_nothing_behind(bundled: Callable[..., Path]) -> None:
    bundle = bundled("mlp")
    before = sorted(bundle.parent.iterdir())
    with subprocess.Popen(
        [sys.executable, "-m", "cordbundle", "run", bundle],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        while running.poll() is None and sorted(bundle.parent.iterdir()) == before:
            time.sleep(0.01)
        copied = sorted(bundle.parent.iterdir())
        running.terminate()
        out, err = running.communicate()

    assert len(copied) == len(before) + 1
    assert running.returncode == 128 + signal.SIGTERM
    assert (out, err) == (b"", b"")
    assert sorted(bundle.parent.iterdir()) == before


@pytest.mark.parametrize("missing", ["executorch", "torch"])
def test_without_executorch_it_says_what_to_install(
    bundled: Callable[..., Path], missing: str
) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from cordbundle.cli import main; sys.exit(main(['run', {str(bundled('mlp'))!r}]))"
    )

    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert outcome.returncode == 2
    assert outcome.stderr == (
        f"cordbundle: error: run needs {missing}; run: pip install 'cordbundle[executorch]'\n"
    )


def test_what_the_runtime_prints_does_not_mix_with_the_results(
    bundled: Callable[..., Path], examples: Path
) -> None:
    code = (
        "import os; from cordbundle.cli import _runner; load = _runner._runtime\n"
        "_runner._runtime = lambda: (os.write(1, b'chatter'), load())[1]\n"
        "_runner.main()"
    )
    request = {
        "bundle": str(bundled("mlp")),
        "program": str(examples / "mlp.pte"),
        "data": None,
        "cases": [[0, 0], [0, 2]],
        "rtol": 1e-5,
        "atol": 1e-8,
    }

    child = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
    )

    results = [json.loads(line) for line in child.stdout.splitlines()]
    assert [result["outputs"][0]["verdict"] for result in results] == ["matched", "matched"]
    assert "chatter" in child.stderr


def test_kernels_in_libraries_of_their_own_are_loaded_when_needed() -> None:
    code = (
        "from cordbundle.cli._runner import _load_kernels, _runtime\n"
        "runtime = _runtime(); name = 'quantized_decomposed::add.out'\n"
        "_load_kernels(runtime, ['aten::add.out']); print(name in runtime._get_operator_names())\n"
        "_load_kernels(runtime, [name]); print(name in runtime._get_operator_names())"
    )

    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert outcome.stdout.split() == ["False", "True"]


# how outputs are compared


def view(values: object, dtype: str = "float32") -> cb.TensorView:
    """Return an expected output."""
    array = np.asarray(values, dtype)
    kind = {
        "float16": cb.ScalarType.HALF,
        "float32": cb.ScalarType.FLOAT,
        "float64": cb.ScalarType.DOUBLE,
        "int64": cb.ScalarType.LONG,
    }[dtype]
    return cb.TensorView(kind, array.shape, None, cb.Cord(array.tobytes()))


@pytest.mark.parametrize(
    ("expected", "actual", "verdict"),
    [
        (1.0, 1.0, "matched"),
        (1.0, 1.0 + 9e-6, "matched"),
        (1.0, 1.0 + 1.2e-5, "mismatched"),
        (0.0, 9e-9, "matched"),
        (0.0, 1.1e-8, "mismatched"),
        (math.nan, math.nan, "matched"),
        (math.nan, 1.0, "mismatched"),
        (1.0, math.nan, "mismatched"),
        (math.inf, math.inf, "matched"),
        (-math.inf, -math.inf, "matched"),
        (math.inf, -math.inf, "mismatched"),
        (math.nan, -math.inf, "mismatched"),
        (math.inf, 3e38, "mismatched"),
        (0.0, -0.0, "matched"),
        (3e38, -3e38, "mismatched"),
    ],
)
def test_floats_are_compared_within_the_tolerances(
    expected: float, actual: float, verdict: str
) -> None:
    comparison = compare(view([expected]), torch.tensor([actual]), 1e-5, 1e-8)

    assert comparison["verdict"] == verdict


def test_the_tolerance_is_relative_to_what_the_method_gave() -> None:
    larger = compare(view([100.0], "float64"), torch.tensor([111.0]).double(), 0.1, 0.0)
    smaller = compare(view([111.0], "float64"), torch.tensor([100.0]).double(), 0.1, 0.0)

    assert (larger["verdict"], smaller["verdict"]) == ("matched", "mismatched")


def test_without_tolerances_only_equal_floats_match() -> None:
    equal = compare(view([0.1, -0.0]), torch.tensor([0.1, 0.0]), 0.0, 0.0)
    off = compare(view([0.1, -0.0]), torch.tensor([0.1, 1e-45]), 0.0, 0.0)

    assert (equal["verdict"], off["verdict"]) == ("matched", "mismatched")


def test_half_floats_are_compared_within_the_tolerances() -> None:
    expected = view([1.0, 2.0], "float16")
    actual = torch.tensor([1.0, 2.002], dtype=torch.float16)

    assert compare(expected, actual, 1e-3, 0.0)["verdict"] == "matched"
    assert compare(expected, actual, 1e-4, 0.0)["verdict"] == "mismatched"


def test_the_difference_of_half_floats_does_not_overflow() -> None:
    actual = torch.tensor([-60000.0], dtype=torch.float16)

    comparison = compare(view([60000.0], "float16"), actual, 0.0, 130000.0)

    assert comparison["verdict"] == "matched"


def test_other_types_are_compared_bit_by_bit() -> None:
    integers = compare(view([1, 2], "int64"), torch.tensor([1, 3]), 1.0, 10.0)
    zero = cb.TensorView(cb.ScalarType.BFLOAT16, (1,), None, cb.Cord(b"\x00\x80"))
    signs = compare(zero, torch.zeros(1, dtype=torch.bfloat16), 1.0, 10.0)

    assert integers["verdict"] == "mismatched"
    assert integers["reason"] == "1 of 2 elements differ in their bits"
    assert (integers["max_abs"], integers["max_rel"]) == (1.0, 1 / 3)
    assert (signs["verdict"], signs["max_abs"]) == ("mismatched", 0.0)


def test_the_largest_errors_are_reported() -> None:
    comparison = compare(view([1.0, 100.0, 0.0]), torch.tensor([1.5, 101.0, 0.0]), 1.0, 1.0)

    assert comparison["max_abs"] == 1.0
    assert comparison["max_rel"] == pytest.approx(0.5 / 1.5)


@pytest.mark.parametrize(
    ("actual", "reason"),
    [
        (torch.zeros(2, 3, dtype=torch.float64), "expected FLOAT [2, 3]"),
        (torch.zeros(3, 2), "expected FLOAT [2, 3]"),
        (torch.zeros(3, 2).t(), "strides [1, 2], expected [3, 1]"),
        (1.0, "expected tensor; only tensors are compared"),
    ],
)
def test_type_shape_and_strides_have_to_be_equal(actual: object, reason: str) -> None:
    comparison = compare(view(np.zeros((2, 3))), actual, 1e-5, 1e-8)

    assert (comparison["verdict"], comparison["reason"]) == ("mismatched", reason)


def test_tensors_without_elements_match() -> None:
    assert compare(view(np.zeros((0, 3))), torch.zeros(0, 3), 1e-5, 1e-8)["verdict"] == "matched"


def test_elements_beyond_the_first_step_are_compared() -> None:
    expected = np.zeros((1 << 20) + 5, np.float32)
    actual = torch.zeros((1 << 20) + 5)
    actual[-1] = 1

    assert compare(view(expected), actual, 1e-5, 1e-8)["reason"].startswith("1 of 1048581 ")


def test_inputs_reach_the_runtime_in_the_order_they_are_stored_in() -> None:
    order = (0, 2, 3, 1)
    data = np.arange(24, dtype=np.float32)
    channels_last = cb.TensorView(cb.ScalarType.FLOAT, (1, 2, 3, 4), order, cb.Cord(data.tobytes()))
    one_channel = cb.TensorView(cb.ScalarType.FLOAT, (1, 1, 6, 4), order, cb.Cord(data.tobytes()))

    assert _tensor(channels_last).stride() == (24, 1, 8, 2)
    assert _tensor(one_channel).stride() == (24, 24, 4, 1)  # row-major, as the bindings see it
    assert torch.equal(_tensor(one_channel).flatten(), torch.from_numpy(data))
