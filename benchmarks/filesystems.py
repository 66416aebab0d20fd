"""Filesystems that are made for a run: XFS and Btrfs in a sparse file, mounted by a loop device.

Rules of this file: what was mounted is unmounted, whatever ends the run; what cannot be made here
is an answer in words, no error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Mounted", "mounted", "why_not"]

_MAKE = {"xfs": ("mkfs.xfs", "-q", "-m", "reflink=1"), "btrfs": ("mkfs.btrfs", "-q")}
_ENVIRONMENT = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Mounted:
    """A filesystem of this run.

    Attributes:
        folder: Where it is mounted.
        device: Its loop device, "7:0" for example, which nobody else writes to.
    """

    folder: Path
    device: str


def why_not(kind: Literal["xfs", "btrfs"]) -> str | None:
    """Return why a filesystem cannot be made here, or None if nothing is known to be in the way."""
    if os.geteuid() != 0:
        return "only root can mount"
    tools = (_MAKE[kind][0], "mount", "umount")
    missing = [tool for tool in tools if not shutil.which(tool, path=_ENVIRONMENT["PATH"])]
    return f"{', '.join(missing)} not installed" if missing else None


@contextlib.contextmanager
def mounted(kind: Literal["xfs", "btrfs"], parent: Path, size: int) -> Iterator[Mounted]:
    """Make a filesystem in a sparse file and mount it.

    Args:
        kind: Its type.
        parent: Folder for the file and for the folder to mount at.
        size: Of the filesystem in bytes; of it, the file takes what is written.

    Raises:
        OSError: It cannot be made; the text is what the tool said.
    """
    image, folder = parent / f"{kind}.image", parent / kind
    with image.open("xb") as file:
        file.truncate(size)
    folder.mkdir()
    try:
        _call(*_MAKE[kind], str(image))
        _call("mount", "-o", "loop", str(image), str(folder))
        yield Mounted(folder, _device_at(folder))
    finally:
        _unmount(folder)
        image.unlink()


def _call(*command: str) -> None:
    done = subprocess.run(
        command, env=_ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        check=False, start_new_session=True,  # Ctrl-C is for us: a half-made mount is nobody's
    )  # fmt: skip
    if done.returncode:
        raise OSError(f"{command[0]}: {' '.join(done.stderr.split()) or done.returncode}")


def _device_at(folder: Path) -> str:
    """Return the number of the block device that is mounted at a folder."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, filesystem = line.partition(" - ")
        if mount.split()[4] == str(folder):
            number = os.stat(filesystem.split()[1]).st_rdev
            return f"{os.major(number)}:{os.minor(number)}"
    raise OSError(f"nothing is mounted at {folder}")


def _unmount(folder: Path) -> None:
    """Unmount a folder, which also frees its loop device; at last whoever still uses it."""
    for attempt in range(_ATTEMPTS):
        if not os.path.ismount(folder):
            return
        try:
            _call("umount", *(["--lazy"] if attempt == _ATTEMPTS - 1 else []), str(folder))
        except OSError:  # busy, until a process that was killed is gone
            time.sleep(0.1)
