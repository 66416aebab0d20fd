"""ExecuTorch's own tests of what is replaced, run on the replacements in a process of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.executorch

if find_spec("executorch") is None:
    pytest.skip("ExecuTorch is not installed", allow_module_level=True)

REPOSITORY = Path(__file__).resolve().parent.parent
SUITES = (
    "exir/_serialize/test",
    "extension/flat_tensor/test",
    "devtools/bundled_program/test",
    "devtools/bundled_program/serialize/test",
)
PASSING = 108
"""What passes with ExecuTorch 1.5.1 as it is."""


def run_suites(plugin: str, folder: Path) -> dict[str, Any]:
    """Run ExecuTorch's tests, all of which have to pass; return what the plugin has counted."""
    spec = find_spec("executorch")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(next(iter(spec.submodule_search_locations)))
    calls = folder / "calls.json"
    (folder / "pytest.ini").write_text("[pytest]\n")
    options = f"-q -c {folder}/pytest.ini --rootdir {root} -p no:cacheprovider --tb=short"
    command = [sys.executable, "-m", "pytest", *options.split(), "--import-mode=importlib"]
    command += ["-p", f"tests.executorch_suite.{plugin}", *(str(root / suite) for suite in SUITES)]

    result = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "CORDBUNDLE_SUITE_CALLS": str(calls), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )

    summary = result.stdout[-3000:] + result.stderr[-1000:]
    assert result.returncode == 0, summary
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None
    assert int(passed[1]) >= PASSING, summary
    counted: dict[str, Any] = json.loads(calls.read_text())
    return counted


def test_executorchs_own_tests_pass_on_cordbundle_while_its_serializers_raise(
    tmp_path: Path,
) -> None:
    counts = run_suites("plugin", tmp_path)

    assert counts["cordbundle"] == {
        "FlatTensorSerializer.deserialize": 4,
        "FlatTensorSerializer.serialize": 9,
        "NamedDataStore.__init__": 36,
        "NamedDataStore.add_named_data": 61,
        "NamedDataStore.externalize_pte_data": 14,
        "bundled.deserialize_from_flatbuffer_to_bundled_program": 1,
        "bundled.serialize_from_bundled_program_to_flatbuffer": 2,
        "programs.deserialize_pte_binary": 12,
        "programs.serialize_for_executorch": 13,
        "programs.serialize_pte_binary": 30,
    }
    # By the tests of exactly these, and by tests that look at what was written.
    assert counts["internals"] == {
        "_flatbuffer_to_program": 8,
        "_flatc_decompile": 3,
        "_program_to_flatbuffer": 2,
    }


def test_all_that_executorchs_own_tests_serialize_has_its_bytes(tmp_path: Path) -> None:
    found = run_suites("comparison", tmp_path)

    assert found["outcomes"] == {
        "deserialize: both raise": 1,
        "deserialize: same": 3,
        "deserialize_from_flatbuffer_to_bundled_program: same": 1,
        "deserialize_pte_binary: same": 12,
        "serialize: same": 9,
        "serialize_for_executorch: same": 13,
        "serialize_from_bundled_program_to_flatbuffer: same": 2,
        "serialize_pte_binary: both raise": 2,
        "serialize_pte_binary: different": 2,
        "serialize_pte_binary: same": 26,
    }
    # Where ExecuTorch aligns something in a segment, but not the base that it counts from.
    assert found["different"] == [
        "test_constant_delegate_and_named_data_segments",
        "test_named_data_segments",
    ]
