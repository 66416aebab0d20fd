"""Real disks that are full, folders that are read-only, readers that are not there."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordbundle.cord import Cord, Digest
from cordbundle.errors import WriteError
from cordbundle.writer import write, write_all
from tests.faults import counted_call, litter, mounted_image

MIB = 1 << 20
OLD = b"the old file"
MS_RDONLY, MS_REMOUNT = 1, 32


def mount(kind: str, folder: Path, flags: int = 0, options: str = "") -> None:
    """Mount a filesystem without a device; skip the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(folder), kind.encode(), flags, options.encode()) != 0:
        pytest.skip("cannot mount")


def unmount(folder: Path) -> None:
    ctypes.CDLL(None).umount2(os.fsencode(folder), 2)  # MNT_DETACH


@pytest.fixture(params=["ext4", "xfs"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a folder on a real filesystem, all but 8 MiB of it in use."""
    size = {"ext4": 48, "xfs": 300}[request.param]
    with mounted_image(request.param, size, tmp_path / "image", tmp_path / "disk") as folder:
        status = os.statvfs(folder)
        with (folder / "ballast").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, status.f_bfree * status.f_bsize - 8 * MIB)
        yield folder


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every filesystem be one that does not count its blocks, so that writing is tried."""
    real = os.fstatvfs

    class Status:
        f_blocks = 0

        def __init__(self, descriptor: int) -> None:
            self.f_bsize = real(descriptor).f_bsize

    monkeypatch.setattr(os, "fstatvfs", Status)


def memory(source: Path) -> Cord:
    return Cord(source.read_bytes())


def digested(source: Path) -> Cord:
    payload = Cord.from_file(source)
    return Cord.of(Digest(payload)) + payload


@pytest.mark.parametrize("make", [memory, Cord.from_file, digested])
def test_a_disk_that_fills_up_while_it_is_written_leaves_the_old_files(
    disk: Path, tmp_path: Path, blind: None, make: Callable[[Path], Cord]
) -> None:
    (tmp_path / "source").write_bytes(os.urandom(MIB) * 20)
    for name in ("m.pte", "w.ptd"):
        (disk / name).write_bytes(OLD)
    cord = make(tmp_path / "source")
    before = sorted(os.listdir(disk))
    with pytest.raises(WriteError) as one:
        write(cord, disk / "m.pte")
    with pytest.raises(WriteError) as several:
        write_all({disk / "m.pte": Cord(b"small"), disk / "w.ptd": cord})

    assert (one.value.errno, several.value.errno) == (errno.ENOSPC, errno.ENOSPC)
    assert sorted(os.listdir(disk)) == before
    assert {(disk / name).read_bytes() for name in ("m.pte", "w.ptd")} == {OLD}


def test_the_space_of_a_write_that_failed_is_free_again(
    disk: Path, tmp_path: Path, blind: None
) -> None:
    (tmp_path / "source").write_bytes(os.urandom(MIB) * 20)
    with pytest.raises(WriteError):
        write(Cord.from_file(tmp_path / "source"), disk / "m.pte")
    write(Cord(os.urandom(4 * MIB)), disk / "m.pte")

    assert (disk / "m.pte").stat().st_size == 4 * MIB


@pytest.mark.parametrize("disk", ["xfs"], indirect=True)
def test_shared_blocks_fit_on_a_disk_that_is_nearly_full(disk: Path) -> None:
    cord = source_of_6_mib(disk)

    report = write(cord, disk / "m.pte")

    assert report.transfers == {"clone": 6 * MIB}
    assert (disk / "m.pte").read_bytes() == (disk / "source").read_bytes()


@pytest.mark.parametrize("disk", ["ext4"], indirect=True)
def test_blocks_that_cannot_be_shared_do_not_fit_and_nothing_is_left(disk: Path) -> None:
    cord = source_of_6_mib(disk)

    with pytest.raises(WriteError) as caught:
        write(cord, disk / "m.pte")

    assert caught.value.errno == errno.ENOSPC
    assert sorted(set(os.listdir(disk)) - {"lost+found"}) == ["ballast", "source"]


def source_of_6_mib(disk: Path) -> Cord:
    """Return a file that takes most of what is free."""
    (disk / "source").write_bytes(os.urandom(MIB) * 6)
    os.sync()
    return Cord.from_file(disk / "source")


@pytest.mark.parametrize("name", ["target", "new"])
def test_a_read_only_filesystem_is_an_error_with_its_number(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    mount("tmpfs", folder)
    try:
        (folder / "target").write_bytes(OLD)
        mount("tmpfs", folder, MS_REMOUNT | MS_RDONLY)
        with pytest.raises(WriteError) as caught:
            write(Cord(b"new"), folder / name)
        found = os.listdir(folder), (folder / "target").read_bytes()
    finally:
        unmount(folder)

    assert caught.value.errno == errno.EROFS
    assert found == (["target"], OLD)


def test_a_quota_that_is_used_up_is_an_error_with_its_number(tmp_path: Path) -> None:
    control = shutil.which("btrfs", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if control is None:
        pytest.skip("needs Btrfs's tools")
    with mounted_image("btrfs", 200, tmp_path / "image", tmp_path / "disk") as folder:
        (folder / "target").write_bytes(OLD)
        subprocess.run([control, "quota", "enable", folder], check=True)
        limit = [control, "qgroup", "limit", "2M", os.fspath(folder)]
        subprocess.run(limit, check=True, capture_output=True)
        with pytest.raises(WriteError) as caught:
            write(Cord(os.urandom(8 * MIB)), folder / "target")
        found = os.listdir(folder), (folder / "target").read_bytes()

    assert caught.value.errno == errno.EDQUOT
    assert found == (["target"], OLD)


def run(code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """Start a process that writes; its output is a pipe."""
    head = (
        "import os, resource, signal, sys, time\n"
        "from cordbundle.cord import *\nfrom cordbundle.errors import *\n"
        "from cordbundle.writer import *\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored behind a shell's &
    )
    command = [sys.executable, "-c", head + code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload, no-any-return]


def finish(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Return what a process printed, and its exit code."""
    printed, _ = process.communicate(timeout=60)
    return printed.strip(), process.returncode


def test_a_limit_on_file_sizes_may_kill_the_process_and_leaves_the_old_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "target").write_bytes(OLD)
    code = (
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; a host may not\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "write(Cord(bytes(200_000)), sys.argv[1])"
    )
    _, exit_code = finish(run(code, tmp_path / "target"))
    left = len(litter(tmp_path))
    old = (tmp_path / "target").read_bytes()
    write(Cord(b"new"), tmp_path / "target")

    assert (exit_code, left, old) == (-signal.SIGXFSZ, 1, OLD)
    assert os.listdir(tmp_path) == ["target"]


def test_a_limit_on_file_sizes_leaves_a_set_as_it_was(tmp_path: Path) -> None:
    for name in ("m.pte", "w.ptd"):
        (tmp_path / name).write_bytes(OLD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(WriteError) as caught:
            write_all({tmp_path / "w.ptd": Cord(b"w"), tmp_path / "m.pte": Cord(bytes(200_000))})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.errno == errno.EFBIG
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {OLD}


def test_a_fifo_waits_for_its_reader_and_gives_it_all(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    code = "print('there', flush=True); write(Cord(b'abc' * 100_000), sys.argv[1]); print('done')"
    process = run(code, tmp_path / "fifo")
    assert process.stdout is not None
    process.stdout.readline()
    _until_blocked(process.pid)
    with open(tmp_path / "fifo", "rb") as reader:
        data = reader.read()

    assert finish(process) == ("done", 0)
    assert data == b"abc" * 100_000


def test_a_wait_for_the_reader_of_a_fifo_ends_with_an_interrupt(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    code = (
        "print('there', flush=True)\n"
        "try: write(Cord(b'abc'), sys.argv[1])\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    process = run(code, tmp_path / "fifo")
    assert process.stdout is not None
    process.stdout.readline()
    _until_blocked(process.pid)
    process.send_signal(signal.SIGINT)

    assert finish(process) == ("interrupted", 0)


def test_a_reader_of_a_fifo_that_leaves_is_an_error_with_its_number(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    code = (
        "try: write(Cord(bytes(10_000_000)), sys.argv[1])\nexcept WriteError as e: print(e.errno)"
    )
    process = run(code, tmp_path / "fifo")
    with open(tmp_path / "fifo", "rb") as reader:
        reader.read(1)

    assert finish(process) == (str(errno.EPIPE), 0)


def _until_blocked(process: int) -> None:
    """Wait until a process sleeps in a call and goes on sleeping."""
    asleep = 0
    while asleep < 5:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.01)


@pytest.mark.parametrize("several", [False, True], ids=["a file", "a set"])
def test_ctrl_c_ends_a_write_with_nothing_torn_and_nothing_left(
    tmp_path: Path, several: bool
) -> None:
    """The progress of the middle of the write asks for the signal, which comes when it comes."""
    names = ["m.pte", "w.ptd"] if several else ["m.pte"]
    (tmp_path / "source").write_bytes(os.urandom(MIB) * 64)
    (tmp_path / "out").mkdir()
    for name in names:
        (tmp_path / "out" / name).write_bytes(OLD)
    code = (
        "def progress(done, total):\n"
        "    if done and not told: told.append(print('now', flush=True))\n"
        "told = []; cord = Cord.from_file(sys.argv[1])\n"
        "try:\n"
        "    while True: write_all({path: cord for path in sys.argv[2:]}, progress=progress)\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    paths = [tmp_path / "out" / name for name in names]
    process = run(code, tmp_path / "source", *paths)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    printed = finish(process)
    new = (tmp_path / "source").read_bytes()

    assert printed == ("interrupted", 0)
    assert sorted(os.listdir(tmp_path / "out")) == names
    assert {path.read_bytes() for path in paths} <= {OLD, new}


def test_a_link_to_a_file_of_another_filesystem_is_followed_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    mount("tmpfs", folder)
    try:
        (folder / "real").write_bytes(OLD)
        (tmp_path / "link").symlink_to(folder / "real")
        with counted_call("replace") as calls:
            write(Cord(b"new"), tmp_path / "link")
        found = (folder / "real").read_bytes(), (tmp_path / "link").is_symlink()
    finally:
        unmount(folder)

    assert found == (b"new", True)
    assert [os.path.dirname(old) for old, _ in calls] == [os.fspath(folder)]
