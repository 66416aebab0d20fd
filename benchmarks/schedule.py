"""Run the cells of a profile: setting up, order, repetition, checks, cleaning up.

Rules of this file: everything is made in folders of this run, which are gone at its end, whatever
ends it; nothing is measured here, and nothing heavy imported. What cannot be measured on this
machine is left out with a word; what breaks is an error.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import cordbundle as cb
from benchmarks import process, programs, sources
from benchmarks.child import Task
from benchmarks.jobs import JOBS, Cell, Profile, Way
from benchmarks.machine import (
    Filesystem,
    available_memory,
    describe,
    filesystem_of,
    load,
    version_of,
)
from benchmarks.results import SCHEMA, summary
from benchmarks.serializing import blob_paths

__all__ = ["Settings", "measure"]


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
        sizes = sources.program_sizes(cells)
        if any(sizes.values()):
            settings.say(f"exporting programs of {_sizes(sizes[False] | sizes[True])}")
            sources.export_programs(stage.programs, sizes)
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
    job = JOBS[cell.job]
    copies = ("sparse" not in job.source) + any(way.makes != "nothing" for way in job.ways)
    need = int(1.1 * copies * cell.size)
    free = shutil.disk_usage(folder).free
    if cell.folder == "tmpfs":
        free = min(free, available_memory())
    if need > free:
        stage.leave_out(title, f"needs {need >> 20} MiB, {free >> 20} MiB are free")
        return False
    return True


def _measure_cell(
    cell: Cell, rounds: int, order: random.Random, stage: _Stage, settings: Settings
) -> dict[str, Any]:
    """Run all ways of a cell, first once unmeasured, then in rounds, each in random order."""
    job, title = JOBS[cell.job], _title(cell)
    folder, filesystem = stage.folders[cell.folder]
    ways = [way for way in job.ways if _can_run(way, cell, title, stage)]
    settings.say(f"{title}: {', '.join(way.name for way in ways)}")
    source = sources.make_source(cell, folder, stage.programs)
    source_size = sources.source_size(cell, source)
    small = None
    if job.warms_up and cell.measure == "time":  # all memory from the first call on counts
        small = sources.make_source(sources.warm_up_cell(cell), folder, stage.programs)
    runs = []
    made: dict[str, object] = {}
    for number in range(rounds + 1):
        for way in order.sample(ways, len(ways)):
            run = _run(cell, way, source, small, settings, check=number == 0)
            made.setdefault(way.name, run["facts"].get("made"))
            _check_equal(made | {way.name: run["facts"].get("made", made[way.name])})
            if number:
                runs.append({"way": way.name, "round": number, **run})
    for path in folder.iterdir():
        path.unlink()
    measured: dict[str, Any] = {
        "job": cell.job,
        "what": job.what,
        "size": cell.size,
        "count": cell.count,
        "counted": job.counted,
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


def _run(
    cell: Cell, way: Way, source: Path, small: Path | None, settings: Settings, *, check: bool
) -> dict[str, Any]:
    """Do one run with the caches as wanted; what it made is checked and removed."""
    target, small_target = source.with_name("target"), source.with_name("small-target")

    def task(source: Path, target: Path, count: int) -> Task:
        cases = str(programs.cases_of(source))
        return Task(str(source), cases, str(target), cell.durability, dict(way.options), count)

    warm_up = None
    if small is not None:
        warm_up = task(small, small_target, sources.warm_up_cell(cell).count)
    sources.prepare_cache(cell, source, settings.cache)
    try:
        result = process.run(
            way.entry,
            task(source, target, cell.count),
            warm_up=warm_up,
            sample=cell.measure == "memory",
        )
        if way.makes == "program":
            if check:
                result["facts"]["made"] = _check_program(way, source, target)
        elif way.makes != "nothing":
            _check(way, source, target, thoroughly=check)
    finally:
        target.unlink(missing_ok=True)
        small_target.unlink(missing_ok=True)
    return result


def _check(way: Way, source: Path, target: Path, *, thoroughly: bool) -> None:
    """Check that a run made what it should.

    Raises:
        ValueError: It did not.
    """
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


def _check_program(way: Way, source: Path, target: Path) -> str:
    """Check that a program holds the source's blobs as constants, and return its digest.

    Raises:
        ValueError: It does not.
    """
    with cb.open(target) as file:
        file.check()
        if not isinstance(file, cb.PteFile) or len(file.segments) != 1:
            raise ValueError(f"{way.name} made no program with one segment")
        place, (data,) = file.program().constant_segment, file.segments
    paths = blob_paths(source)
    offsets = (place and place.offsets) or ()
    for path, offset in zip(paths, offsets[1:], strict=True):
        blob = cb.Cord.from_file(path)
        if data[offset : offset + len(blob)] != blob:
            raise ValueError(f"{way.name} changed the bytes of {path.name}")
    return cb.Cord.from_file(target).xxh3_128().hex()


def _check_equal(made: dict[str, object]) -> None:
    """Check that ways which say what they made have made the same.

    Raises:
        ValueError: They have not.
    """
    said = {way: it for way, it in made.items() if it is not None}
    if len(set(said.values())) > 1:
        raise ValueError(f"not the same: {said}")


def _title(cell: Cell) -> str:
    details = "" if cell.durability == "none" else ", until durable"
    counted = [f"{cell.count} {JOBS[cell.job].counted}"] if cell.count else []
    size = [_sizes([cell.size])] if cell.size else []
    what = ", ".join((cell.job, *counted, *size))
    return f"{what} on {cell.folder}, {cell.measure}{details}"


def _sizes(sizes: Iterable[int]) -> str:
    return ", ".join(f"{size >> 20} MiB" for size in sorted(sizes))
