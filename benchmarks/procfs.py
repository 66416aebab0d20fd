"""What Linux says of a process: memory by kind, bytes read and written; and of a device.

Rules of this file: reading only, but for the one file that resets the peak; sizes in bytes.
"""

from __future__ import annotations

import os

__all__ = ["bytes_written_to", "io_counters", "memory", "reset_peak", "rollup"]

_MEMORY = ("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem")


def memory(process: int | str = "self") -> dict[str, int]:
    """Return resident memory by kind, and its peak `VmHWM`, from `/proc/…/status`.

    Raises:
        OSError: The process is gone, or this is not Linux.
    """
    sizes = {}
    with open(f"/proc/{process}/status", "rb", buffering=0) as file:
        for line in file.read().decode().splitlines():
            name, _, value = line.partition(":")
            if name in _MEMORY:
                sizes[name] = int(value.split()[0]) << 10
    return sizes


def rollup(process: int | str = "self") -> dict[str, int]:
    """Return resident memory as `/proc/…/smaps_rollup` counts it: page by page, and so exactly.

    "RollupAnonymous", and "RollupFile" for all other pages. It takes about a millisecond for 100
    MiB, in which the process cannot map anything.

    Raises:
        OSError: The process is gone, or this is not Linux.
    """
    sizes = {}
    with open(f"/proc/{process}/smaps_rollup", "rb", buffering=0) as file:
        for line in file.read().decode().splitlines()[1:]:
            name, _, value = line.partition(":")
            sizes[name] = int(value.split()[0]) << 10
    anonymous = sizes["Anonymous"]
    return {"RollupAnonymous": anonymous, "RollupFile": sizes["Rss"] - anonymous}


def bytes_written_to(device: str) -> int:
    """Return how many bytes have been written to a block device, "7:0" say, since it exists."""
    with open(f"/sys/dev/block/{device}/stat", "rb", buffering=0) as file:
        return int(file.read().split()[6]) * 512  # the kernel's sector, whatever the device's


def io_counters() -> dict[str, int]:
    """Return this process's counters from `/proc/self/io`.

    `rchar` and `wchar` count bytes of read and write calls, `syscr` and `syscw` the calls,
    `read_bytes` and `write_bytes` what went to or from the device. Pages of mappings are in none
    of the first four.
    """
    with open("/proc/self/io", "rb", buffering=0) as file:
        lines = file.read().decode().splitlines()
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines)}


def reset_peak() -> None:
    """Let `VmHWM` begin anew at what is resident now."""
    descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY)
    try:
        os.write(descriptor, b"5")
    finally:
        os.close(descriptor)
