"""ExecuTorch's own tests of what is replaced, run on the replacements in a process of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

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


def test_executorchs_own_tests_pass_on_cordbundle_while_its_serializers_raise(
    tmp_path: Path,
) -> None:
    spec = find_spec("executorch")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(next(iter(spec.submodule_search_locations)))
    calls = tmp_path / "calls.json"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = f"-q -c {tmp_path}/pytest.ini --rootdir {root} -p no:cacheprovider --tb=short"
    command = [sys.executable, "-m", "pytest", *options.split(), "--import-mode=importlib"]
    command += ["-p", "tests.executorch_suite.plugin", *(str(root / suite) for suite in SUITES)]

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
    counts = json.loads(calls.read_text())
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
