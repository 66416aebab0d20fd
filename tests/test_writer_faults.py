"""What `write` and `write_all` leave when something fails: the old file, and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import itertools
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordbundle.cord import Cord, Digest, Fill
from cordbundle.errors import SourceChangedError, WriteError
from cordbundle.writer import write, write_all
from tests.faults import FakeObject, broken_call, counted_call, litter, short_calls

MIB = 1 << 20
OLD = b"the old file"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return a folder's only file, with known content."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "target").write_bytes(OLD)
    return folder / "target"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"0123456789" * 300_000)
    return path


def intact(target: Path) -> bool:
    """Return whether the old file is there and nothing else."""
    return os.listdir(target.parent) == ["target"] and target.read_bytes() == OLD


def varied(source: Path) -> Cord:
    """Return a Cord that needs every kind of system call."""
    payload = Cord.from_file(source)
    return (
        Cord.of(Digest(payload))
        + payload
        + Cord.of(Fill(10_000))
        + Cord.of(*[memoryview(bytes(600))] * 3)
        + Cord.of(Fill(8192))
    )


# Targets that fail.


CALLS = ["write", "writev", "pwrite", "lseek", "ftruncate", "fsync", "replace"]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
def test_every_call_on_the_target_may_fail_and_the_old_file_stays(
    target: Path, source: Path, name: str, number: int
) -> None:
    cord = varied(source)
    for at in itertools.count():
        with contextlib.ExitStack() as stack:
            calls = stack.enter_context(broken_call(name, number, at))
            try:
                write(cord, target)
            except WriteError as error:
                assert error.errno == number
                assert os.strerror(number) in str(error)
                assert str(target) in str(error)
                assert isinstance(error.__cause__, OSError)
        if at >= len(calls):
            break
        assert intact(target)

    assert target.read_bytes() == bytes(cord)
    assert at > 0


@pytest.mark.parametrize("name", ["open", "dup", "close"])
def test_a_failure_to_open_or_close_leaves_the_old_file(target: Path, name: str) -> None:
    with broken_call(name, errno.EIO, 0), pytest.raises(WriteError) as caught:
        write(Cord(b"new"), target, durability="none")

    assert caught.value.errno == errno.EIO
    assert intact(target)


def test_a_folder_that_cannot_be_synced_is_told_with_the_new_file_in_place(target: Path) -> None:
    with (
        broken_call("fsync", errno.EIO, 1),
        pytest.raises(WriteError, match="is in place, but its folder cannot be synced"),
    ):
        write(Cord(b"new"), target, durability="dir")

    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("limit", [1, 2, 3, 599, 600, 601, 1199])
def test_a_short_call_is_resumed_at_every_byte(target: Path, limit: int) -> None:
    cord = Cord.of(*[memoryview(bytes([i]) * 600) for i in range(5)], Digest(Cord(b"x")))
    with short_calls(limit):
        write(cord, target)

    assert target.read_bytes() == bytes(cord)


def test_no_progress_is_an_error_and_not_a_loop(target: Path) -> None:
    with short_calls(0), pytest.raises(WriteError, match="took no bytes"):
        write(Cord(b"new"), target)

    assert intact(target)


def test_an_error_says_how_far_it_came(source: Path, target: Path) -> None:
    cord = Cord.from_file(source)
    with broken_call("write", errno.EIO, 1), pytest.raises(WriteError) as caught:
        write(cord, target)

    assert (caught.value.actual, caught.value.expected) == (
        f"{MIB} bytes written",
        "3000000 bytes",
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "took no bytes: write() returned None"),
        (0, "took no bytes"),
        (-1, "write() of 5 bytes returned -1"),
        (6, "write() of 5 bytes returned 6"),
        (True, "write() returned True in place of a number of bytes"),
        ("5", "write() returned '5' in place of a number of bytes"),
        (5.0, "write() returned 5.0 in place of a number of bytes"),
    ],
)
def test_an_object_that_returns_nonsense_is_refused(answer: object, text: str) -> None:
    with pytest.raises(WriteError) as caught:
        write(Cord(b"abcde"), FakeObject(5, lambda taken: answer))

    assert text in str(caught.value)


def test_what_a_users_write_raises_arrives_as_it_is() -> None:
    class Full:
        taken = 0

        def write(self, data: memoryview) -> int:
            self.taken += 1
            if self.taken == 2:
                raise BlockingIOError(errno.EAGAIN, "user's own")
            return 1

    with pytest.raises(BlockingIOError, match="user's own"):
        write(Cord(b"abcde"), Full())


def test_a_file_that_asks_to_be_tried_again_is_an_error_and_not_a_loop(target: Path) -> None:
    again = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def never(descriptor: int, data: object) -> int:
        raise again

    with pytest.MonkeyPatch.context() as patch, pytest.raises(WriteError) as caught:
        patch.setattr(os, "write", never)
        write(Cord(b"new"), target)

    assert caught.value.__cause__ is again
    assert intact(target)


def test_what_a_signal_handler_raises_is_no_error_of_the_target(target: Path) -> None:
    late = TimeoutError("the time is up")

    def interrupted(descriptor: int, data: object) -> int:
        raise late

    with pytest.MonkeyPatch.context() as patch, pytest.raises(TimeoutError) as caught:
        patch.setattr(os, "write", interrupted)
        write(Cord(b"new"), target)

    assert caught.value is late
    assert intact(target)


def test_a_full_device_is_an_error_with_its_number() -> None:
    with pytest.raises(WriteError) as caught:
        write(Cord(b"abc"), "/dev/full")

    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value).startswith("/dev/full: No space left on device")


def test_a_pipe_without_reader_is_an_error_with_its_number() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(WriteError) as caught:
        write(Cord(b"abc"), writing)
    os.close(writing)

    assert caught.value.errno == errno.EPIPE


def test_a_closed_descriptor_is_an_error_with_its_number() -> None:
    with pytest.raises(WriteError) as caught:
        write(Cord(b"abc"), 1_000_000)

    assert caught.value.errno == errno.EBADF


def test_a_signal_that_interrupts_a_blocked_write_loses_no_byte() -> None:
    reading, writing = os.pipe()
    data = bytearray()
    hits: list[int] = []
    previous = signal.signal(signal.SIGALRM, lambda number, frame: hits.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)

    def drain() -> None:
        while block := os.read(reading, 100_000):
            data.extend(block)
            time.sleep(0.002)

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        write(Cord(bytes(range(256)) * 40_000), writing)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        os.close(writing)
        thread.join()
        os.close(reading)

    assert bytes(data) == bytes(range(256)) * 40_000
    assert hits


# Real limits.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a filesystem of 1 MiB; skip where it cannot be mounted."""
    folder = tmp_path / "small"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip("cannot mount a tmpfs")
    yield folder
    libc.umount2(os.fsencode(folder), 2)  # MNT_DETACH


