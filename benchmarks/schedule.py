"""Run the cells of a profile: setting up, order, repetition, checks, cleaning up.

Rules of this file: everything is made in folders of this run, which are gone at its end, whatever
ends it; nothing is measured here, and nothing heavy imported. What cannot be measured on this
machine is left out with a word; what breaks is an error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import cordbundle as cb
from benchmarks import process, programs
from benchmarks.child import Task
from benchmarks.jobs import JOBS, MIB, Cell, Job, Profile, Way
from benchmarks.machine import (
    Filesystem,
    available_memory,
    describe,
    filesystem_of,
    load,
    version_of,
)
from benchmarks.results import SCHEMA, summary

__all__ = ["Settings", "measure"]

WARM_UP_SIZE = 1 * MIB
CASES = 100  # of a bundle that is opened


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure.

    Attributes:
        folders: Where to put files: by "disk" and "tmpfs".
        cache: Whether sources are in the page cache ("warm") or dropped from it before each run.
        rounds: Measured runs of each way, in place of the profile's number.
        jobs: Names of the jobs to run; all if empty.
        sizes: Sizes to run, in bytes; all if empty.
        measures: What to measure, "time" or "memory"; both if empty.
        seed: Of the random order.
        say: Called with progress.
    """

    folders: dict[str, Path]
    cache: Literal["warm", "cold"] = "warm"
    rounds: int | None = None
    jobs: frozenset[str] = frozenset()
    sizes: frozenset[int] = frozenset()
    measures: frozenset[str] = frozenset()
    seed: int = 0
    say: Callable[[str], object] = print

    def wants(self, cell: Cell) -> bool:
        """Return whether a cell is to be measured."""
        return (
            (not self.jobs or cell.job in self.jobs)
            and (not self.sizes or cell.size in self.sizes)
            and (not self.measures or cell.measure in self.measures)
        )


@dataclass(slots=True)
class _Stage:
    """The folders of this run.

    Attributes:
        programs: Where exported programs are.
        folders: Where sources and targets are, by "disk" and "tmpfs".
        left_out: What was not measured, and why.
    """

    programs: Path
    folders: dict[str, tuple[Path, Filesystem]]
    left_out: list[dict[str, str]] = field(default_factory=list)

    def leave_out(self, what: str, why: str) -> None:
        self.left_out.append({"what": what, "why": why})


def measure(name: str, profile: Profile, settings: Settings) -> dict[str, Any]:
    """Measure all cells of a profile and return the results.

    Raises:
        benchmarks.process.RunError: A run broke.
        ValueError: A run made something else than it should.
    """
    cells = [cell for cell in profile.cells if settings.wants(cell)]
    order = random.Random(settings.seed)
    load_before, start = load(), time.time()
    with _stage(settings) as stage:
        cells = [cell for cell in cells if _fits(cell, stage)]
        _export(cells, stage, settings)
        found = [
            _measure_cell(cell, settings.rounds or profile.rounds, order, stage, settings)
            for cell in cells
        ]
        filesystems = {kind.kind: kind for _, kind in stage.folders.values()}
    return {
        "schema": SCHEMA,
        "profile": name,
        "seed": settings.seed,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start)),
        "minutes": round((time.time() - start) / 60, 1),
        "load": {"before": load_before, "after": load()},
        "machine": describe(),
        "filesystems": {
            kind.kind: {"options": kind.options, "block": kind.block}
            for kind in filesystems.values()
        },
        "cells": found,
        "left_out": stage.left_out,
    }


@contextlib.contextmanager
def _stage(settings: Settings) -> Iterator[_Stage]:
    """Make the folders, and remove them with all that is in them."""
    with contextlib.ExitStack() as stack:

        def folder_in(parent: Path) -> Path:
            made = tempfile.TemporaryDirectory(
                prefix="cordbundle-benchmark-", dir=parent, ignore_cleanup_errors=True
            )
            return Path(stack.enter_context(made))

        folders = {
            name: (folder_in(parent), filesystem_of(parent))
            for name, parent in settings.folders.items()
        }
        first = next(iter(settings.folders.values()))
        yield _Stage(folder_in(settings.folders.get("disk", first)), folders)


def _fits(cell: Cell, stage: _Stage) -> bool:
    """Return whether a cell can be measured here; if not, a word is left."""
    title = _title(cell)
    if cell.folder not in stage.folders:
        stage.leave_out(title, f"no folder on {cell.folder}")
        return False
    folder, _ = stage.folders[cell.folder]
    need = int(2.2 * cell.size) if "sparse" not in JOBS[cell.job].source else 0
    free = shutil.disk_usage(folder).free
    if cell.folder == "tmpfs":
        free = min(free, available_memory())
    if need > free:
        stage.leave_out(title, f"needs {need >> 20} MiB, {free >> 20} MiB are free")
        return False
    return True


def _export(cells: Iterable[Cell], stage: _Stage, settings: Settings) -> None:
    sizes: dict[bool, set[int]] = {False: {WARM_UP_SIZE}, True: set()}
    for cell in cells:
        sizes["sparse" in JOBS[cell.job].source].add(cell.size)
    settings.say(f"exporting programs of {_sizes(sizes[False] | sizes[True])}")
    programs.export_all(stage.programs, dense=sorted(sizes[False]), sparse=sorted(sizes[True]))


