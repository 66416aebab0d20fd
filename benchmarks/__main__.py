"""The command line of the benchmarks: `python -m benchmarks`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from benchmarks.jobs import JOBS
from benchmarks.machine import filesystem_of
from benchmarks.plots import plots
from benchmarks.profiles import PROFILES
from benchmarks.report import markdown
from benchmarks.schedule import Settings, measure
from benchmarks.terms import LOOPS, MIB, Folder


def main() -> int:
    """Measure, or report; return the exit code."""
    arguments = _parser().parse_args(_with_command(sys.argv[1:]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that folders are removed
    try:
        return _report(arguments) if arguments.command == "report" else _run(arguments)
    except KeyboardInterrupt:
        print("interrupted; all folders are removed", file=sys.stderr)
        return 130


def _run(arguments: argparse.Namespace) -> int:
    settings = Settings(
        folders=_folders(arguments.folder or [Path("/tmp"), Path("/dev/shm")]),
        cache=arguments.cache,
        rounds=arguments.rounds,
        jobs=frozenset(arguments.job),
        sizes=frozenset(size * MIB for size in arguments.size),
        measures=frozenset(arguments.measure),
        on=frozenset(arguments.on),
        seed=arguments.seed,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    results = measure(arguments.profile, PROFILES[arguments.profile], settings)
    text = json.dumps(results, indent=1)
    if arguments.output is None:
        print(text)
    else:
        arguments.output.write_text(text + "\n")
    for entry in results["broken"]:
        print(f"broken: {entry['what']}: {entry['why']}", file=sys.stderr)
    return 1 if results["broken"] else 0


def _report(arguments: argparse.Namespace) -> int:
    results = [json.loads(path.read_text()) for path in arguments.results]
    text = markdown(results)
    if arguments.plots is not None:
        arguments.plots.mkdir(parents=True, exist_ok=True)
        text += "## Plots\n"
        for plot in plots(results):
            (arguments.plots / plot.name).write_text(plot.svg)
            text += f"\n![{plot.title}]({arguments.plots.name}/{plot.name})\n"
    print(text, end="")
    return 0


def _folders(parents: list[Path]) -> dict[Folder, Path]:
    """Return the first folder on a disk and the first on tmpfs."""
    found: dict[Folder, Path] = {}
    for parent in parents:
        if parent.is_dir():
            name: Folder = "tmpfs" if filesystem_of(parent).kind == "tmpfs" else "disk"
            found.setdefault(name, parent)
    return found


def _with_command(arguments: list[str]) -> list[str]:
    """Let `run` be the command if none is named."""
    named = arguments and arguments[0] in ("run", "report", "-h", "--help")
    return arguments if named else ["run", *arguments]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure cordbundle; `run` may be left out."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure and write the results as JSON")
    profiles = "; ".join(f"{name}: {profile.what}" for name, profile in PROFILES.items())
    run.add_argument("--profile", choices=sorted(PROFILES), default="quick", help=profiles)
    run.add_argument("--output", "-o", type=Path, help="file for the results, else standard output")
    run.add_argument("--job", choices=sorted(JOBS), action="append", default=[], help="repeatable")
    run.add_argument(
        "--size", metavar="MIB", type=int, action="append", default=[], help="likewise"
    )
    run.add_argument("--on", choices=("disk", "tmpfs", *LOOPS), action="append", default=[])
    run.add_argument("--measure", choices=("time", "memory"), action="append", default=[])
    run.add_argument("--rounds", type=int, help="measured runs of each way, at least 1")
    run.add_argument("--cache", choices=("warm", "cold"), default="warm", help="of the source")
    run.add_argument("--seed", type=int, default=0, help="of the random order")
    run.add_argument(
        "--folder",
        type=Path,
        action="append",
        help="where to put files: one on a disk, one on tmpfs; default /tmp and /dev/shm",
    )
    report = commands.add_parser("report", help="turn results into Markdown")
    report.add_argument(
        "--plots",
        type=Path,
        metavar="FOLDER",
        help="write plots there as SVG; the report refers to them as if it stood beside the folder",
    )
    report.add_argument("results", type=Path, nargs="+", metavar="RESULTS.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