def test_a_disk_that_is_too_small_is_told_before_a_byte_is_written(small_disk: Path) -> None:
    (small_disk / "target").write_bytes(OLD)
    with counted_call("write") as writes, pytest.raises(WriteError) as caught:
        write(Cord(bytes(2 * MIB)), small_disk / "target")

    assert caught.value.errno == errno.ENOSPC
    assert f"expected {2 * MIB} bytes of free space" in str(caught.value)
    assert not writes
    assert intact(small_disk / "target")


def test_a_disk_that_fills_up_leaves_the_old_file(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (small_disk / "target").write_bytes(OLD)
    block = os.statvfs(small_disk).f_bsize
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: _Blind(block))
    with pytest.raises(WriteError) as caught:
        write(Cord(bytes(2 * MIB)), small_disk / "target")

    assert caught.value.errno == errno.ENOSPC
    assert intact(small_disk / "target")


class _Blind:
    """The answer of a filesystem that does not count its blocks."""

    f_blocks = 0

    def __init__(self, block: int) -> None:
        self.f_bsize = block


def test_holes_need_no_space(small_disk: Path) -> None:
    write(Cord(b"abc") + Cord.of(Fill(1 << 30)), small_disk / "target")

    assert (small_disk / "target").stat().st_size == (1 << 30) + 3


def test_the_holes_of_a_source_need_no_space(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "sparse").write_bytes(b"abc")
    os.truncate(tmp_path / "sparse", 1 << 30)
    write(Cord.from_file(tmp_path / "sparse"), small_disk / "target")

    assert (small_disk / "target").stat().st_size == 1 << 30


def test_the_files_of_a_set_must_fit_together(small_disk: Path) -> None:
    half = Cord(bytes(700_000))
    with pytest.raises(WriteError, match="No space left on device"):
        write_all({small_disk / "a": half, small_disk / "b": half})

    assert os.listdir(small_disk) == []


