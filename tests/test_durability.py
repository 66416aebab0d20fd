"""The calls that each level of durability makes, and their order."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordbundle.cord import Cord
from cordbundle.errors import WriteError
from cordbundle.writer import Durability, write, write_all
from tests.faults import FakeObject, broken_call

DATA = Cord(b"abc")


@contextmanager
def steps() -> Iterator[list[str]]:
    """Record, in words, what is synced and what is put in place."""
    found: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            found.append("sync folder " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        else:
            found.append(f"sync {status.st_size} bytes")
        fsync(descriptor)

    def record_replace(old: str, new: str) -> None:
        found.append(f"rename to {os.path.basename(new)}")
        replace(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", record_fsync)
        patch.setattr(os, "replace", record_replace)
        yield found


@pytest.mark.parametrize(
    ("durability", "expected"),
    [
        ("none", ["rename to m.pte"]),
        ("file", ["sync 3 bytes", "rename to m.pte"]),
        ("dir", ["sync 3 bytes", "rename to m.pte", "sync folder out"]),
    ],
)
def test_a_file_is_synced_whole_before_its_rename_and_its_folder_after(
    tmp_path: Path, durability: Durability, expected: list[str]
) -> None:
    (tmp_path / "out").mkdir()
    with steps() as found:
        write(DATA, tmp_path / "out" / "m.pte", durability=durability)

    assert found == expected


@pytest.mark.parametrize(
    ("durability", "expected"),
    [
        ("none", ["rename to w.ptd", "rename to m.pte"]),
        ("file", ["sync 1 bytes", "sync 2 bytes", "rename to w.ptd", "rename to m.pte"]),
        (
            "dir",
            [
                *("sync 1 bytes", "sync 2 bytes"),
                *("rename to w.ptd", "sync folder weights"),
                *("rename to m.pte", "sync folder programs"),
            ],
        ),
    ],
)
def test_a_set_is_synced_before_its_first_rename_and_its_data_before_its_program(
    tmp_path: Path, durability: Durability, expected: list[str]
) -> None:
    for folder in ("programs", "weights"):
        (tmp_path / folder).mkdir()
    paths = {tmp_path / "programs" / "m.pte": b"p", tmp_path / "weights" / "w.ptd": b"ww"}
    with steps() as found:
        write_all({path: Cord(data) for path, data in paths.items()}, durability=durability)

    assert found == expected


@pytest.mark.parametrize("durability", ["none", "file", "dir"])
def test_a_descriptor_of_a_file_is_synced_and_its_folder_never(
    tmp_path: Path, durability: Durability
) -> None:
    with open(tmp_path / "out", "wb") as file, steps() as found:
        write(DATA, file.fileno(), durability=durability)

    assert found == ([] if durability == "none" else ["sync 3 bytes"])


def _to_pipe(durability: Durability) -> None:
    reading, writing = os.pipe()
    write(DATA, writing, durability=durability)
    os.close(reading)
    os.close(writing)


def _to_socket(durability: Durability) -> None:
    one, other = socket.socketpair()
    with one, other:
        write(DATA, one, durability=durability)


def _to_object(durability: Durability) -> None:
    write(DATA, FakeObject(10), durability=durability)


@pytest.mark.parametrize("to", [_to_pipe, _to_socket, _to_object])
def test_what_is_no_file_is_never_synced(to: Callable[[Durability], None]) -> None:
    with steps() as found:
        to("dir")

    assert found == []


@pytest.mark.parametrize("name", ["fsync", "close"])
def test_an_error_that_only_syncing_or_closing_tells_comes_before_the_rename(
    tmp_path: Path, name: str
) -> None:
    """As on network filesystems, which write when one syncs or closes."""
    durability: Durability = "none" if name == "close" else "file"
    with (
        steps() as found,
        broken_call(name, 5, 0),
        pytest.raises(WriteError, match="bytes are lost"),
    ):
        write(DATA, tmp_path / "m.pte", durability=durability)

    assert found == []
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_opened_for_syncing_is_told_before_anything_is_in_place(
    tmp_path: Path,
) -> None:
    opened: list[int] = []
    real = os.open

    def deny(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECTORY:
            raise PermissionError(13, "Permission denied")
        opened.append(flags)
        return real(path, flags, mode)

    with pytest.MonkeyPatch.context() as patch, steps() as found:
        patch.setattr(os, "open", deny)
        with pytest.raises(WriteError, match="its folder cannot be opened to be synced"):
            write(DATA, tmp_path / "m.pte", durability="dir")

    assert opened
    assert found == ["sync 3 bytes"]
    assert os.listdir(tmp_path) == []


def test_the_system_sees_the_calls_in_this_order(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("needs strace")
    code = (
        "import sys; from cordbundle.cord import Cord; from cordbundle.writer import write_all\n"
        "write_all({path: Cord(b'abc') for path in sys.argv[1:]}, durability='dir')"
    )
    names = [tmp_path / "m.pte", tmp_path / "w.ptd"]
    calls = "trace=fsync,fdatasync,sync_file_range,rename,renameat,renameat2,write,pwrite64"
    command = [strace, "-f", "-y", "-e", calls, sys.executable, "-c", code, *map(str, names)]
    trace = subprocess.run(command, capture_output=True, check=False, text=True)
    if trace.returncode != 0:
        pytest.skip("strace may not trace here")
    lines = [line for line in trace.stderr.splitlines() if os.fspath(tmp_path) in line]
    seen = [re.sub(r"^\[pid +\d+\] ", "", line).partition("(")[0] for line in lines]

    assert [re.sub("rename.*", "rename", name) for name in seen] == [
        *("write", "write", "fsync", "fsync"),
        *("rename", "fsync", "rename", "fsync"),
    ]
    assert [line.split('"')[-2].rpartition("/")[2] for line in lines if "rename" in line] == [
        *("w.ptd", "m.pte"),
    ]
