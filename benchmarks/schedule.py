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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import process, programs, sources
from benchmarks.checks import check, check_equal
from benchmarks.child import Task
from benchmarks.filesystems import mounted, why_not
from benchmarks.jobs import JOBS
from benchmarks.machine import (
    Filesystem,
    available_memory,
    describe,
    filesystem_of,
    load,
    version_of,
)
from benchmarks.results import SCHEMA, summary
from benchmarks.terms import GIB, LOOPS, Cache, Cell, Folder, Profile, Way

__all__ = ["Settings", "measure"]

_SPARE = 2 * GIB  # for what a filesystem needs itself


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure.

    Attributes:
        folders: Where to put files: by "disk" and "tmpfs"; other filesystems are made on the first.
        cache: Whether sources are in the page cache ("warm") or dropped from it before each run.
        rounds: Measured runs of each way, in place of the profile's number.
        jobs: Names of the jobs to run; all if empty.
        sizes: Sizes to run, in bytes; all if empty.
        measures: What to measure, "time" or "memory"; both if empty.
        on: Where, "disk", "tmpfs", "xfs" or "btrfs"; everywhere if empty.
        seed: Of the random order.
        say: Called with progress.
    """

    folders: dict[Folder, Path]
    cache: Cache = "warm"
    rounds: int | None = None
    jobs: frozenset[str] = frozenset()
    sizes: frozenset[int] = frozenset()
    measures: frozenset[str] = frozenset()
    on: frozenset[str] = frozenset()
    seed: int = 0
    say: Callable[[str], object] = print

    def wants(self, cell: Cell) -> bool:
        """Return whether a cell is to be measured."""
        return (
            (not self.jobs or cell.job in self.jobs)
            and (not self.sizes or cell.size in self.sizes)
            and (not self.measures or cell.measure in self.measures)
            and (not self.on or cell.folder in self.on)
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder for sources and targets.

    Attributes:
        folder: The folder.
        filesystem: What it is on.
        device: Number of the block device under it, if nobody else writes to that.
    """

    folder: Path
    filesystem: Filesystem
    device: str = ""


@dataclass(slots=True)
class _Stage:
    """The folders of this run.

    Attributes:
        programs: Where exported programs are.
        places: Where sources and targets are.
        missing: Why there is no place, where there is none.
        left_out: What was not measured, and why.
        broken: What was measured in vain, and why.
    """

    programs: Path
    places: dict[Folder, _Place]
    missing: dict[Folder, str] = field(default_factory=dict)
    left_out: list[dict[str, str]] = field(default_factory=list)
    broken: list[dict[str, str]] = field(default_factory=list)

    def leave_out(self, what: str, why: str) -> None:
        self.left_out.append({"what": what, "why": why})


def measure(name: str, profile: Profile, settings: Settings) -> dict[str, Any]:
    """Measure all cells of a profile and return the results.

    A cell of which a run broke, or made something else than it should, is "broken" in them.
    """
    cells = [
        replace(cell, cache=cell.cache or settings.cache)
        for cell in profile.cells
        if settings.wants(cell)
    ]
    order = random.Random(settings.seed)
    load_before, start = load(), time.time()
    with _stage(settings, cells) as stage:
        cells = [cell for cell in cells if _fits(cell, stage)]
        sizes = sources.program_sizes(cells)
        if any(sizes.values()):
            settings.say(f"exporting programs of {_sizes(sizes[False] | sizes[True])}")
            sources.export_programs(stage.programs, sizes)
        found = []
        for cell in cells:
            try:
                rounds = settings.rounds or profile.rounds
                found.append(_measure_cell(cell, rounds, order, stage, settings))
            except (process.RunError, ValueError) as error:  # the other cells may do
                settings.say(f"  broken: {error}")
                stage.broken.append({"what": _title(cell), "why": str(error)})
        filesystems = {it.filesystem.kind: it.filesystem for it in stage.places.values()}
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
        "broken": stage.broken,
    }