def in_child(code: str, *arguments: object) -> str:
    """Run code in another process and return what it prints."""
    head = "import os, sys; from cordbundle.cord import *; from cordbundle.writer import *\n"
    command = [sys.executable, "-c", head + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def test_a_limit_on_file_sizes_leaves_the_old_file(target: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: write(Cord(bytes(200_000)), sys.argv[1])\n"
        "except WriteError as error: print(error.errno)"
    )
    printed = in_child("from cordbundle.errors import *\n" + code, target)

    assert printed == str(errno.EFBIG)
    assert intact(target)


def test_the_limit_of_open_files_is_an_error(target: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    gc.disable()  # what it closes later would be a free descriptor below the limit
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(WriteError) as caught:
            write(Cord(b"new"), target)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.enable()

    assert caught.value.errno == errno.EMFILE
    assert intact(target)


AS_NOBODY = (
    "os.setgid(65534); os.setuid(65534) if os.getuid() == 0 else None\n"
    "from cordbundle.errors import *\n"
    "try: write(Cord(b'new'), sys.argv[1])\n"
    "except WriteError as error: print(error.errno)"
)


@pytest.fixture
def public_target() -> Iterator[Path]:
    """Return a target that another user can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder, "folder", "target")
        path.parent.mkdir()
        path.write_bytes(OLD)
        yield path


def test_another_user_may_replace_what_all_may_write(public_target: Path) -> None:
    public_target.chmod(0o666)
    public_target.parent.chmod(0o777)
    printed = in_child(AS_NOBODY, public_target)

    assert printed == ""
    assert public_target.read_bytes() == b"new"


def test_a_folder_without_write_permission_is_an_error(public_target: Path) -> None:
    public_target.chmod(0o666)
    public_target.parent.chmod(0o555)
    printed = in_child(AS_NOBODY, public_target)
    public_target.parent.chmod(0o755)

    assert printed == str(errno.EACCES)
    assert intact(public_target)


def test_a_write_protected_file_is_not_replaced(public_target: Path) -> None:
    public_target.chmod(0o444)
    public_target.parent.chmod(0o777)
    printed = in_child(AS_NOBODY, public_target)

    assert printed == str(errno.EACCES)
    assert intact(public_target)


# Two threads.


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Return a source that is copied by two threads."""
    path = tmp_path / "large"
    path.write_bytes(os.urandom(MIB) * 20)
    return path


@pytest.mark.parametrize(
    ("name", "at"), [("dup", 0), *(("pwrite", at) for at in (0, 1, 2, 10, 19))]
)
def test_a_failure_of_either_thread_leaves_the_old_file(
    target: Path, large: Path, name: str, at: int
) -> None:
    with broken_call(name, errno.EIO, at), pytest.raises(WriteError) as caught:
        write(Cord.from_file(large), target)

    assert caught.value.errno == errno.EIO
    assert intact(target)
    assert "cordbundle-copy" not in {thread.name for thread in threading.enumerate()}


def test_a_large_source_that_shrinks_on_the_way_is_found(target: Path, large: Path) -> None:
    def progress(done: int, total: int) -> None:
        if done:
            os.truncate(large, 8 * MIB)

    with pytest.raises(SourceChangedError, match="size changed after planning"):
        write(Cord.from_file(large), target, progress=progress)
    assert intact(target)


def test_an_interrupt_stops_both_threads(target: Path, large: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))

    def progress(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    large.write_bytes(os.urandom(MIB) * 64)
    cord = Cord.from_file(large)
    with counted_call("pwrite") as writes, pytest.raises(KeyboardInterrupt):
        write(cord, target, progress=progress)
    assert len(writes) < 64
    assert intact(target)
    assert "cordbundle-copy" not in {thread.name for thread in threading.enumerate()}
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1  # the source's


def test_without_a_second_thread_one_copies_alone(
    target: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    cord = Cord.from_file(large)
    write(Cord.of(Digest(cord)) + cord, target)

    assert target.read_bytes() == cord.xxh3_128() + large.read_bytes()


# Targets of the wrong kind.


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="found a folder, expected a file") as caught:
        write(Cord(b"abc"), tmp_path)

    assert caught.value.errno == errno.EISDIR


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("missing/out", errno.ENOENT),
        ("target/out", errno.ENOTDIR),
        ("missing/", errno.EISDIR),
        ("loop", errno.ELOOP),
        ("x" * 256, errno.ENAMETOOLONG),
    ],
)
def test_a_path_that_open_would_refuse_is_refused(target: Path, name: str, number: int) -> None:
    (target.parent / "loop").symlink_to("loop")
    with pytest.raises(WriteError) as caught:
        write(Cord(b"abc"), f"{target.parent}/{name}")

    assert caught.value.errno == number
    assert sorted(os.listdir(target.parent)) == ["loop", "target"]


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(WriteError, match="names no file") as caught:
        write(Cord(b"abc"), "")

    assert caught.value.errno == errno.ENOENT


