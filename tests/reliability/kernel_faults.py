"""Every system call of a small write, failed by the kernel.

The command is `python -m tests.reliability.kernel_faults`.

Rules of this file: what `faults.py` does to Python's functions, strace does here to the calls that
Python makes of them, each in a process of its own; so Python's own repetition after EINTR is tried
too, and no call can be forgotten. Needs Linux and strace.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from cordbundle.errors import WriteError
from cordbundle.writer import write
from tests.faults import litter
from tests.reliability.sample import sample_bundle

__all__: list[str] = []

OLD = b"the old file"
MARKER = "/the write begins"
ERRORS = ["ENOSPC", "EIO", "EINTR", "EAGAIN", "EPERM", "EBADF"]

_NOT_OF_FILES = re.compile(
    r"mmap|munmap|mprotect|mremap|madvise|brk|rt_sig|futex|clock|gettid|rseq"
)
_WRITTEN, _WRITE_ERROR, _SOURCE_ERROR = 0, 3, 4


def child(folder: Path) -> int:
    """Write the sample over the old file; the exit code says what was raised."""
    cord = sample_bundle(folder)
    if os.path.exists(MARKER):
        return 1
    try:
        write(cord, folder / "out" / "target", durability="dir")
    except WriteError:
        return _WRITE_ERROR
    except OSError:  # of a call that read a source
        return _SOURCE_ERROR
    return _WRITTEN


def prepare(folder: Path) -> None:
    """Bring the target into its old state, with what a dead writer left."""
    (folder / "out").mkdir(exist_ok=True)
    for name in litter(folder / "out"):
        (folder / "out" / name).unlink()
    (folder / "out" / "target").write_bytes(OLD)
    (folder / "out" / ".target.0123456789abcdef.cordbundle-tmp").write_bytes(b"half a file")


def run(folder: Path, *options: str) -> int:
    """Run the child under strace and return its exit code."""
    prepare(folder)
    command = ["strace", "-f", "-o", os.fspath(folder / "trace"), *options]
    command += [
        sys.executable,
        "-m",
        "tests.reliability.kernel_faults",
        "--child",
        os.fspath(folder),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, env=environment, check=False, stderr=subprocess.PIPE).returncode


def calls(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the calls of a write: a name, and which of all calls of that name it is, from 1."""
    assert run(folder) == _WRITTEN
    seen: Counter[str] = Counter()
    begun = False
    for line in (folder / "trace").read_text().splitlines():
        match = re.match(r"\d+ +(\w+)\(", line)
        if match is None or line.split()[1].startswith("exit"):
            continue
        seen[match[1]] += 1
        if begun and not _NOT_OF_FILES.match(match[1]):
            if match[1] == "write" and line.split("(")[1].startswith(("1,", "2,")):
                break
            yield match[1], seen[match[1]]
        begun = begun or MARKER in line


def check(folder: Path, expected: bytes, code: int, point: str) -> None:
    """Raise AssertionError if a fault was not survived."""
    data = (folder / "out" / "target").read_bytes()
    left = [name for name in litter(folder / "out") if "0123456789abcdef" not in name]
    assert code in (_WRITTEN, _WRITE_ERROR, _SOURCE_ERROR), f"{point}: exit code {code}"
    assert data in ((expected,) if code == _WRITTEN else (OLD, expected)), f"{point}: torn"
    assert left == [], f"{point}: {left}"


def main() -> None:
    """Fail every call in every way, and print how many points were tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help="where to write; a temporary folder by default")
    options = parser.parse_args()
    if options.child is not None:
        sys.exit(child(options.child))
    start = perf_counter()
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        made = list(calls(folder))
        made = made[: _end(made)]
        expected = (folder / "out" / "target").read_bytes()
        print(f"{len(made)} calls: {', '.join(f'{n} {k}' for k, n in _count(made))}", flush=True)
        for call, index in made:
            for error in ERRORS:
                inject = f"inject={call}:error={error}:when={index}"
                code = run(folder, "-e", inject)
                check(folder, expected, code, inject)
                words = {_WRITTEN: "written all the same", _WRITE_ERROR: "WriteError"}
                found[words.get(code, "OSError of a source")] += 1
    facts = ", ".join(f"{count} {what}" for what, count in found.items())
    print(f"{found.total()} points survived in {perf_counter() - start:.0f} s: {facts}")


def _end(made: list[tuple[str, int]]) -> int:
    """Return where the write ends: with the closing of the folder, after its fsync."""
    last = max(at for at, (call, _) in enumerate(made) if call == "fsync")
    return last + 2


def _count(made: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(Counter(call for call, _ in made).items())


if __name__ == "__main__":
    main()
