"""What a progress callback raises, at any of its calls, arrives as it is, with nothing torn."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cordbundle.cord import Cord
from cordbundle.writer import Progress, write, write_all
from tests.faults import FakeObject

MIB = 1 << 20
OLD = b"the old file"

Write = Callable[[Cord, Path, Progress], object]


def to_path(cord: Cord, folder: Path, progress: Progress) -> None:
    write(cord, folder / "m.pte", progress=progress)


def as_set(cord: Cord, folder: Path, progress: Progress) -> None:
    head, tail = cord[: 9 * MIB], cord[9 * MIB :]
    write_all({folder / "m.pte": head, folder / "w.ptd": tail}, progress=progress)


def to_object(cord: Cord, folder: Path, progress: Progress) -> None:
    write(cord, FakeObject(MIB), progress=progress)


def to_descriptor(cord: Cord, folder: Path, progress: Progress) -> None:
    with open(folder.parent / "open", "wb") as file:
        write(cord, file, progress=progress)


def to_pipe(cord: Cord, folder: Path, progress: Progress) -> None:
    one, other = socket.socketpair()

    def drain() -> None:
        while other.recv(MIB):
            pass

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        write(cord, one, progress=progress)
    finally:
        one.close()
        thread.join()
        other.close()


class Own(Exception):
    """What no library knows."""


ERRORS = [
    Own("stop"),
    KeyboardInterrupt("stop"),
    GeneratorExit("stop"),
    StopIteration("stop"),
    TimeoutError("stop"),
    OSError(errno.ENOSPC, "stop"),
    BlockingIOError(errno.EAGAIN, "stop"),
]


@pytest.fixture(params=["memory", "file"])
def cord(request: pytest.FixtureRequest, tmp_path: Path) -> Cord:
    """Return 20 MiB, from a file by two threads."""
    if request.param == "memory":
        return Cord(bytes(20 * MIB))
    (tmp_path / "source").write_bytes(bytes(20 * MIB))
    return Cord(b"x" * MIB) + Cord.from_file(tmp_path / "source")


def raising(error: BaseException, at: int) -> Progress:
    """Return a callback that raises at a call by number, at the last one at the latest."""
    calls: list[int] = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) - 1 == at or done == total:
            raise error

    return progress


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("to", [to_path, as_set, to_object, to_descriptor, to_pipe])
def test_it_arrives_at_every_call(
    tmp_path: Path, cord: Cord, to: Write, error: BaseException
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("m.pte", "w.ptd"):
        (folder / name).write_bytes(OLD)
    for at in (0, 1, 3, 1000):
        with pytest.raises(type(error)) as caught:
            to(cord, folder, raising(error, at))
        assert caught.value is error
        assert sorted(os.listdir(folder)) == ["m.pte", "w.ptd"]
        assert {(folder / name).read_bytes() for name in ("m.pte", "w.ptd")} == {OLD}
    assert "cordbundle-copy" not in {thread.name for thread in threading.enumerate()}
