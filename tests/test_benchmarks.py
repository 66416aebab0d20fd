"""The benchmark harness: it runs, its results are complete and sane; no test looks at times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.executorch,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks", *arguments]


@pytest.fixture(scope="module")
def results_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of the quick profile with one round, all files in one folder."""
    pytest.importorskip("executorch")
    folder = tmp_path_factory.mktemp("benchmarks")
    path = folder / "results.json"
    work = folder / "work"
    work.mkdir()
    arguments = ("--profile", "quick", "--rounds", "1", "--folder", str(work), "-o", str(path))
    subprocess.run(command(*arguments), cwd=REPOSITORY, check=True, stderr=subprocess.PIPE)
    assert list(work.iterdir()) == []  # nothing is left behind
    return path


@pytest.fixture(scope="module")
def results(results_file: Path) -> dict[str, Any]:
    """Return the results themselves."""
    loaded: dict[str, Any] = json.loads(results_file.read_text())
    return loaded


def test_results_say_where_they_were_made(results: dict[str, Any]) -> None:
    machine = results["machine"]

    assert machine["kernel"].startswith("Linux ")
    assert machine["cores"] > 0 and machine["memory"] > 0
    assert machine["versions"]["executorch"] == "1.5.1"
    assert {cell["filesystem"] for cell in results["cells"]} <= set(results["filesystems"])


def test_a_cell_is_measured_or_left_out_with_a_word(results: dict[str, Any]) -> None:
    measured = {(cell["job"], cell["measure"]) for cell in results["cells"]}

    assert measured == {
        ("bundle", "time"),
        ("bundle", "memory"),
        ("open", "time"),
        ("serialize", "time"),
        ("write ptd", "time"),
        ("deduplicate equal files", "time"),
        ("constants", "memory"),
        ("delegate inline", "time"),
    }
    assert [entry for entry in results["left_out"] if not entry["why"]] == []
    assert len(results["cells"]) + len(results["left_out"]) == 9


def test_every_way_of_a_cell_ran_in_every_round(results: dict[str, Any]) -> None:
    for cell in results["cells"]:
        assert {(run["way"], run["round"]) for run in cell["runs"]} == {
            (way, 1) for way in cell["ways"]
        }
        assert set(cell["summary"]) == set(cell["ways"])
        if cell["floor"] in cell["ways"]:
            assert cell["summary"][cell["floor"]]["ratio_to_floor"]["median"] == 1


def test_ways_that_say_what_they_made_made_the_same(results: dict[str, Any]) -> None:
    made = {
        cell["job"]: {run["facts"]["made"] for run in cell["runs"]}
        for cell in results["cells"]
        if cell["job"] in ("serialize", "write ptd", "deduplicate equal files")
    }

    assert [len(it) for it in made.values()] == [1, 1, 1]
    assert made["deduplicate equal files"] == {"1 blobs"}


def test_counted_bytes_are_those_of_the_program(results: dict[str, Any]) -> None:
    cell = next(cell for cell in results["cells"] if cell["job"] == "bundle")

    for way in cell["ways"]:
        written = cell["summary"][way]["io"]["wchar"]
        assert cell["source_size"] <= written < 1.01 * cell["source_size"]


def test_memory_is_counted_above_the_import(results: dict[str, Any]) -> None:
    cells = [cell for cell in results["cells"] if cell["measure"] == "memory"]

    for run in [run for cell in cells for run in cell["runs"]]:
        assert run["peak"]["samples"] > 0
        assert 0 <= run["peak"]["anonymous"] < 16 << 20


def test_results_become_a_report(results_file: Path) -> None:
    done = subprocess.run(
        command("report", str(results_file)),
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.startswith("## Profile 'quick'")
    assert "| cordbundle, no digest |" in done.stdout
    assert "| executorch |" in done.stdout
    assert "### serialize, 500 values on " in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_files(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        command("--folder", str(tmp_path)),
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("exporting")  # the folders exist by now
        assert os.listdir(tmp_path) != []

        process.send_signal(number)

        assert process.wait(60) == 128 + number
    assert os.listdir(tmp_path) == []