def test_a_socket_as_a_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("here")

        with pytest.raises(WriteError, match="found a socket"):
            write(Cord(b"abc"), "here")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make devices")
def test_a_block_device_is_refused(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o600, os.makedev(240, 99))
    except PermissionError:
        pytest.skip("may not make devices")

    with pytest.raises(WriteError, match="found a block device"):
        write(Cord(b"abc"), tmp_path / "disk")


def test_a_descriptor_that_is_also_a_source_is_refused(source: Path) -> None:
    before = source.read_bytes()
    cord = Cord(b"x") + Cord.from_file(source)
    with source.open("r+b") as file, pytest.raises(WriteError, match="is also a source"):
        write(cord, file)

    assert source.read_bytes() == before


def test_a_descriptor_of_a_source_that_is_only_digested_is_refused(source: Path) -> None:
    cord = Cord.of(Digest(Cord.from_file(source)))
    with source.open("r+b") as file, pytest.raises(WriteError, match="is also a source"):
        write(cord, file.fileno())


# Sources that change.


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def replace(path: Path) -> None:
    data, status = path.read_bytes(), path.stat()
    path.with_name("other").write_bytes(data)
    os.utime(path.with_name("other"), ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(path.with_name("other"), path)


def rewrite(path: Path) -> None:
    later = path.stat().st_mtime_ns + 1_000_000
    with path.open("r+b") as file:
        file.write(b"changed")
    os.utime(path, ns=(later, later))


def delete(path: Path) -> None:
    path.unlink()


CHANGES = [truncate, grow, replace, rewrite, delete]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("opened", [False, True])
def test_a_source_that_changed_after_planning_is_found(
    target: Path, source: Path, change: Callable[[Path], None], opened: bool
) -> None:
    cord = varied(source)
    if opened:
        assert cord[20] == ord("4")
    change(source)

    with pytest.raises(SourceChangedError, match="changed after planning"):
        write(cord, target)
    assert intact(target)


def test_a_source_that_changed_is_found_before_anything_begins(target: Path, source: Path) -> None:
    calls: list[int] = []
    cord = Cord(bytes(MIB)) + Cord.from_file(source)
    grow(source)

    with pytest.raises(SourceChangedError):
        write(cord, target, progress=lambda done, total: calls.append(done))
    assert calls == []


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("moment", [MIB, 3_000_000])
def test_a_source_that_changes_during_the_write_is_found(
    target: Path, source: Path, change: Callable[[Path], None], moment: int
) -> None:
    changed: list[bool] = []

    def progress(done: int, total: int) -> None:
        if done >= moment and not changed:
            changed.append(True)
            change(source)

    cord = Cord(bytes(5 * MIB)) + varied(source)
    with pytest.raises(SourceChangedError, match="changed after planning"):
        write(cord, target, progress=progress)
    assert changed
    assert intact(target)


@pytest.mark.parametrize("change", CHANGES)
def test_a_stream_too_says_that_a_source_changed(
    source: Path, change: Callable[[Path], None]
) -> None:
    changed: list[bool] = []

    def progress(done: int, total: int) -> None:
        if done and not changed:
            changed.append(True)
            change(source)

    with pytest.raises(SourceChangedError, match="changed after planning"):
        write(Cord.from_file(source) + bytes(5 * MIB), FakeObject(MIB), progress=progress)


# Interrupts, and what dead writers leave.


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_what_progress_raises_arrives_and_the_old_file_stays(
    target: Path, error: type[BaseException], at: int
) -> None:
    calls: list[int] = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) > at:
            raise error("stop")

    with pytest.raises(error, match="stop"):
        write(Cord(bytes(12 * MIB)), target, progress=progress)
    assert len(calls) == at + 1
    assert intact(target)


def dead(folder: Path, name: str) -> Path:
    path = folder / f".{name}.0123456789abcdef.cordbundle-tmp"
    path.write_bytes(b"left behind")
    return path


def test_the_next_write_removes_what_a_dead_writer_left(target: Path) -> None:
    dead(target.parent, "target")
    write(Cord(b"new"), target)

    assert os.listdir(target.parent) == ["target"]
    assert target.read_bytes() == b"new"


