"""Do programs load that `verify` calls sound? `python -m tests.fuzz.loading --seconds N`.

Rules of this file: programs are changed as records, in one to three fields, and written with their
segments as they were; what is then sound is given to ExecuTorch's runtime, which loads the program
and each of its methods in a process of its own, so that the end of that process is a figure. An
error of the runtime is none. Needs ExecuTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import math
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer import encode
from cordbundle.headers import PROGRAM_HEADER, ExtendedHeader, flatbuffer_with_header
from tests.fuzz.seeds import REPOSITORY

__all__ = ["SEEDS", "Loader", "sound_changes"]

SEEDS = ("counter", "dynamic", "mlp", "scalars", "two_methods")
"""Programs in `examples/` without a delegate, whose payload `verify` does not know."""

_EDGES = (-1, 0, 1, 2, 16, 127, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
_REFUSALS = (RuntimeError, MemoryError)  # the latter for planned buffers of exabytes
_SLOT = 32  # bytes for the header
_LONGEST = 200  # of a list that was repeated
_LENGTH = 4  # bytes before each file for the worker


def sound_changes(seed: int, tried: Counter[str]) -> Iterator[bytes]:
    """Yield changed programs that are sound, without end.

    Args:
        seed: Of the random numbers.
        tried: Counts what became of the others: "not written" by our own encoder, or "unsound".
    """
    numbers = random.Random(seed)
    originals = [_read(name) for name in SEEDS]
    while True:
        program, segments = numbers.choice(originals)
        changed = copy.deepcopy(program)
        for _ in range(numbers.choice((1, 1, 2, 3))):
            _change(changed, numbers)
        try:
            data = _written(changed, segments)
        except cb.CordBundleError:
            tried["not written"] += 1
            continue
        with cb.open(data) as file:
            if file.verify():
                tried["unsound"] += 1
                continue
        tried["sound"] += 1
        yield data


def _read(name: str) -> tuple[schema.Program, bytes]:
    """Return a program of the examples, and its segments."""
    data = (REPOSITORY / "examples" / f"{name}.pte").read_bytes()
    with cb.open(data) as file:
        assert isinstance(file, cb.PteFile)
        begin = file.segment_ranges[0].offset if file.segment_ranges else len(data)
        return file.program(), data[begin:]


def _written(program: schema.Program, segments: bytes) -> bytes:
    flat = encode(program, schema.PROGRAM_IDENTIFIER).cord
    end = _SLOT + len(flat)
    base = end + -end % 128 if segments else 0
    header = PROGRAM_HEADER.pack(ExtendedHeader(0, end, base, len(segments)), _SLOT)
    return bytes(flatbuffer_with_header(flat, header)).ljust(base, b"\0") + segments


def _change(program: schema.Program, numbers: random.Random) -> None:
    """Change one field of one record, each field of the schema as likely as any other."""
    records: dict[tuple[type, str], list[Any]] = {}
    _collect(program, records)
    kind, name = numbers.choice(list(records))
    owners = records[kind, name]
    owner = numbers.choice(owners)
    other = getattr(numbers.choice(owners), name)
    setattr(owner, name, _changed(getattr(owner, name), copy.deepcopy(other), numbers))


def _collect(item: object, records: dict[tuple[type, str], list[Any]]) -> None:
    if isinstance(item, list | tuple):
        for one in item:
            _collect(one, records)
    elif dataclasses.is_dataclass(item):
        for field in dataclasses.fields(item):
            records.setdefault((type(item), field.name), []).append(item)
            _collect(getattr(item, field.name), records)


def _changed(value: Any, other: Any, numbers: random.Random) -> Any:
    """Return another value, or that of the same field in another record."""
    if value is None or numbers.random() < 0.3:
        return other
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = value + numbers.choice((-8, -1, 1, 2, 8))
        return numbers.choice((*_EDGES, near, near, near))
    if isinstance(value, str):
        return numbers.choice((None, "", "x" * 99, "x" * 3000, "a\0b", value[1:]))
    if isinstance(value, list | tuple):
        return _changed_list(list(value), numbers)
    return numbers.choice((math.nan, math.inf, -1.0)) if isinstance(value, float) else None


def _changed_list(items: list[Any], numbers: random.Random) -> list[Any] | None:
    way = numbers.randrange(6)
    if way == 0 or not items:
        return numbers.choice((None, []))
    at = numbers.randrange(len(items))
    if way == 1:
        del items[at]
    elif way == 2:
        items.insert(at, copy.deepcopy(numbers.choice(items)))
    elif way == 3:
        items[at], items[0] = items[0], items[at]
    elif way == 4:
        items = (items * numbers.choice((2, 40)))[:_LONGEST]
    elif isinstance(items[at], int):
        items[at] = numbers.choice((*_EDGES, *range(12)))
    return items


class Loader:
    """A process that loads programs, and is started anew when one has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def load(self, data: bytes) -> str:
        """Return "loaded", "refused", or the name of the signal that ended the process."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.loading", "--worker"],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(len(data).to_bytes(_LENGTH, "little") + data)
        process.stdin.flush()
        answer = process.stdout.readline().decode().strip()
        if answer:
            return answer
        self.close()
        code = process.returncode
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(BrokenPipeError), process:
                pass

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _work() -> None:
    """Load what comes in, and say what became of it."""
    from executorch.extension.pybindings import portable_lib as runtime

    while head := sys.stdin.buffer.read(_LENGTH):
        data = sys.stdin.buffer.read(int.from_bytes(head, "little"))
        print(_load(runtime, data), flush=True)


def _load(runtime: Any, data: bytes) -> str:
    with cb.open(data) as file:
        assert isinstance(file, cb.PteFile)
        names = list(file.methods)
    answer = "loaded"
    for level in (runtime.Verification.Minimal, runtime.Verification.InternalConsistency):
        try:
            program = runtime._load_program_from_buffer(data, program_verification=level)
        except _REFUSALS:
            answer = "refused"
            continue
        for name in names:
            try:
                program.method_meta(name)
                program.load_method(name)
            except _REFUSALS:
                answer = "refused"
    return answer


def main() -> int:
    """Try for a while, and say what became of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.loading")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work()
        return 0
    end = time.monotonic() + options.seconds
    tried: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    with Loader() as loader:
        for data in sound_changes(options.seed, tried):
            answers[loader.load(data)] += 1
            if time.monotonic() > end:
                break
    print(f"{sum(tried.values())} programs tried: {dict(tried)}; sound ones: {dict(answers)}")
    return 0 if set(answers) <= {"loaded", "refused"} else 1


if __name__ == "__main__":
    sys.exit(main())
