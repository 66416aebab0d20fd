"""Fuzz everything that reads files: `python -m tests.fuzz [TARGET ...] [--seconds N]`.

Rules of this file: a process per target, one at a time; what was found so far is kept in the
folder, and a target that crashed goes on for the rest of its time; the exit code is 1 if any input
broke a promise. Needs the extra `fuzz`, whose atheris has wheels for Linux on x86-64 and Python
3.11 to 3.13.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["main"]

TARGETS = (
    *("open", "verify", "inspect", "extract", "program", "ptd", "rewrite", "safetensors", "npz"),
)
_MAX_CRASHES = 20
_READING = (
    *("artifact", "opening", "headers", "pte", "ptd", "bpte", "bpte_tables", "bundle_check"),
    *("segment_check", "record_check", "program_check", "plan_check", "scan", "delegate_keys"),
    *("flatbuffer/reader", "flatbuffer/view", "flatbuffer/decode"),
    *("flatbuffer/columns", "flatbuffer/verify", "tensor_view", "suites", "weights", "tags"),
    *("weights_check", "ptd_old_schema", "safetensors_index", "named_data"),
    *("safetensors", "npz", "rewriting/whole", "rewriting/relayout", "rewriting/uses"),
    *("rewriting/editor", "rewriting/assembly", "rewriting/metadata"),
    *("cli/inspect", "cli/extract", "cli/verify", "cli/case_file"),
)
"""The modules that read, of which coverage is told."""


def main() -> int:
    """Run the targets and print a summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--corpus", type=Path, help="folder to keep inputs and figures in")
    parser.add_argument("--no-coverage", action="store_true", help="leave out the measurement")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if missing := [name for name in ("atheris", "coverage") if find_spec(name) is None]:
        print(f"{' and '.join(missing)} missing: pip install -e '.[fuzz]'", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="cordbundle-fuzz.") as folder:
        return _run(options, options.corpus or Path(folder))


def _run(options: argparse.Namespace, folder: Path) -> int:
    _write_seeds(folder / "seeds")
    targets = options.targets or TARGETS
    figures = {name: _fuzz(name, options.seconds // len(targets), folder) for name in targets}
    report = folder / "coverage.json"
    summary: dict[str, Any] = {"targets": figures, "coverage": {}}
    if not options.no_coverage:
        _worker("replay", str(folder), str(report)).check_returncode()
        summary["coverage"] = _coverage(json.loads(report.read_text()))
    (folder / "summary.json").write_text(json.dumps(summary, indent=2))
    _show(summary)
    print(json.dumps(summary))
    return 1 if any(figure["crashes"] for figure in figures.values()) else 0


def _write_seeds(folder: Path) -> None:
    from tests.fuzz.seeds import array_files, own_files, real_files

    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (own_files() | array_files() | real_files()).items():
        (folder / name).write_bytes(data)


def _worker(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.worker", *words]
    return subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _fuzz(name: str, seconds: int, folder: Path) -> dict[str, Any]:
    """Run a target for so many seconds, again after each crash, and return its figures."""
    (folder / name).mkdir(exist_ok=True)
    crashes: list[str] = []
    total: dict[str, Any] = {"seconds": 0, "counts": {}, "memory": (0, 0), "slowest": (0.0, 0)}
    started = time.monotonic()
    while len(crashes) < _MAX_CRASHES:
        left = seconds - int(time.monotonic() - started)
        if left < 1:
            break
        figures = folder / f"{name}.json"
        figures.unlink(missing_ok=True)
        ended = _worker("fuzz", name, str(left), str(folder))
        with open(folder / f"{name}.log", "a", encoding="utf-8") as log:
            log.write(ended.stdout)
        if figures.exists():
            _add(total, json.loads(figures.read_text()))
        if ended.returncode:
            crashes.append(_reason(ended.stdout))
            print(f"{name}: {crashes[-1]}", file=sys.stderr)
    total["seconds"] = round(time.monotonic() - started)
    total["executions"] = sum(sum(kind.values()) for kind in total["counts"].values())
    return total | {"crashes": crashes}


def _add(total: dict[str, Any], more: dict[str, Any]) -> None:
    for kind, verdicts in more["counts"].items():
        known = total["counts"].setdefault(kind, {})
        for verdict, count in verdicts.items():
            known[verdict] = known.get(verdict, 0) + count
    for name in ("memory", "slowest"):
        total[name] = max(tuple(total[name]), tuple(more[name]))


def _reason(log: str) -> str:
    """Return the exception of a crash, and where its input is."""
    lines = log.splitlines()
    marks = ("Test unit written to", "ERROR: libFuzzer")
    written = [line.split(marks[0])[1] for line in lines if marks[0] in line]
    raised = [after for line, after in pairwise(lines) if "Uncaught" in line]
    failed = [line for line in lines if marks[1] in line and not raised]
    return " | ".join([*raised, *failed, *written]) or lines[-1]


def _coverage(files: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return percentages of lines and branches for the modules that read."""
    found = {}
    for path, summary in files.items():
        module = path.partition("cordbundle/")[2].removesuffix(".py")
        if module in _READING:
            lines, branches = summary["num_statements"], summary["num_branches"]
            found[module] = {
                "lines": round(100 * summary["covered_lines"] / max(lines, 1), 1),
                "branches": round(100 * summary["covered_branches"] / max(branches, 1), 1),
            }
    return found


def _show(summary: dict[str, Any]) -> None:
    print(f"{'target':12} {'seconds':>8} {'runs':>9} {'refused':>9} {'findings':>9} {'sound':>9}")
    for name, figure in summary["targets"].items():
        counts = figure["counts"].values()
        sums = [sum(kind.get(v, 0) for kind in counts) for v in ("refused", "findings", "sound")]
        words = "".join(f" {number:9}" for number in (figure["executions"], *sums))
        print(f"{name:12} {figure['seconds']:8}{words}  crashes: {len(figure['crashes'])}")
        for crash in figure["crashes"]:
            print(f"  {crash}")
    if summary["coverage"]:
        print(f"\n{'module':24} {'lines %':>8} {'branches %':>10}")
    for module, parts in sorted(summary["coverage"].items()):
        print(f"{module:24} {parts['lines']:8} {parts['branches']:10}")


if __name__ == "__main__":
    raise SystemExit(main())