def test_what_a_living_writer_is_writing_is_not_removed(target: Path) -> None:
    seen: list[list[str]] = []

    def progress(done: int, total: int) -> None:
        if done:
            write(Cord(b"inner"), target)
            seen.append(litter(target.parent))

    write(Cord(b"outer"), target, progress=progress)

    assert [len(names) for names in seen] == [1]
    assert os.listdir(target.parent) == ["target"]
    assert target.read_bytes() == b"outer"


@pytest.mark.parametrize(
    "name",
    [
        ".other.0123456789abcdef.cordbundle-tmp",
        ".target.0123456789abcde.cordbundle-tmp",
        ".target.0123456789abcdeX.cordbundle-tmp",
        ".target.0123456789abcdef.tmp",
    ],
)
def test_no_file_of_another_name_is_removed(target: Path, name: str) -> None:
    (target.parent / name).write_bytes(b"precious")
    write(Cord(b"new"), target)

    assert (target.parent / name).read_bytes() == b"precious"


def test_a_link_in_place_of_a_dead_file_is_not_followed(target: Path, source: Path) -> None:
    before = source.read_bytes()
    (target.parent / ".target.0123456789abcdef.cordbundle-tmp").symlink_to(source)
    write(Cord(b"new"), target)

    assert source.read_bytes() == before