def _measure_cell(
    cell: Cell, rounds: int, order: random.Random, stage: _Stage, settings: Settings
) -> dict[str, Any]:
    """Run all ways of a cell, first once unmeasured, then in rounds, each in random order."""
    job, title = JOBS[cell.job], _title(cell)
    folder, filesystem = stage.folders[cell.folder]
    ways = [way for way in job.ways if _can_run(way, cell, title, stage)]
    settings.say(f"{title}: {', '.join(way.name for way in ways)}")
    source = _source(job, cell.size, folder, stage)
    source_size = source.stat().st_size
    small = _source(job, WARM_UP_SIZE, folder, stage) if job.warms_up else None
    runs = []
    for number in range(rounds + 1):
        for way in order.sample(ways, len(ways)):
            run = _run(cell, way, source, small, settings, check=number == 0)
            if number:
                runs.append({"way": way.name, "round": number, **run})
    for path in folder.iterdir():
        path.unlink()
    measured: dict[str, Any] = {
        "job": cell.job,
        "what": job.what,
        "size": cell.size,
        "source_size": source_size,
        "filesystem": filesystem.kind,
        "measure": cell.measure,
        "durability": cell.durability,
        "cache": settings.cache,
        "ways": [way.name for way in ways],
        "floor": job.floor,
        "runs": runs,
    }
    measured["summary"] = summary(measured)
    for way, it in measured["summary"].items():
        settings.say(f"  {way}: median {it['seconds']['median']:.4g} s")
    return measured


def _can_run(way: Way, cell: Cell, title: str, stage: _Stage) -> bool:
    """Return whether a way takes part in a cell; if it should and cannot, a word is left."""
    if way.name in cell.without or (cell.measure == "memory" and not way.in_process):
        return False
    missing = [package for package in way.needs if version_of(package) is None]
    needed, free = int(way.memory_factor * cell.size), available_memory()
    if missing:
        stage.leave_out(f"{title}: {way.name}", f"{', '.join(missing)} not installed")
    elif way.most is not None and cell.size > way.most:
        stage.leave_out(f"{title}: {way.name}", way.why_most)
    elif needed > free:
        why = f"needs {needed >> 20} MiB of memory, {free >> 20} MiB are available"
        stage.leave_out(f"{title}: {way.name}", why)
    else:
        return True
    return False


def _source(job: Job, size: int, folder: Path, stage: _Stage) -> Path:
    """Return a cell's source, in its own folder and with its case beside it."""
    sparse = "sparse" in job.source
    program = programs.program_path(stage.programs, size, sparse=sparse)
    if job.source == "sparse bundle":
        return _bundle_to_open(program, folder / f"{size}.bpte")
    for path in (program, programs.cases_of(program)):
        _place(path, folder / path.name)
    return folder / program.name


def _place(path: Path, target: Path) -> None:
    """Give a file a second name; across filesystems, a copy."""
    try:
        target.hardlink_to(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(path, target)


def _bundle_to_open(program: Path, path: Path) -> Path:
    """Bundle a program with many cases of one tensor each way, in a form without a size limit."""
    case = cb.MethodTestCase([memoryview(bytes(4 * 8)).cast("q")], [])
    suite = cb.MethodTestSuite("forward", [case] * CASES)
    cb.bundle(program, [suite], form="segmented", digest=False).write(path)
    return path


def _run(
    cell: Cell, way: Way, source: Path, small: Path | None, settings: Settings, *, check: bool
) -> dict[str, Any]:
    """Do one run with the caches as wanted; what it made is checked and removed."""
    target, small_target = source.with_name("target"), source.with_name("small-target")

    def task(source: Path, target: Path) -> Task:
        cases = str(programs.cases_of(source))
        return Task(str(source), cases, str(target), cell.durability, dict(way.options))

    warm_up = None if small is None else task(small, small_target)
    if cell.measure == "memory":
        warm_up = None  # all memory from the first call on counts
    if "sparse" not in JOBS[cell.job].source:
        _prepare_cache(source, settings.cache)
    try:
        result = process.run(
            way.entry, task(source, target), warm_up=warm_up, sample=cell.measure == "memory"
        )
        _check(way, source, target, thoroughly=check)
    finally:
        target.unlink(missing_ok=True)
        small_target.unlink(missing_ok=True)
    return result


def _prepare_cache(source: Path, state: Literal["warm", "cold"]) -> None:
    """Bring a file into the page cache or drop it from there."""
    with source.open("rb", buffering=0) as file:
        if state == "cold":
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return
        buffer = bytearray(MIB)
        while file.readinto(buffer):
            pass


def _check(way: Way, source: Path, target: Path, *, thoroughly: bool) -> None:
    """Check that a run made what it should.

    Raises:
        ValueError: It did not.
    """
    if way.makes == "nothing":
        return
    size, least = target.stat().st_size, source.stat().st_size
    if size < least:
        raise ValueError(f"{way.name} made {size} bytes of {least}")
    if not thoroughly:
        return
    made = cb.Cord.from_file(target)
    if way.makes == "bundle":
        with cb.open(target) as file:
            made = file.program if isinstance(file, cb.BundleFile) else cb.Cord()
    if made.xxh3_128() != cb.Cord.from_file(source).xxh3_128():
        raise ValueError(f"{way.name} changed the program's bytes")


def _title(cell: Cell) -> str:
    details = "" if cell.durability == "none" else ", until durable"
    return f"{cell.job}, {_sizes([cell.size])} on {cell.folder}, {cell.measure}{details}"


def _sizes(sizes: Iterable[int]) -> str:
    return ", ".join(f"{size >> 20} MiB" for size in sorted(sizes))
