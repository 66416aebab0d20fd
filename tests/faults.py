"""Targets and system calls that fail on purpose, for tests.

Rules of this file: a fault replaces one function of `os` for the length of a `with`; what it does
not break it hands to the real one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "FakeObject",
    "broken_call",
    "counted_call",
    "litter",
    "mounted_image",
    "short_calls",
    "short_reads",
]

_MIB = 1 << 20
_SYSTEM = "/usr/sbin:/sbin:/usr/bin:/bin"


class FakeObject:
    """An object with `write()` that keeps what it takes.

    Args:
        step: Most bytes that it takes at a time.
        answer: What it returns, computed from the number of bytes taken; that number by default.
    """

    def __init__(self, step: int, answer: Callable[[int], object] = lambda taken: taken) -> None:
        self.taken = bytearray()
        self.largest = 0
        self._step = step
        self._answer = answer

    def write(self, data: memoryview, /) -> Any:
        self.largest = max(self.largest, data.nbytes)
        part = data[: self._step]
        self.taken += part
        return self._answer(part.nbytes)


@contextlib.contextmanager
def _replaced(name: str, function: Callable[..., object]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, function)
        yield


@contextlib.contextmanager
def counted_call(name: str) -> Iterator[list[tuple[Any, ...]]]:
    """Record the arguments of every call of `os.<name>`."""
    real = getattr(os, name)
    calls: list[tuple[Any, ...]] = []

    def record(*arguments: Any, **named: Any) -> object:
        calls.append(arguments)
        return real(*arguments, **named)

    with _replaced(name, record):
        yield calls


@contextlib.contextmanager
def broken_call(name: str, number: int, at: int) -> Iterator[list[int]]:
    """Let call `at` of `os.<name>` fail with an error number; yields the calls' indices."""
    real = getattr(os, name)
    calls: list[int] = []

    def fail(*arguments: Any, **named: Any) -> object:
        calls.append(len(calls))
        if calls[-1] == at:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **named)

    gc.collect()  # what earlier tests left would make calls of its own, such as close
    with _replaced(name, fail):
        yield calls


@contextlib.contextmanager
def short_calls(limit: int) -> Iterator[None]:
    """Let the calls that write take at most `limit` bytes at a time; 0 takes none."""
    real, real_at = os.write, os.pwrite

    def write(descriptor: int, data: Any) -> int:
        return real(descriptor, memoryview(data)[:limit]) if limit else 0

    def writev(descriptor: int, views: list[memoryview]) -> int:
        joined = b"".join(views)
        return real(descriptor, joined[:limit]) if limit else 0

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        return real_at(descriptor, memoryview(data)[:limit], offset) if limit else 0

    with _replaced("write", write), _replaced("writev", writev), _replaced("pwrite", pwrite):
        yield


def litter(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of temporary files in a folder."""
    return [name for name in os.listdir(folder) if name.endswith(".cordbundle-tmp")]


@contextlib.contextmanager
def short_reads(limit: int) -> Iterator[None]:
    """Let the calls that read files return at most `limit` bytes at a time, as servers may."""
    real = os.preadv

    def preadv(descriptor: int, views: list[Any], offset: int) -> int:
        return real(descriptor, [memoryview(views[0])[:limit]], offset) if limit else 0

    with _replaced("preadv", preadv):
        yield


@contextlib.contextmanager
def mounted_image(kind: str, size: int, image: Path, folder: Path) -> Iterator[Path]:
    """Lend a folder on a real filesystem of its own; skip the test where that is not allowed.

    Args:
        kind: The filesystem, as `mkfs` names it.
        size: Its size in MiB.
        image: The file to make that holds it.
        folder: The folder to make that it is mounted at.
    """
    make = shutil.which(f"mkfs.{kind}", path=_SYSTEM)
    if os.geteuid() != 0 or make is None:
        pytest.skip(f"needs root and mkfs.{kind}")
    with image.open("wb") as file:
        file.truncate(size * _MIB)
    subprocess.run([make, "-q", image], check=True, capture_output=True)
    folder.mkdir()
    if subprocess.run(["mount", "-o", "loop", image, folder], check=False).returncode != 0:
        pytest.skip("cannot mount an image")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
