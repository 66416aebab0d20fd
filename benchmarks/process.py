"""Start a process under test and watch its memory from outside.

Rules of this file: a process never outlives its run, whatever happens here. Memory is sampled by
the parent, since a thread of the process itself would wait for the interpreter lock while a large
copy holds it, and be part of what it measures.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from benchmarks.child import MARK, Task
from benchmarks.procfs import memory, rollup

__all__ = ["REPOSITORY", "RunError", "can_trace", "run", "trace"]

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLE_EVERY = 0.001
"""Seconds between two looks at the memory."""
ROLLUP_SHARE = 0.2
"""Of the time, at most, that is spent on looking at pages one by one: it holds the process up."""

_CALL = re.compile(r"^\d+ +(\w+)\(")


class RunError(RuntimeError):
    """A run that broke; its text is what the process said last."""


def run(entry: str, task: Task, *, warm_up: Task | None, sample: bool) -> dict[str, Any]:
    """Run a task in a process of its own.

    Args:
        entry: "module:function" of the way.
        task: What to do.
        warm_up: A small task of the same kind to do first, outside of what is measured.
        sample: Whether to watch the memory; such a run's time is not comparable.

    Returns:
        What the process measured, and with `sample` also the peaks above what was resident after
        the import, in bytes.

    Raises:
        RunError: The process failed.
    """
    with _child() as (process, errors):
        imported = _tell(process, errors, _order(entry, task, warm_up))["memory"]
        if not sample:
            return _tell(process, errors, "go")
        with _Sampler(process.pid) as sampler:
            result = _tell(process, errors, "go")
        return result | {"peak": sampler.above(imported, result["memory"])}


def _order(entry: str, task: Task, warm_up: Task | None) -> str:
    """Return what a process is told first."""
    small = None if warm_up is None else asdict(warm_up)
    return json.dumps({"entry": entry, "task": asdict(task), "warm_up": small})


def can_trace() -> bool:
    """Tell whether system calls can be counted: `strace` may attach to a process of ours."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    free = os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"
    return free and shutil.which("strace") is not None


def trace(entry: str, task: Task, *, warm_up: Task | None) -> tuple[dict[str, Any], dict[str, int]]:
    """Run a task as `run` does, under `strace`, which makes it slow.

    Returns:
        What the process measured, and how many system calls of each name there were in what was
        measured, in all threads and processes.

    Raises:
        RunError: The process failed.
    """
    with tempfile.NamedTemporaryFile("r", errors="replace") as log:
        with _child() as (process, errors):
            _tell(process, errors, _order(entry, replace(task, marked=True), warm_up))
            with _attached(process.pid, log.name):
                result = _tell(process, errors, "go")
                process.wait()
        return result, dict(_calls(log).most_common())


@contextlib.contextmanager
def _attached(process: int, log: str) -> Iterator[None]:
    """Trace a process and all that it starts until they end."""
    command = ["strace", "-f", "-s", "0", "-o", log, "-p", str(process)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        try:
            assert tracer.stderr
            if "attached" not in (said := tracer.stderr.readline()):
                raise RunError(said.strip() or "strace said nothing")
            yield
        except BaseException:
            tracer.terminate()
            raise


def _calls(log: IO[str]) -> Counter[str]:
    """Count the system calls of a trace between its two marks."""
    calls: Counter[str] = Counter()
    marks = 0
    for line in log:
        if MARK in line:
            marks += 1
        elif marks == 1 and (call := _CALL.match(line)):
            calls[call[1]] += 1
    return calls


@contextlib.contextmanager
def _child() -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=REPOSITORY,
        ) as process,
    ):
        try:
            yield process, errors
        finally:
            process.kill()


def _tell(process: subprocess.Popen[str], errors: IO[str], message: str) -> dict[str, Any]:
    """Send a line and return the answer."""
    assert process.stdin and process.stdout
    with contextlib.suppress(BrokenPipeError):
        print(message, file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        errors.seek(0)
        said = errors.read().strip().splitlines()
        raise RunError(said[-1] if said else f"ended with status {process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


class _Sampler:
    """Keeps the largest resident memory of a process, by kind."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._peak = memory(process) | rollup(process)
        self._samples = 0
        self._longest_gap = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        last = next_rollup = time.perf_counter()
        while not self._stop.is_set():
            try:
                found = memory(self._process)
                if (start := time.perf_counter()) >= next_rollup:
                    found |= rollup(self._process)
                    end = time.perf_counter()
                    next_rollup = end + (end - start) * (1 / ROLLUP_SHARE - 1)
            except OSError:  # it ended
                return
            for kind, size in found.items():
                self._peak[kind] = max(self._peak.get(kind, 0), size)
            self._samples += 1
            now = time.perf_counter()
            self._longest_gap = max(self._longest_gap, now - last)
            last = now
            self._stop.wait(SAMPLE_EVERY)

    def above(self, imported: dict[str, int], at_the_end: dict[str, int]) -> dict[str, object]:
        """Return peaks above what was resident after the import."""
        kinds = {
            "anonymous": "RssAnon",
            "file": "RssFile",
            "shared": "RssShmem",
            "rollup_anonymous": "RollupAnonymous",
            "rollup_file": "RollupFile",
        }
        return {
            **{word: self._peak[kind] - imported[kind] for word, kind in kinds.items()},
            # Kept by the kernel: no peak of the whole between two samples is missed.
            "total": at_the_end["VmHWM"] - imported["VmRSS"],
            "samples": self._samples,
            "longest_gap_seconds": self._longest_gap,
        }
