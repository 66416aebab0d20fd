"""Where results were made: machine, kernel, filesystems, versions.

Rules of this file: facts that change results, nothing that names a person, host or path.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process import REPOSITORY

__all__ = ["Filesystem", "available_memory", "describe", "filesystem_of", "load", "version_of"]

_PACKAGES = ("cordbundle", "executorch", "flatbuffers", "numpy", "safetensors", "torch", "xxhash")


@dataclass(frozen=True, slots=True)
class Filesystem:
    """The filesystem of a folder.

    Attributes:
        kind: Its type, as the kernel names it.
        options: Mount options.
        block: Preferred block size in bytes.
    """

    kind: str
    options: str
    block: int


def describe() -> dict[str, object]:
    """Return what is known of this machine and its software."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _meminfo("MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "system": _os_release(),
        "transparent_hugepages": _text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "dirty_background_ratio": _text("/proc/sys/vm/dirty_background_ratio"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {name: version_of(name) for name in _PACKAGES},
        "coreutils": _first_line("cp", "--version"),
        "strace": _first_line("strace", "--version"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
    }


def version_of(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def load() -> float:
    """Return how many processes wanted to run, on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def available_memory() -> int:
    """Return how much memory can be used without swapping, in bytes."""
    return _meminfo("MemAvailable")


def filesystem_of(folder: Path) -> Filesystem:
    """Return the filesystem of a folder, from `/proc/self/mountinfo`."""
    device, path = os.stat(folder).st_dev, os.path.realpath(folder)
    wanted = f"{os.major(device)}:{os.minor(device)}"
    kind = options = "unknown"
    deepest = -1
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, filesystem = line.partition(" - ")
        number, at = mount.split()[2], mount.split()[4]
        # A subvolume of Btrfs has another number than its mount: there, where it stands decides.
        same = len(path) + 1 if number == wanted else len(at) if _is_in(path, at) else -1
        if same >= deepest:
            deepest = same
            kind = filesystem.split()[0]
            options = ",".join((mount.split()[5], filesystem.split()[2]))
    return Filesystem(kind, options, os.statvfs(folder).f_bsize)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _processor() -> str:
    for line in (_text("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor()


def _meminfo(wanted: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == wanted:
            return int(value.split()[0]) << 10
    raise LookupError(wanted)


def _os_release() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unknown"


def _first_line(*command: str) -> str | None:
    return _output(*command).partition("\n")[0] or None


def _git(*arguments: str) -> str | None:
    return _output("git", "-C", str(REPOSITORY), *arguments) or None


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
