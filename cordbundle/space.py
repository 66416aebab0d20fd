"""Whether what is to be written fits on the disk.

Rules of this file: it refuses only what certainly cannot fit, before a byte is written; where the
system cannot tell, the write is tried.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Sequence

from cordbundle.chunks import FileRange, Fill
from cordbundle.cord import Cord
from cordbundle.errors import WriteError
from cordbundle.failures import system_errors
from cordbundle.sinks import FileSink
from cordbundle.source import SourceFile
from cordbundle.transfer import is_hole

__all__ = ["check_space"]


def check_space(writes: Sequence[tuple[Cord, FileSink]]) -> None:
    """Refuse what cannot fit, while nothing is written, where the system can tell.

    Raises:
        WriteError: With `ENOSPC`.
    """
    for device in {sink.device for _, sink in writes}:
        here = [(cord, sink) for cord, sink in writes if sink.device == device]
        with system_errors(here[0][1].name):
            free = _free_space(here[0][1].descriptor)
        if free is None or sum(len(cord) for cord, _ in here) <= free:
            continue
        need = sum(_least_space(cord, sink) for cord, sink in here)
        if need > free:
            raise WriteError(
                os.strerror(errno.ENOSPC),
                errno=errno.ENOSPC,
                source=", ".join(sink.name for _, sink in here),
                expected=f"{need} bytes of free space",
                actual=f"{free} bytes",
                cause="nothing was written",
            )


def _free_space(descriptor: int) -> int | None:
    if not hasattr(os, "fstatvfs"):
        return None
    status = os.fstatvfs(descriptor)
    if status.f_blocks == 0:  # a filesystem that does not count
        return None
    blocks = status.f_bfree if os.geteuid() == 0 else status.f_bavail
    return blocks * status.f_frsize


def _least_space(cord: Cord, sink: FileSink) -> int:
    """Return how many bytes take space where extents are shared and holes stay holes.

    O(chunks), and asked only where the disk is nearly full.
    """
    need = len(cord)
    ranges: Counter[SourceFile] = Counter()
    for end, chunk in zip(cord.chunk_ends, cord.raw_chunks, strict=True):
        if isinstance(chunk, FileRange):
            shared = sink.try_share(chunk, end - chunk.size)
            ranges[chunk.source] += chunk.size - shared
            need -= shared
        elif isinstance(chunk, Fill) and is_hole(chunk):
            need -= chunk.size
    for source, size in ranges.items():
        with source.descriptor() as descriptor:
            need -= max(0, size - os.fstat(descriptor).st_blocks * 512)
    return need