def test_a_name_that_another_writer_took_is_not_removed(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = dead(target.parent, "target")
    monkeypatch.setattr(os, "urandom", lambda size: bytes.fromhex("0123456789abcdef"))
    with taken.open("rb") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        with pytest.raises(WriteError) as caught:
            write(Cord(b"new"), target)

    assert caught.value.errno == errno.EEXIST
    assert taken.read_bytes() == b"left behind"
    assert target.read_bytes() == OLD


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_cleans_up(target: Path) -> None:
    code = (
        "import signal\ndef stop(done, total):\n  if done: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    code += "write(Cord(bytes(10_000_000)), sys.argv[1], progress=stop)"
    with pytest.raises(subprocess.CalledProcessError):
        in_child(code, target)
    left = litter(target.parent)
    old = target.read_bytes()
    write(Cord(b"new"), target)

    assert (len(left), old) == (1, OLD)
    assert os.listdir(target.parent) == ["target"]


def test_a_temporary_file_is_locked_while_it_is_written(target: Path) -> None:
    locked: list[bool] = []

    def progress(done: int, total: int) -> None:
        for name in litter(target.parent):
            with (target.parent / name).open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    locked.append(True)

    write(Cord(b"new"), target, progress=progress)

    assert locked == [True]


def test_a_temporary_file_that_another_writer_removes_before_it_is_locked_is_made_again(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    removed: list[str] = []

    def flock(descriptor: int, operation: int) -> None:
        if len(removed) < 3:
            removed.extend(litter(target.parent))
            (target.parent / removed[-1]).unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    write(Cord(b"new"), target)

    assert len(set(removed)) == 3
    assert os.listdir(target.parent) == ["target"]
    assert target.read_bytes() == b"new"


def test_temporary_files_that_always_vanish_are_an_error_and_not_a_loop(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a filesystem that does not find what it has just made."""
    real = os.lstat

    def lstat(path: str) -> os.stat_result:
        if str(path).endswith(".cordbundle-tmp"):
            raise FileNotFoundError(errno.ENOENT, "not found")
        return real(path)

    with counted_call("open") as calls:
        monkeypatch.setattr(os, "lstat", lstat)
        with pytest.raises(WriteError, match="vanish as soon as they are made") as caught:
            write(Cord(b"new"), target)

    assert caught.value.errno == errno.ENOENT
    assert len(calls) <= 100
    assert intact(target)


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of other owners")
@pytest.mark.parametrize(("can_give", "mode"), [(True, 0o4755), (False, 0o755)])
def test_set_user_id_goes_over_to_a_new_file_with_the_owner_alone(
    target: Path, monkeypatch: pytest.MonkeyPatch, can_give: bool, mode: int
) -> None:
    os.chown(target, 12345, 12345)
    target.chmod(0o4755)

    def fchown(_descriptor: int, _user: int, _group: int) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    if not can_give:
        monkeypatch.setattr(os, "fchown", fchown)
    write(Cord(b"new"), target)

    status = target.stat()
    assert stat.S_IMODE(status.st_mode) == mode
    assert status.st_uid == (12345 if can_give else os.getuid())


def test_a_filesystem_that_does_not_count_links_is_written_to(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        fields = list(real(descriptor))
        fields[stat.ST_NLINK] = 0
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", fstat)
    write(Cord(b"new"), target)

    assert os.listdir(target.parent) == ["target"]
    assert target.read_bytes() == b"new"


def test_a_living_file_that_took_the_name_of_a_dead_one_is_not_removed(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name changes hands between the opening of the dead file and a look at the name."""
    path = dead(target.parent, "target")
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        if operation & fcntl.LOCK_NB and path.read_bytes() == b"left behind":
            path.unlink()
            path.write_bytes(b"alive")

    monkeypatch.setattr(fcntl, "flock", flock)
    write(Cord(b"new"), target)

    assert path.read_bytes() == b"alive"


def test_many_writers_of_one_target_leave_one_of_their_files(target: Path) -> None:
    candidates = [bytes([i]) * 100_000 for i in range(8)]
    reports: list[int] = []

    def work(data: bytes) -> None:
        for _ in range(10):
            reports.append(write(Cord(data), target, durability="none").nbytes)

    threads = [threading.Thread(target=work, args=(data,)) for data in candidates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert reports == [100_000] * 80
    assert target.read_bytes() in candidates
    assert os.listdir(target.parent) == ["target"]


# Sets.


@pytest.mark.parametrize("name", ["open", "write", "fsync"])
def test_a_set_that_fails_before_its_first_rename_changes_nothing(target: Path, name: str) -> None:
    other = target.parent / "a.pte"
    for at in itertools.count():
        with contextlib.ExitStack() as stack:
            calls = stack.enter_context(broken_call(name, errno.EIO, at))
            with contextlib.suppress(WriteError):
                write_all({other: Cord(b"program"), target: Cord(b"data")})
        if at >= len(calls):
            break
        assert intact(target)

    assert (other.read_bytes(), target.read_bytes()) == (b"program", b"data")


def test_a_set_that_fails_between_renames_has_data_new_and_program_old(target: Path) -> None:
    program = target.parent / "a.pte"
    program.write_bytes(OLD)
    with broken_call("replace", errno.EIO, 1), pytest.raises(WriteError, match=r"a\.pte"):
        write_all({program: Cord(b"program"), target: Cord(b"data")})

    assert (program.read_bytes(), target.read_bytes()) == (OLD, b"data")
    assert litter(target.parent) == []


# Ways of moving that are refused.


@pytest.mark.parametrize(
    "number",
    [
        errno.EXDEV,
        errno.EINVAL,
        errno.EOPNOTSUPP,
        errno.ENOSYS,
        errno.EPERM,
        errno.EBADF,
        errno.ETXTBSY,
        errno.EIO,
    ],
)
@pytest.mark.parametrize("at", [0, 1])
def test_a_kernel_copy_that_is_refused_is_done_by_hand(
    target: Path, source: Path, monkeypatch: pytest.MonkeyPatch, number: int, at: int
) -> None:
    copied = _kernel_copies(monkeypatch, lambda call: number if call >= at else None)
    cord = Cord(b"head") + Cord.from_file(source)
    report = write(cord, target)

    assert target.read_bytes() == bytes(cord)
    assert report.transfers.get("kernel", 0) == sum(copied)
    assert len(copied) == at


def test_a_kernel_copy_of_nothing_is_done_by_hand(
    target: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kernel_copies(monkeypatch, lambda call: 0)
    cord = Cord.from_file(source)
    report = write(cord, target)

    assert target.read_bytes() == bytes(cord)
    assert dict(report.transfers) == {"file": len(cord)}


def _kernel_copies(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[int], int | None]
) -> list[int]:
    """Make the target look like one without a block device, and its copies short or failing."""
    real = os.copy_file_range
    copied: list[int] = []
    calls = itertools.count()

    def copy_file_range(source: int, target: int, count: int, offset: int) -> int:
        number = fault(next(calls))
        if number == 0:
            return 0
        if number is not None:
            raise OSError(number, os.strerror(number))
        copied.append(real(source, target, min(count, 1_000_001), offset))
        return copied[-1]

    monkeypatch.setattr(os, "major", lambda device: 0)
    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    return copied


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EIO])
def test_a_clone_that_is_refused_is_done_by_hand(
    target: Path, source: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    asked: list[int] = []

    def ioctl(descriptor: int, request: int, argument: bytes) -> None:
        asked.append(request)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    cord = Cord(bytes(4096)) + Cord.from_file(source) + Cord.from_file(source)
    write(cord, target)

    assert target.read_bytes() == bytes(cord)
    assert asked == [0x4020940D]
