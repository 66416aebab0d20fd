"""What the kernel refuses to copy, share or reserve is done by hand, whatever its reason.

The numbers are those for which Go's `internal/poll`, Rust's `std::io::copy` and coreutils' `cp`
know a reason, and those that say that the copy itself went wrong: then the copy by hand gives the
better error, or works.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from cordbundle import sinks
from cordbundle.cord import Cord
from cordbundle.errors import WriteError
from cordbundle.writer import write
from tests.faults import counted_call

MIB = 1 << 20

REASONS = {
    errno.ENOSYS: "a kernel before 4.5, or a sandbox",
    errno.EXDEV: "two filesystems, before Linux 5.3",
    errno.EINVAL: "a pipe or device; overlapping or odd ranges; a filesystem that does not know it",
    errno.EOPNOTSUPP: "NFS; RHEL 7",
    errno.EPERM: "a filter of system calls, as in containers; an immutable file",
    errno.EACCES: "a security module",
    errno.EBADF: "a target in append mode",
    errno.ETXTBSY: "a swap file",
    errno.ENOTTY: "no such ioctl",
    errno.EOVERFLOW: "an offset near the largest",
    errno.EISDIR: "a folder",
    errno.ENOENT: "CIFS",
    errno.EIO: "CIFS; or a disk that fails",
    errno.ENOMEM: "no memory",
    errno.ESTALE: "NFS",
    errno.EINTR: "a signal",
    errno.EAGAIN: "a lock",
    errno.EFBIG: "the target's limit",
    errno.ENOSPC: "a full disk",
    errno.EDQUOT: "a full quota",
}


@pytest.fixture(params=REASONS, ids=errno.errorcode.get)
def number(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(2 * MIB + 5))
    return path


class Refusing:
    """A function that works `after` times and is refused from then on, or answers 0."""

    def __init__(self, real: Any, after: int, number: int | None) -> None:
        self.calls = 0
        self._real, self._after, self._number = real, after, number

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls <= self._after:
            source, target, size, offset = arguments
            return self._real(source, target, min(size, 700_001), offset)
        if self._number is None:
            return 0
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_copy_by_the_kernel_goes_on_by_hand_where_it_is_refused(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int
) -> None:
    refusing = Refusing(os.copy_file_range, after, number)
    monkeypatch.setattr(os, "major", lambda device: 0)
    monkeypatch.setattr(os, "copy_file_range", refusing)
    report = write(Cord.from_file(source), tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == source.read_bytes()
    assert report.transfers.get("kernel", 0) == after * 700_001
    assert refusing.calls == after + 1


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_copy_by_the_kernel_of_no_bytes_goes_on_by_hand(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    refusing = Refusing(os.copy_file_range, after, None)
    monkeypatch.setattr(os, "major", lambda device: 0)
    monkeypatch.setattr(os, "copy_file_range", refusing)
    write(Cord.from_file(source), tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == source.read_bytes()
    assert refusing.calls == after + 1


def test_sharing_that_is_refused_is_a_copy(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refusing = Refusing(None, 0, number)
    monkeypatch.setattr(fcntl, "ioctl", refusing)
    report = write(Cord.from_file(source), tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == source.read_bytes()
    assert (refusing.calls, report.transfers) == (1, {"file": 2 * MIB + 5})


def test_a_copy_that_fails_by_hand_too_says_why(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "major", lambda device: 0)
    monkeypatch.setattr(os, "copy_file_range", Refusing(None, 0, errno.EIO))
    monkeypatch.setattr(os, "write", Refusing(None, 0, errno.ENOSPC))
    with pytest.raises(WriteError) as caught:
        write(Cord.from_file(source), tmp_path / "out")

    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == ["source"]


def test_blocks_that_cannot_be_reserved_are_written(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []

    def fallocate(*arguments: int) -> int:
        asked.append(arguments)
        return -1

    monkeypatch.setattr(sinks, "_fallocate", lambda: fallocate)
    monkeypatch.setattr(os, "major", lambda device: 8)
    payload = Cord.from_file(source)
    write(payload + payload, tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == source.read_bytes() * 2
    assert len(asked) == 1


def test_only_a_new_file_is_copied_into_by_the_kernel(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor may be in append mode or a pipe, where the kernel refuses or copies wrongly."""
    monkeypatch.setattr(os, "major", lambda device: 0)
    (tmp_path / "out").write_bytes(b"old")
    with (
        counted_call("copy_file_range") as copies,
        counted_call("sendfile") as sent,
        (tmp_path / "out").open("ab") as file,
    ):
        write(Cord.from_file(source), file)

    assert (tmp_path / "out").read_bytes() == b"old" + source.read_bytes()
    assert (copies, sent) == ([], [])
