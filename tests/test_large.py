"""Bundles at and beyond what 32 bits can say, run by the ExecuTorch runtime.

All are slow: `pytest -m slow tests/test_large.py`. They need 16 GiB of disk and 8 GiB of memory;
each asks first. Programs are exported by ExecuTorch, see `benchmarks/programs.py`; what needs
gigabytes of memory runs in a process of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordbundle as cb

np = pytest.importorskip("numpy")

pytestmark = [pytest.mark.slow, pytest.mark.executorch]

REPOSITORY = Path(__file__).resolve().parent.parent
GIB = 1 << 30
DENSE_SIZE = 2_600_000_512
NEARLY_4_GIB = int(3.9 * GIB) // 4096 * 4096

# Reads a bundle whole, as the runtime's bindings demand, and lets the runtime compare.
RUN_BUNDLE = """
import sys
from executorch.extension.pybindings import portable_lib as runtime
bundle = runtime._load_bundled_program_from_buffer(open(sys.argv[1], "rb").read())
outputs = bundle.verify_result_with_bundled_expected_output("forward", 0, 0.0, 0.0)
print(len(outputs))
"""

# Runs a program from its file with the cases of a bundle that holds the tests alone. The runtime's
# C++ functions take such a pair as it is; its Python bindings do not offer them.
RUN_BESIDE = """
import sys
import torch
from executorch.extension.pybindings import portable_lib as runtime
import cordbundle as cb
case = cb.open(sys.argv[1]).suite("forward").test_cases[0]
module = runtime._load_for_executorch(sys.argv[2])
outputs = module.forward([value.torch() for value in case.inputs])
pairs = zip(outputs, case.expected_outputs, strict=True)
print(*(torch.equal(output, expected.torch()) for output, expected in pairs))
"""


class ChildError(Exception):
    """A process that failed; its text is the end of what it said."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is emptied at once after the test; pytest would keep three of them."""
    if shutil.disk_usage(tmp_path).free < 16 * GIB:
        pytest.skip("needs 16 GiB of free disk")
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture(scope="module")
def beyond_32_bits(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, cb.MethodTestSuite]]:
    """Return a sparse program of 5 GiB and a suite of one case."""
    folder = tmp_path_factory.mktemp("beyond-32-bits")
    yield export(folder, 5 * GIB, sparse=True)
    shutil.rmtree(folder, ignore_errors=True)


def available_memory() -> int:
    """Return what the system can give, in bytes; nothing where it does not tell."""
    info = Path("/proc/meminfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def export(folder: Path, size: int, *, sparse: bool) -> tuple[Path, cb.MethodTestSuite]:
    """Let ExecuTorch export a program; return its path and a suite of one case."""
    pytest.importorskip("executorch")
    if available_memory() < 8 * GIB:
        pytest.skip("needs 8 GiB of memory")
    kind = "sparse" if sparse else "dense"
    run_python("-m", "benchmarks.programs", str(folder), f"--{kind}={size}")
    program = folder / f"{kind}-{size}.pte"
    with np.load(program.with_suffix(".npz")) as arrays:
        case = cb.MethodTestCase([arrays["inputs.0"]], [arrays["outputs.0"]])
    return program, cb.MethodTestSuite("forward", [case])


def run_python(*arguments: str) -> str:
    """Run the interpreter in another process and return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ChildError(done.stderr[-2000:])
    return done.stdout


def outputs_of(suite: cb.MethodTestSuite) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in suite.test_cases[0].expected_outputs]


@pytest.mark.parametrize(
    ("size", "sparse"),
    [(DENSE_SIZE, False), (NEARLY_4_GIB, True)],
    ids=["2.6 GB, dense", "3.9 GiB, sparse"],
)
def test_the_runtime_verifies_a_bundle_beyond_2_gib(folder: Path, size: int, sparse: bool) -> None:
    program, suite = export(folder, size, sparse=sparse)
    path = folder / "bundle.bpte"

    cb.bundle(program, [suite], form="bp08").write(path, durability="none")

    assert path.stat().st_size > size
    assert run_python("-c", RUN_BUNDLE, str(path)).split() == ["1"]


def test_the_runtime_finds_a_wrong_expected_output_beyond_2_gib(folder: Path) -> None:
    program, suite = export(folder, DENSE_SIZE // 4096 * 4096, sparse=True)
    path = folder / "bundle.bpte"
    case = suite.test_cases[0]
    wrong = np.asarray(case.expected_outputs[0]).copy()
    wrong[-1, -1] += 1
    suite = cb.MethodTestSuite("forward", [cb.MethodTestCase(case.inputs, [wrong])])

    cb.bundle(program, [suite]).write(path, durability="none")

    with pytest.raises(ChildError, match="Result verification failed"):
        run_python("-c", RUN_BUNDLE, str(path))


def test_a_program_beyond_4_gib_is_read_back_from_a_segmented_bundle(
    folder: Path, beyond_32_bits: tuple[Path, cb.MethodTestSuite]
) -> None:
    program, suite = beyond_32_bits
    path, extracted = folder / "bundle.bpte", folder / "extracted.pte"

    cb.bundle(program, [suite], form="segmented").write(path, durability="none")

    with cb.open(path) as file:
        assert isinstance(file, cb.BundleFile)
        assert file.form == "segmented"
        assert file.verify() == []
        assert outputs_of(file.suite("forward")) == outputs_of(suite)
        cb.write(file.program, extracted, durability="none")
    assert extracted.stat().st_size == program.stat().st_size > 5 * GIB
    assert cb.Cord.from_file(extracted) == cb.Cord.from_file(program)


def test_an_extracted_program_beyond_4_gib_stays_sparse(
    folder: Path, beyond_32_bits: tuple[Path, cb.MethodTestSuite]
) -> None:
    program, suite = beyond_32_bits
    path, extracted = folder / "bundle.bpte", folder / "extracted.pte"

    cb.bundle(program, [suite], form="segmented").write(path, durability="none")
    with cb.open(path) as file:
        assert isinstance(file, cb.BundleFile)
        cb.write(file.program, extracted, durability="none")

    for written in (path, extracted):
        assert written.stat().st_blocks * 512 < 64 << 20


def test_a_program_beyond_4_gib_runs_beside_a_detached_bundle(
    folder: Path, beyond_32_bits: tuple[Path, cb.MethodTestSuite]
) -> None:
    program, suite = beyond_32_bits
    path = folder / "tests.bpte"

    cb.bundle(program, [suite], form="detached").write(path, durability="none")

    assert path.stat().st_size < 1 << 20
    with cb.open(path) as file:
        assert isinstance(file, cb.BundleFile)
        assert file.form == "detached"
        assert file.verify() == []
        assert len(file.program) == 0
    assert run_python("-c", RUN_BESIDE, str(path), str(program)).split() == ["True"]


def test_a_program_beyond_4_gib_is_refused_as_bp08(
    beyond_32_bits: tuple[Path, cb.MethodTestSuite],
) -> None:
    program, suite = beyond_32_bits

    with pytest.raises(cb.TooLargeError, match=r"segmented|detached"):
        cb.bundle(program, [suite])
