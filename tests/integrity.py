"""Flip bits of a large bundle on the disk and count how many `verify` finds.

    python -m tests.integrity --flips 1000 --size 256

Rules of this file: every flip is one bit of a file that is otherwise sound, at a place that is
random but the same in every run; it is found if opening or `verify` says so, and undone after.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

import cordbundle as cb
from cordbundle.bundling import Form
from tests.support import floats, program, suite, tensor

MIB = 1 << 20


def write_bundle(path: Path, size: int, form: Form) -> None:
    """Write a bundle of about `size` bytes: a program, large and small tensors, named data."""
    choices = random.Random(size)
    count = max(1, size // 8 // 4)
    pte = program([tensor((count,))], [tensor((8,))])
    case = cb.MethodTestCase([floats((count,))], [floats((8,))])
    blobs = {f"blob {n}": choices.randbytes(size // 4) for n in range(3)}
    cb.bundle(pte, [suite(case)], named_data=blobs, form=form).write(path)


@contextmanager
def flipped(file: int, at: int, bit: int) -> Iterator[None]:
    """Flip one bit of a file."""
    old = os.pread(file, 1, at)
    os.pwrite(file, bytes([old[0] ^ (1 << bit)]), at)
    try:
        yield
    finally:
        os.pwrite(file, old, at)


def is_found(path: Path) -> bool:
    """Return whether a damaged file is told from a sound one."""
    try:
        with cb.open(path) as file:
            return bool(file.verify())
    except cb.CordBundleError:
        return True


def count_found(path: Path, flips: int) -> int:
    """Return how many of so many flips are found."""
    choices = random.Random(flips)
    file = os.open(path, os.O_RDWR)
    try:
        found = 0
        for _ in range(flips):
            with flipped(file, choices.randrange(path.stat().st_size), choices.randrange(8)):
                found += is_found(path)
        return found
    finally:
        os.close(file)


def speed_ratio(path: Path, rounds: int = 9) -> float:
    """Return the speed of `verify` as a share of bare reading and hashing, from the page cache.

    Best of each, in processor time of the thread, so that a busy machine does not decide.
    """
    best = {"verify": float("inf"), "bare": float("inf")}
    with cb.open(path) as file:
        for _ in range(rounds):
            for name, run in (("bare", lambda: _hash(path)), ("verify", file.verify)):
                start = time.thread_time()
                run()
                best[name] = min(best[name], time.thread_time() - start)
    return best["bare"] / best["verify"]


def _hash(path: Path) -> None:
    hasher, block, at = xxhash.xxh3_128(), bytearray(MIB), 0
    with open(path, "rb", buffering=0) as file:
        while count := os.preadv(file.fileno(), [block], at):
            hasher.update(memoryview(block)[:count])
            at += count


def main() -> int:
    """Run what the command line asks for; the exit code is 1 if a flip was not found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--flips", type=int, default=1000, help="per form")
    parser.add_argument("--size", type=int, default=64, help="MiB")
    parser.add_argument("--folder", default=None, help="where to put the bundle")
    words = parser.parse_args()
    missed = 0
    forms: tuple[Form, ...] = ("bp08", "segmented", "detached")
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        path = Path(folder) / "model.bpte"
        for form in forms:
            write_bundle(path, words.size * MIB, form)
            found = count_found(path, words.flips)
            missed += words.flips - found
            ratio = speed_ratio(path)
            print(
                f"{form}: {path.stat().st_size} bytes: {found}/{words.flips} flipped bits found;"
                f" verify runs at {ratio:.0%} of the speed of bare reading and xxh3-128"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