@contextlib.contextmanager
def _stage(settings: Settings, cells: list[Cell]) -> Iterator[_Stage]:
    """Make the folders, and remove them with all that is in them."""
    with contextlib.ExitStack() as stack:

        def folder_in(parent: Path) -> Path:
            made = tempfile.TemporaryDirectory(
                prefix="cordbundle-benchmark-", dir=parent, ignore_cleanup_errors=True
            )
            return Path(stack.enter_context(made))

        places: dict[Folder, _Place] = {
            name: _Place(folder_in(parent), filesystem_of(parent))
            for name, parent in settings.folders.items()
        }
        first = next(iter(settings.folders.values()))
        stage = _Stage(folder_in(settings.folders.get("disk", first)), places)
        for kind in LOOPS:
            needs = [_need(cell) for cell in cells if cell.folder == kind]
            stage.missing[kind] = why_not(kind) or ""
            if not needs or stage.missing[kind]:
                continue
            try:
                it = stack.enter_context(mounted(kind, stage.programs, max(needs) + _SPARE))
            except OSError as error:
                stage.missing[kind] = str(error)
            else:
                places[kind] = _Place(it.folder, filesystem_of(it.folder), it.device)
        yield stage


def _fits(cell: Cell, stage: _Stage) -> bool:
    """Return whether a cell can be measured here; if not, a word is left."""
    title = _title(cell)
    if cell.folder not in stage.places:
        why = stage.missing.get(cell.folder) or f"no folder on {cell.folder}"
        stage.leave_out(title, why)
        return False
    if cell.cache == "cold" and (why := sources.why_not_cold(cell)):
        stage.leave_out(title, why)
        return False
    need = _need(cell)
    folders = (stage.places[cell.folder].folder, stage.programs)
    free = min(shutil.disk_usage(folder).free for folder in folders)
    if cell.folder == "tmpfs":
        free = min(free, available_memory())
    if need > free:
        stage.leave_out(title, f"needs {need >> 20} MiB, {free >> 20} MiB are free")
        return False
    return True


def _need(cell: Cell) -> int:
    """Return how much room the files of a cell take, in bytes."""
    job = JOBS[cell.job]
    copies = ("sparse" not in job.source) + any(way.makes != "nothing" for way in job.ways)
    copies += job.source in ("dense bundle", "paged program")  # the program beside it
    return int(1.1 * copies * cell.size)


def _measure_cell(
    cell: Cell, rounds: int, order: random.Random, stage: _Stage, settings: Settings
) -> dict[str, Any]:
    """Run all ways of a cell, first once unmeasured, then in rounds, each in random order."""
    job, title = JOBS[cell.job], _title(cell)
    start = time.monotonic()
    place = stage.places[cell.folder]
    ways = [way for way in job.ways if _can_run(way, cell, title, stage)]
    settings.say(f"{title}: {', '.join(way.name for way in ways)}")
    try:
        scene = _set(cell, place, stage)
        source_size = sources.source_size(cell, scene.source)
        runs = list(_rounds(scene, ways, rounds, order))
    finally:
        for path in place.folder.iterdir():
            path.unlink()
    measured: dict[str, Any] = {
        "job": cell.job,
        "what": job.what,
        "size": cell.size,
        "count": cell.count,
        "counted": job.counted,
        "source_size": source_size,
        "filesystem": place.filesystem.kind,
        "measure": cell.measure,
        "durability": cell.durability,
        "cache": cell.cache,
        "ways": [way.name for way in ways],
        "floor": job.floor_on(cell.folder),
        "calls": scene.calls,
        "took_seconds": round(time.monotonic() - start, 1),
        "runs": runs,
    }
    measured["summary"] = summary(measured)
    for way, it in measured["summary"].items():
        settings.say(f"  {way}: median {it['seconds']['median']:.4g} s")
    settings.say(f"  all of it took {measured['took_seconds']} s")
    return measured


