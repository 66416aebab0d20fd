"""One process of a fuzzing run; started by `__main__.py`.

    python -m tests.fuzz.worker fuzz TARGET SECONDS FOLDER    one target under atheris
    python -m tests.fuzz.worker replay FOLDER REPORT          all corpora through `coverage`

Rules of this file: the package is imported only once its instrumentation is in place; figures are
written to a file as they come, since libFuzzer ends the process in its own way.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import random
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]

MAX_SIZE = 64 << 10
_MEMORY_EVERY = 64  # executions per one whose memory is measured, which takes ten times as long
_WRITE_EVERY = 1.0  # seconds
_OWN_SHARE = 0.8  # of mutations that know the format; the rest are libFuzzer's


def main() -> None:
    """Do what the command line says."""
    if sys.argv[1] == "fuzz":
        fuzz(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        replay(Path(sys.argv[2]), Path(sys.argv[3]))


def _import_all() -> None:
    """Import every module of the package that needs no exporter."""
    package = importlib.import_module("cordbundle")
    for module in pkgutil.walk_packages(package.__path__, "cordbundle."):
        if "executorch" not in module.name and "__main__" not in module.name:
            importlib.import_module(module.name)


class _Figures:
    """What became of the inputs of a target.

    Attributes:
        counts: Executions by kind of file and verdict.
        memory: The most memory that an execution took, in bytes, and the size of its input.
        slowest: The longest time that one took, in seconds, and the size of its input.
    """

    def __init__(self, path: Path) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self.memory = (0, 0)
        self.slowest = (0.0, 0)
        self._path = path
        self._written = 0.0

    def add(self, kind: str, verdict: str, seconds: float, size: int) -> None:
        """Count an execution."""
        verdicts = self.counts.setdefault(kind, {})
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        self.slowest = max(self.slowest, (seconds, size))
        if time.monotonic() - self._written > _WRITE_EVERY:
            self.write()

    def write(self) -> None:
        """Write all figures, whole or not at all."""
        self._written = time.monotonic()
        made = {"counts": self.counts, "memory": self.memory, "slowest": self.slowest}
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(made))
        os.replace(beside, self._path)


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Run one target under atheris; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["cordbundle"]):
        _import_all()
    from tests.fuzz.damage import apply, random_damage
    from tests.fuzz.reading import kind_of
    from tests.fuzz.targets import TARGETS, memory_used

    target, numbers = TARGETS[name], iter(range(1 << 62))
    figures = _Figures(folder / f"{name}.json")

    def one(data: bytes) -> None:
        started = time.perf_counter()
        if next(numbers) % _MEMORY_EVERY:
            verdict = target(data)
            figures.add(kind_of(data), verdict, time.perf_counter() - started, len(data))
        else:
            verdict, used = memory_used(target, data)
            figures.memory = max(figures.memory, (used, len(data)))
            figures.add(kind_of(data), verdict, 0.0, len(data))

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if draw.random() < _OWN_SHARE:
            damages = [random_damage(draw) for _ in range(draw.choice((1, 1, 2, 4)))]
            made = apply(bytes(data), damages)[:max_size]
            if made != data:
                return made
        return bytes(atheris.Mutate(data, max_size))

    def cross(data: bytes, other: bytes, max_size: int, seed: int) -> bytes:
        draw = random.Random(seed)
        first, second = sorted(draw.randrange(len(other) + 1) for _ in range(2))
        at = draw.choice((first, draw.randrange(len(data) + 1)))
        return bytes(data[:at] + other[first:second] + data[at + second - first :])[:max_size]

    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_SIZE}",
        f"-artifact_prefix={folder / name}-",
        "-timeout=5",
        "-rss_limit_mb=1024",
        "-print_final_stats=1",
        str(folder / name),
        str(folder / "seeds"),
    ]
    atheris.Setup([sys.argv[0], *options], one, custom_mutator=mutate, custom_crossover=cross)
    atheris.Fuzz()


def replay(folder: Path, report: Path) -> None:
    """Run the corpus of every target and measure what of the package it covers."""
    import coverage

    measured = coverage.Coverage(branch=True, source_pkgs=["cordbundle"], data_file=None)
    measured.start()
    from tests.fuzz.targets import TARGETS

    for name, target in TARGETS.items():
        for corpus in (folder / name, folder / "seeds"):
            for path in sorted(corpus.iterdir() if corpus.is_dir() else ()):
                with contextlib.suppress(AssertionError):  # counted where it was found
                    target(path.read_bytes())
    measured.stop()
    measured.json_report(outfile=str(report), ignore_errors=True)
    files: dict[str, Any] = json.loads(report.read_text())["files"]
    summary = {path: file["summary"] for path, file in files.items()}
    report.write_text(json.dumps(summary))


if __name__ == "__main__":
    main()
