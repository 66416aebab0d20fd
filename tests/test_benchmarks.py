"""The benchmark harness: it runs, its results are complete and sane; no test looks at times."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.filesystems import mounted, why_not
from benchmarks.jobs import JOBS
from benchmarks.plots import plots
from benchmarks.process import can_trace
from benchmarks.procfs import io_counters
from benchmarks.profiles import PROFILES
from benchmarks.report import markdown
from benchmarks.results import SCHEMA, slopes, summary
from benchmarks.schedule import Settings, measure
from benchmarks.targets import TARGETS, outcomes
from benchmarks.terms import LOOPS, Cell, Job, Profile, Way

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
    wanted = PROFILES["quick"].cells
    measured = {(cell["job"], cell["measure"]) for cell in results["cells"]}

    assert measured >= {(cell.job, cell.measure) for cell in wanted if cell.folder == "disk"}
    assert [entry for entry in results["left_out"] if not entry["why"]] == []
    assert results["broken"] == []
    assert len(results["cells"]) + len(results["left_out"]) == len(wanted)


def test_every_way_of_a_cell_ran_in_every_round(results: dict[str, Any]) -> None:
    for cell in results["cells"]:
        assert {(run["way"], run["round"]) for run in cell["runs"]} == {
            (way, 1) for way in cell["ways"]
        }
        assert set(cell["summary"]) == set(cell["ways"])


def test_the_floor_ran_wherever_the_profile_does_not_leave_it_out(results: dict[str, Any]) -> None:
    without_floor = {
        cell.job
        for cell in PROFILES["quick"].cells
        if JOBS[cell.job].floor_on(cell.folder) in cell.without
    }

    for cell in results["cells"]:
        found = [
            it["ratio_to_floor"]["median"]
            for way, it in cell["summary"].items()
            if way == cell["floor"]
        ]
        assert found == ([] if cell["job"] in without_floor else [1]), cell["job"]


def test_profiles_run_seven_rounds_but_for_the_quick_one() -> None:
    assert {name: profile.rounds for name, profile in PROFILES.items()} == {
        "quick": 3,
        "issue": 7,
        "serialize": 7,
        "limit": 7,
        "scale": 7,
    }


def test_cells_leave_out_ways_that_their_job_has() -> None:
    for cell in (cell for profile in PROFILES.values() for cell in profile.cells):
        assert set(cell.without) <= {way.name for way in JOBS[cell.job].ways}, cell


def test_every_way_is_measured_by_a_profile() -> None:
    measured = {
        (cell.job, way.name)
        for profile in PROFILES.values()
        for cell in profile.cells
        for way in JOBS[cell.job].ways
        if cell.wants(way)
    }

    assert {(job.name, way.name) for job in JOBS.values() for way in job.ways} - measured == set()


def test_ways_that_say_what_they_made_made_the_same(results: dict[str, Any]) -> None:
    made = {
        cell["job"]: {run["facts"]["made"] for run in cell["runs"]}
        for cell in results["cells"]
        if cell["job"] in ("serialize", "write ptd", "deduplicate equal files")
    }

    assert [len(it) for it in made.values()] == [1, 1, 1]
    assert made["deduplicate equal files"] == {"1 blobs"}


def test_calls_are_those_of_what_was_measured(results: dict[str, Any]) -> None:
    if not can_trace():
        pytest.skip("strace is not installed or may not attach")
    cell = next(cell for cell in results["cells"] if cell["job"] == "chunks of 4 KiB")

    assert cell["calls"]["join"]["write"] == 1
    assert cell["calls"]["writev"]["writev"] == 1
    assert "writev" not in cell["calls"]["join"]


@pytest.mark.parametrize("kind", LOOPS)
def test_sharing_extents_writes_next_to_nothing(results: dict[str, Any], kind: str) -> None:
    cells = [cell for cell in results["cells"] if cell["filesystem"] == kind]
    if not cells:
        assert any(entry["what"].endswith(f"on {kind}, time") for entry in results["left_out"])
        pytest.skip(f"no {kind} here")
    (cell,) = cells

    found = {way: it["device_bytes"]["most"] for way, it in cell["summary"].items()}

    assert cell["floor"] == "cp, shared"
    assert found["cp"] > cell["size"]
    assert found["cp, shared"] < cell["size"] / 20
    assert found["cordbundle, no digest"] < cell["size"] / 20


@pytest.mark.parametrize("kind", LOOPS)
def test_a_filesystem_is_gone_after_an_error(tmp_path: Path, kind: Any) -> None:
    if why := why_not(kind):
        pytest.skip(why)
    try:
        with mounted(kind, tmp_path, 1 << 30) as place:
            (place.folder / "file").touch()
            assert os.path.ismount(place.folder)
            raise KeyboardInterrupt
    except OSError as error:
        pytest.skip(str(error))
    except KeyboardInterrupt:
        pass

    assert not os.path.ismount(tmp_path / kind)
    assert os.listdir(tmp_path) == [kind]


def test_a_filesystem_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    if why := why_not("xfs"):
        pytest.skip(why)

    with pytest.raises(OSError, match=r"^mkfs\.xfs: "), mounted("xfs", tmp_path, 1 << 20):
        pass

    assert os.listdir(tmp_path) == ["xfs"]


def test_a_broken_run_costs_its_own_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Way("good", "benchmarks.ways.with_chunks:join", "nothing", {"size": 8})
    bad = Way("bad", "benchmarks.ways.with_chunks:nowhere", "nothing")
    for name, way in (("broken", bad), ("sound", good)):
        monkeypatch.setitem(JOBS, name, Job(name, "", "nothing", (way,), way.name))
    cells = (Cell("broken", 0, count=1), Cell("sound", 0, count=1))

    found = measure("test", Profile("", cells, 1), Settings({"disk": tmp_path}, say=len))

    assert [cell["job"] for cell in found["cells"]] == ["sound"]
    (broken,) = found["broken"]
    assert broken["what"] == "broken, 1  on disk, time"
    assert "has no attribute 'nowhere'" in broken["why"]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (Cell("verify", 16 << 20, "tmpfs"), "files on tmpfs are in memory alone"),
        (Cell("verify", 16 << 20, "xfs"), "the file that it is in would stay in the cache"),
        (Cell("open", 16 << 20), "a source of this kind is left in the cache as it is"),
        (Cell("import", 0), "there is no source to drop from the cache"),
        (Cell("list cases", 0, count=64), "warming up reads the same source"),
    ],
    ids=["tmpfs", "in a file", "sparse", "no source", "as small as the warm-up"],
)
def test_what_cannot_be_cold_is_left_out_of_a_cold_run(
    tmp_path: Path, cell: Cell, why: str
) -> None:
    settings = Settings({cell.folder: tmp_path}, cache="cold", say=len)

    found = measure("test", Profile("", (cell,)), settings)

    (left_out,) = found["left_out"]
    assert (found["cells"], found["broken"]) == ([], [])
    assert left_out["what"].endswith(f" on {cell.folder}, time, cold")
    assert left_out["why"] == why


def test_a_cell_has_the_cache_of_the_run_unless_it_has_its_own(tmp_path: Path) -> None:
    pytest.importorskip("numpy")  # of which the cases are
    one = Cell("list cases", 0, count=65, without=("executorch",))
    cells = (one, replace(one, cache="warm"))

    found = measure("test", Profile("", cells, 1), Settings({"disk": tmp_path}, "cold", say=len))

    assert [cell["cache"] for cell in found["cells"]] == ["cold", "warm"]


def test_every_target_speaks_of_a_way_that_a_profile_measures() -> None:
    cells = [_measured(cell) for profile in PROFILES.values() for cell in profile.cells]

    found = {target for target, *_ in outcomes(cells)}

    assert set(TARGETS) - found == set()


def _measured(cell: Cell) -> dict[str, Any]:
    """Return the result of a cell, made up: one run of each way, in which all took 1."""
    job = JOBS[cell.job]
    ways = [way.name for way in job.ways if cell.wants(way)]
    run = {
        "round": 1,
        "seconds": 1.0,
        "processor_seconds": 1.0,
        "io": dict.fromkeys(io_counters(), 1),
        **({"device_bytes": 1} if cell.folder in LOOPS else {}),
        **({"peak": {"anonymous": 1}} if cell.measure == "memory" else {}),
    }
    made: dict[str, Any] = {
        "job": cell.job,
        "size": cell.size,
        "count": cell.count,
        "source_size": cell.size,
        "measure": cell.measure,
        "durability": cell.durability,
        "cache": cell.cache or "warm",
        "filesystem": "ext4" if cell.folder == "disk" else cell.folder,
        "ways": ways,
        "floor": job.floor_on(cell.folder),
        "runs": [{"way": way, **run} for way in ways],
    }
    return made | {"summary": summary(made)}


def test_growth_is_the_exponent_between_neighbours() -> None:
    assert slopes([(10, 1.0), (100, 10.0), (1000, 1000.0)]) == pytest.approx([1, 2])


def _cell(size: int, times: dict[str, float]) -> dict[str, Any]:
    runs = [
        {"way": way, "round": 1, "seconds": time, "processor_seconds": time, "io": {}}
        for way, time in times.items()
    ]
    cell: dict[str, Any] = {
        "job": "bundle",
        "size": size,
        "count": 0,
        "counted": "",
        "source_size": size,
        "filesystem": "ext4",
        "measure": "time",
        "durability": "none",
        "cache": "warm",
        "ways": list(times),
        "floor": "copyfile",
        "runs": runs,
    }
    return cell | {"summary": summary(cell)}


def test_ratios_to_the_best_leave_cordbundle_out() -> None:
    cell = _cell(1 << 20, {"copyfile": 4.0, "cp": 2.0, "cordbundle": 1.0})

    assert cell["summary"]["cordbundle"]["ratio_to_best"]["median"] == 0.5
    assert cell["summary"]["copyfile"]["ratio_to_best"]["median"] == 2


def test_plots_draw_every_way_on_logarithmic_axes() -> None:
    sizes = (1 << 20, 1 << 22, 1 << 24)
    cells = [_cell(size, {"copyfile": size * 1e-9, "cordbundle": 1e-3}) for size in sizes]

    times, ratios = plots([{"cells": cells}])

    assert (times.name, ratios.name) == (
        "bundle-on-ext4-time.svg",
        "bundle-on-ext4-time-ratio-to-copyfile.svg",
    )
    drawn = ET.fromstring(times.svg)
    circles = [
        (float(it.get("cx", 0)), float(it.get("cy", 0)))
        for it in drawn.iter()
        if it.tag.endswith("circle")
    ]
    (x0, y0), (x1, y1), (x2, y2) = circles[:3]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)  # a factor of 4 is a step of one length
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y1  # more time is higher up
    assert len({y for _, y in circles[3:]}) == 1
    lines = [it for it in drawn.iter() if it.get("stroke-width")]  # each with that of its legend
    assert len(lines) == 4
    assert [it for it in drawn.iter() if it.get("stroke-dasharray")] == lines[:2]  # the floor's
    assert [it.text for it in drawn.iter() if it.text in ("copyfile (floor)", "cordbundle")] == [
        "copyfile (floor)",
        "cordbundle",
    ]


def test_counted_bytes_are_those_of_the_program(results: dict[str, Any]) -> None:
    cell = next(
        cell
        for cell in results["cells"]
        if cell["job"] == "bundle" and cell["filesystem"] not in LOOPS
    )

    for way in cell["ways"]:
        written = cell["summary"][way]["io"]["wchar"]
        assert cell["source_size"] <= written < 1.01 * cell["source_size"]


def test_memory_is_counted_above_the_import(results: dict[str, Any]) -> None:
    cells = [cell for cell in results["cells"] if cell["measure"] == "memory"]

    for run in [run for cell in cells for run in cell["runs"]]:
        assert run["peak"]["samples"] > 0
        assert 0 <= run["peak"]["anonymous"] < 16 << 20


def test_results_of_another_shape_are_no_report() -> None:
    with pytest.raises(ValueError, match=f"^results of schema 1, not {SCHEMA}$"):
        markdown([{"schema": 1}])


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