def _set(cell: Cell, place: _Place, stage: _Stage) -> _Scene:
    """Make what a cell needs."""
    source = sources.make_source(cell, place.folder, stage.programs)
    small = None
    if JOBS[cell.job].warms_up and cell.measure == "time":  # all memory from the first call counts
        warm_up = sources.warm_up_cell(cell)
        small = source
        if warm_up != cell:
            small = sources.make_source(warm_up, place.folder, stage.programs)
    return _Scene(cell, source, small, place.device)


def _rounds(
    scene: _Scene, ways: list[Way], rounds: int, order: random.Random
) -> Iterator[dict[str, Any]]:
    """Yield the runs that count: each way once in every round, in random order.

    Raises:
        benchmarks.process.RunError: A run broke.
        ValueError: A run made something else than it should.
    """
    made: dict[str, object] = {}
    for number in range(rounds + 1):
        for way in order.sample(ways, len(ways)):
            run = _run(scene, way, first=number == 0)
            made.setdefault(way.name, run["facts"].get("made"))
            check_equal(made | {way.name: run["facts"].get("made", made[way.name])})
            if number:
                yield {"way": way.name, "round": number, **run}


def _can_run(way: Way, cell: Cell, title: str, stage: _Stage) -> bool:
    """Return whether a way takes part in a cell; if it should and cannot, a word is left."""
    if not cell.wants(way):
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


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all runs of a cell have in common.

    Attributes:
        cell: The cell.
        source: Its source.
        small: A source of the same kind to warm up with; None where nothing is.
        device: Number of the block device under the target, if nobody else writes to it.
        calls: System calls of each way by name, as far as they were counted.
    """

    cell: Cell
    source: Path
    small: Path | None
    device: str
    calls: dict[str, dict[str, int]] = field(default_factory=dict)


def _run(scene: _Scene, way: Way, *, first: bool) -> dict[str, Any]:
    """Do one run with the caches as wanted; what it made is removed.

    Args:
        scene: The cell.
        way: The way.
        first: Whether to check what it makes and to count its system calls, which slows it down.
    """
    cell, source = scene.cell, scene.source
    target, small_target = source.with_name("target"), source.with_name("small-target")

    def task(source: Path, target: Path, count: int, device: str = "") -> Task:
        cases, options = str(programs.cases_of(source)), dict(way.options)
        return Task(str(source), cases, str(target), cell.durability, options, count, device)

    warm_up = None
    if scene.small is not None:
        warm_up = task(scene.small, small_target, sources.warm_up_cell(cell).count)
    sources.prepare_cache(cell, source)
    whole = task(source, target, cell.count, scene.device)
    try:
        if first and cell.measure == "time" and process.can_trace():
            result, scene.calls[way.name] = process.trace(way.entry, whole, warm_up=warm_up)
        else:
            sample = cell.measure == "memory"
            result = process.run(way.entry, whole, warm_up=warm_up, sample=sample)
        if way.makes != "nothing" and target.stat().st_size < 0.99 * source.stat().st_size:
            raise ValueError(f"{way.name} made a file of {target.stat().st_size} bytes")
        if first and (made := check(way, source, target)):
            result["facts"]["made"] = made
    finally:
        target.unlink(missing_ok=True)
        small_target.unlink(missing_ok=True)
    return result


def _title(cell: Cell) -> str:
    details = "" if cell.durability == "none" else ", until durable"
    details += ", cold" if cell.cache == "cold" else ""
    counted = [f"{cell.count} {JOBS[cell.job].counted}"] if cell.count else []
    size = [_sizes([cell.size])] if cell.size else []
    what = ", ".join((cell.job, *counted, *size))
    return f"{what} on {cell.folder}, {cell.measure}{details}"


def _sizes(sizes: Iterable[int]) -> str:
    return ", ".join(f"{size >> 20} MiB" for size in sorted(sizes))
