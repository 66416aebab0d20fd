"""Writers that are killed, at every call and at random moments.

The long version is `python -m tests.reliability.kill`.

Rules of this file: a writer is a child process that ends by SIGKILL or by itself; afterwards every
file is compared byte for byte with the old and the new one. A run that breaks a promise raises
AssertionError.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordbundle.cord import Cord, Digest, Fill
from cordbundle.writer import Durability, write, write_all
from tests.faults import litter
from tests.reliability.calls import Call, intercepted

__all__ = ["Scene", "alive", "kill_at_random", "killed_at", "one_file", "three_files"]

MIB = 1 << 20


class Scene:
    """Files in a folder, the state they are in, and the state that a writer is to bring.

    Args:
        states: Two Cords for each name: a writer replaces those of one state by the other's.
    """

    def __init__(self, folder: Path, states: dict[str, tuple[Cord, Cord]]) -> None:
        self.folder = folder
        self._cords = {folder / name: pair for name, pair in states.items()}
        self._bytes = {folder / name: tuple(map(bytes, pair)) for name, pair in states.items()}
        self.state = 0
        self.write(0, "none")

    def cords(self, state: int) -> dict[Path, Cord]:
        """Return what is written to bring about a state."""
        return {path: pair[state] for path, pair in self._cords.items()}

    def write(self, state: int | None = None, durability: Durability = "file") -> None:
        """Write a state, by default the other one."""
        cords = self.cords(1 - self.state if state is None else state)
        if len(cords) == 1:
            write(next(iter(cords.values())), next(iter(cords)), durability=durability)
        else:
            write_all(cords, durability=durability)

    def look(self) -> tuple[int, ...]:
        """Return which state each file is in, programs last.

        Raises:
            AssertionError: A file is in neither, or a program is newer than its data.
        """
        paths = sorted(self._cords, key=lambda path: path.name.endswith(".pte"))
        found = []
        for path in paths:
            data = path.read_bytes()
            assert data in self._bytes[path], f"{path.name} is torn: {len(data)} bytes"
            found.append(self._bytes[path].index(data))
        is_new = [state != self.state for state in found]
        assert is_new == sorted(is_new, reverse=True), f"a program is newer than its data: {found}"
        return tuple(found)

    def settle(self, living: tuple[str, ...] = ()) -> None:
        """Write again, as a user would after a crash, and check that nothing else is left.

        Raises:
            AssertionError: Something of the dead writer is there, or of a living one is not.
        """
        state = 1 - self.state
        self.write(state, "none")
        self.state = state
        assert set(self.look()) == {state}
        assert tuple(sorted(litter(self.folder))) == living


def one_file(folder: Path, size: int) -> Scene:
    """Return a file of memory, a hole, a range of another file and its digest."""
    return Scene(folder, {"m.bpte": _states(folder, "m", size)})


def three_files(folder: Path, size: int) -> Scene:
    """Return a program and two files of weights."""
    third = size // 3
    return Scene(
        folder, {name: _states(folder, name, third) for name in ("a.pte", "b.ptd", "c.ptd")}
    )


def _states(folder: Path, name: str, size: int) -> tuple[Cord, Cord]:
    sources = folder.parent / "sources"
    sources.mkdir(exist_ok=True)
    cords = []
    for state in range(2):
        path = sources / f"{name}.{state}"
        path.write_bytes(random.Random(f"{name} {state}").randbytes(size))
        payload = Cord.from_file(path)
        cords.append(Cord.of(Digest(payload)) + f"state {state}".encode() * 1000 + payload)
        cords[-1].append(Cord.of(Fill(8192)) + bytes([state]) * 5000)
    return cords[0], cords[1]


def _child(run: Callable[[], None]) -> int:
    """Start a process that runs something and ends without cleaning up; return its number."""
    number = os.fork()
    if number == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return number


def _wait(number: int) -> bool:
    """Return whether a child was killed; it never fails."""
    _, status = os.waitpid(number, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the writer failed"
    return False


def killed_at(scene: Scene, index: int, *, before: bool) -> str | None:
    """Let a writer be killed just before or after one of its calls; return the call's name.

    None if it made fewer calls.
    """
    reading, writing = os.pipe()

    def act(call: Call, real: Callable[[], Any]) -> Any:
        if call.index != index:
            return None if call.name == "fsync" else real()
        if not before:
            real()
        os.write(writing, call.name.encode())
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    def run() -> None:
        with intercepted(act):
            scene.write()

    killed = _wait(_child(run))
    os.close(writing)
    with open(reading, "rb") as pipe:
        name = pipe.read().decode()
    return name if killed else None


def killed_after(scene: Scene, seconds: float) -> bool:
    """Kill a writer so long after its start; return whether it was still at it."""
    ready, start = os.pipe(), os.pipe()

    def run() -> None:
        os.write(ready[1], b".")
        os.read(start[0], 1)
        scene.write()

    child = _child(run)
    os.read(ready[0], 1)
    os.write(start[1], b".")
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    for descriptor in (*ready, *start):
        os.close(descriptor)
    return _wait(child)


@contextmanager
def alive(scene: Scene) -> Iterator[tuple[str, ...]]:
    """Let another process stand in the middle of the same write; yield its temporary files.

    It goes on to the end when the `with` does, and its files are then the ones in place.
    """
    ready, go_on = os.pipe(), os.pipe()

    def progress(done: int, total: int) -> None:
        if done == total:  # all is written, nothing committed
            os.write(ready[1], b".")
            os.read(go_on[0], 1)

    def run() -> None:
        write_all(scene.cords(1 - scene.state), progress=progress)

    expected = 1 - scene.state
    child = _child(run)
    try:
        os.read(ready[0], 1)
        yield tuple(sorted(litter(scene.folder)))
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.write(go_on[1], b".")
    assert not _wait(child)
    for descriptor in (*ready, *go_on):
        os.close(descriptor)
    scene.state = expected
    assert set(scene.look()) == {expected}
    assert litter(scene.folder) == []


def _duration(scene: Scene) -> float:
    """Return how long a writer takes in a process of its own."""
    times = []
    for _ in range(7):
        start = time.perf_counter()
        assert not _wait(_child(scene.write))
        times.append(time.perf_counter() - start)
        scene.state = 1 - scene.state
    return statistics.median(times)


def kill_at_random(scene: Scene, runs: int, seed: int) -> Counter[str]:
    """Kill writers at random moments of a write, another one alive beside them.

    Returns:
        How many died in which state of the folder.
    """
    moments = random.Random(seed)
    longest = _duration(scene) * 1.1
    found: Counter[str] = Counter()
    with alive(scene) as living:
        for _ in range(runs):
            killed = killed_after(scene, moments.uniform(0, longest))
            states = {state != scene.state for state in scene.look()}
            left = set(litter(scene.folder)) - set(living)
            if not killed:
                found["had ended by itself"] += 1
            elif states == {True}:
                found["died with all files new"] += 1
            elif states == {False, True}:
                found["died between the renames"] += 1
            elif left:
                found["died while it wrote"] += 1
            else:
                found["died before it wrote"] += 1
            found["temporary files left and removed"] += len(left)
            scene.settle(living)
    return found


def main() -> None:
    """Kill writers of one file and of a set, and print where they died."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="writers of each kind to kill")
    parser.add_argument("--size", type=int, default=24, help="MiB that each writes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where to write; a temporary folder by default")
    options = parser.parse_args()
    for make in (one_file, three_files):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            target = Path(folder, "target")
            target.mkdir()
            start = time.perf_counter()
            scene = make(target, options.size * MIB)
            found = kill_at_random(scene, options.runs, options.seed)
        took = time.perf_counter() - start
        facts = ", ".join(f"{count} {what}" for what, count in sorted(found.items()))
        print(f"{make.__name__}: {options.runs} killed in {took:.0f} s, none torn: {facts}")


if __name__ == "__main__":
    main()
