"""Writing a Cord: what a target is, and when a file is committed.

Rules of this file: a file at a path is replaced as a whole, never edited; nothing is committed
before every source was found unchanged; anything that is not a path is written as a stream, after
all digests are computed; an `OSError` of a call on a target becomes a `WriteError`, and whatever
the handler of a signal raises arrives as it is. How bytes move is the business of `transfer.py` and
`sinks.py`, how a file is replaced that of `replacement.py`, whether it fits that of `space.py`;
nothing else in this package makes system calls that write.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, TypeGuard, TypeVar

from cordbundle.chunks import Deferred, FileRange, Slice
from cordbundle.cord import Cord, Digest
from cordbundle.digest import DIGEST_SIZE
from cordbundle.errors import WriteError
from cordbundle.failures import system_errors, tolerated
from cordbundle.progress import Meter, Progress
from cordbundle.replacement import Replacement, folder_to_sync, path_to_replace, sync_descriptor
from cordbundle.set_marks import SetMark, name_of, put_marks
from cordbundle.sinks import DescriptorSink, FileSink, ObjectSink, Sink, Writable
from cordbundle.source import SourceFile
from cordbundle.space import check_space
from cordbundle.transfer import Digests, Transfer

if TYPE_CHECKING:
    from socket import socket

    Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
    Target = Path | int | Writable | socket
    PathT = TypeVar("PathT", bound=Path)

__all__ = ["Durability", "Progress", "WriteReport", "write", "write_all"]

Durability = Literal["none", "file", "dir"]

_PROGRAM_SUFFIXES = (".pte", ".bpte", ".bp")
_PROGRAM = b"ET12"
_PROGRAMS = (_PROGRAM, b"BP08", b"BPS1")
_OPEN_FLAGS = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What a write did."""

    nbytes: int
    """Bytes of the Cord, all of which arrived."""

    seconds: float
    """Time taken for this target, with syncing and renaming."""

    transfers: Mapping[str, int]
    """Bytes by the way they went; the values add up to `nbytes`.

    `memory`: from memory; `file`: read from a file and written; `kernel`: copied between files by
    the kernel or a file server; `clone`: shared with the source file; `hole`: zeros for which
    nothing was written; `fill`: other padding; `deferred`: produced for the write; `digest`.
    """


def write(
    cord: Cord,
    target: Target,
    *,
    durability: Durability = "file",
    progress: Progress | None = None,
) -> WriteReport:
    """Write all bytes of a Cord to a target, by the fastest way that the target offers.

    A file at a path is replaced as a whole: whatever happens, it is afterwards the old or the new
    one, also when it is a source of the Cord itself. Links are followed. A FIFO or character device
    is written through as a stream (a FIFO waits for its reader, as `open()` does); folders, sockets
    and block devices are refused. See `cordbundle.replacement` for permissions and ownership.

    A stream keeps what it took before an error. A regular file given by descriptor is written at
    its current position (append mode: at its end), and keeps what it has after the last byte.

    Args:
        cord: What to write. A digest in it is computed on the way to a path, before all other
            targets. Its sources are compared with what was planned, before anything is committed.
        target: A path; a descriptor, `io.FileIO`, `io.BufferedWriter`, `io.BufferedRandom` (flushed
            first, then written by descriptor; the position follows) or plain `socket.socket`; or
            any other object with `write()`, which gets at most 8 MiB at a time and returns how many
            bytes it took. Text files are refused.
        durability: "none" leaves the moment to the system (after a power loss the file may be
            empty); "file" waits until the bytes are on the disk; "dir" also waits for the rename.
            Descriptors of regular files are synced for both; other targets never. On a filesystem
            whose folders cannot be synced, "dir" is an error, with the new file in place.
        progress: Called with (bytes done, bytes in all): at the start, about every 4 MiB, at the
            end, before the commit. What it raises cancels the write and arrives at the caller.

    Returns:
        The report.

    Raises:
        WriteError: The target fails, is full, is of a wrong kind, or is a source of the Cord.
        SourceChangedError: A source is no longer what was planned; nothing is committed.
        TypeError: `cord` is no Cord, or `target` is none of the above.
    """
    _check_durability(durability)
    _check_cord(cord)
    if not isinstance(target, (str, bytes, os.PathLike)):
        return _write_open(cord, target, durability, progress)
    name = os.fsdecode(target)
    path = path_to_replace(name)
    if path is None:
        return _write_through(cord, name, durability, progress)
    return _replace([_Job(name, path, cord)], durability, progress)[0]


def write_all(
    cords: Mapping[PathT, Cord],
    *,
    durability: Durability = "file",
    progress: Progress | None = None,
) -> dict[PathT, WriteReport]:
    """Write a set of files: all of them in full, then all put in place.

    Every file is afterwards the old or the new one, and before the first is put in place nothing
    has changed. Data files are put in place before programs and bundles, which have their
    identifier or a path that ends in `.pte`, `.bpte` or `.bp`, otherwise in the order given; should
    that stop half way, new data may stand beside an old program, never the reverse. On Linux data
    files are marked with their set and the digests of the programs in it, in an extended attribute,
    by which `cordbundle ptd --check` tells that; it takes reading these programs once more.

    Args:
        cords: A Cord for every path; links are followed.
        durability: As for `write`; with "dir", data files are on the disk before programs follow.
        progress: As for `write`, over the bytes of all files together.

    Returns:
        A report for every path, in the order given.

    Raises:
        WriteError: As for `write`; also for a path that is no regular file, and for two paths that
            are one file.
        SourceChangedError: A source is no longer what was planned; nothing is committed.
    """
    _check_durability(durability)
    jobs = list(_jobs((os.fsdecode(path), cord) for path, cord in cords.items()))
    return dict(zip(cords, _replace(jobs, durability, progress), strict=True))


class _Job:
    """A Cord on its way to a path."""

    def __init__(self, name: str, path: str, cord: Cord) -> None:
        self.name = name
        self.path = path
        self.cord = cord
        self.folder = os.path.dirname(path)
        self.identifier = _identifier(cord)
        self.is_program = name.lower().endswith(_PROGRAM_SUFFIXES) or self.identifier in _PROGRAMS
        self.file = Replacement(path)
        self._moved: Counter[str] = Counter()
        self._seconds = 0.0

    def open(self, meter: Meter) -> FileSink:
        with system_errors(self.name, "cannot create a file beside it"):
            self.file.create()
            return FileSink(self.name, len(self.cord), meter, self.file.descriptor)

    def fill(self, sink: FileSink, digests: Digests) -> None:
        with self._timed():
            transfer = Transfer(self.cord, sink, digests)
            transfer.fill_file(sink)
            self._moved = transfer.moved

    def sync(self, *, durable: bool) -> None:
        with self._timed(), system_errors(self.name, "bytes are lost"):
            self.file.sync(durable=durable)

    def commit(self, placed: Sequence[str]) -> None:
        cause = f"new already: {', '.join(placed)}" if placed else None
        with self._timed(), system_errors(self.name, "cannot be replaced", cause):
            self.file.commit()

    def report(self) -> WriteReport:
        return _report(self.cord, self._seconds, self._moved)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        start = perf_counter()
        yield
        self._seconds += perf_counter() - start


def _identifier(cord: Cord) -> bytes:
    """Return a flatbuffer's file identifier; none of a Cord whose head has yet to be produced."""
    first = cord.first_chunk()
    return b"" if isinstance(first, Deferred) else bytes(cord[4:8])


def _jobs(cords: Iterable[tuple[str, Cord]]) -> Iterator[_Job]:
    names: dict[str, str] = {}
    for name, cord in cords:
        _check_cord(cord)
        path = path_to_replace(name)
        if path is None:
            raise WriteError(
                "cannot be in a set",
                errno=errno.EINVAL,
                source=name,
                expected="a regular file",
                actual="a FIFO or device",
            )
        if path in names:
            raise WriteError(
                "two paths are one file",
                errno=errno.EINVAL,
                source=name,
                expected="paths of different files",
                actual=names[path],
            )
        names[path] = name
        yield _Job(name, path, cord)


def _replace(
    jobs: list[_Job], durability: Durability, progress: Progress | None
) -> list[WriteReport]:
    """Write all jobs to temporary files, then put these in place."""
    sources = _sources(job.cord for job in jobs)
    _check_unchanged(sources)
    meter = Meter(sum(len(job.cord) for job in jobs), progress)
    digests = Digests()
    with contextlib.ExitStack() as stack:
        sinks = []
        for job in jobs:
            stack.callback(job.file.discard)  # before it exists: an interrupt may come between
            sinks.append(job.open(meter))
        check_space([(job.cord, sink) for job, sink in zip(jobs, sinks, strict=True)])
        for job, sink in zip(jobs, sinks, strict=True):
            job.fill(sink, digests)
        meter.finish()
        _mark(jobs)
        for job in jobs:
            job.sync(durable=durability != "none")
        folders = _open_folders(jobs, stack) if durability == "dir" else {}
        _check_unchanged(sources)
        placed: list[str] = []
        _commit([job for job in jobs if not job.is_program], placed, folders)
        _commit([job for job in jobs if job.is_program], placed, folders)
    return [job.report() for job in jobs]


def _mark(jobs: list[_Job]) -> None:
    """Mark the data files of a set that has programs too; bundles do not need them."""
    programs = [job for job in jobs if job.identifier == _PROGRAM]
    data = [job for job in jobs if not job.is_program]
    if programs and data:
        mark = SetMark(
            os.urandom(DIGEST_SIZE),
            frozenset((name_of(job.path), job.cord.xxh3_128()) for job in programs),
            frozenset(name_of(job.path) for job in data),
        )
        put_marks((job.file.descriptor for job in data), mark)


def _open_folders(jobs: list[_Job], stack: contextlib.ExitStack) -> dict[str, int | None]:
    """Open the folders that will be synced, while a failure still leaves the old files."""
    folders: dict[str, int | None] = {}
    for job in jobs:
        if job.folder not in folders:
            with system_errors(job.name, "its folder cannot be opened to be synced"):
                folders[job.folder] = stack.enter_context(folder_to_sync(job.folder))
    return folders


def _commit(jobs: list[_Job], placed: list[str], folders: Mapping[str, int | None]) -> None:
    for job in jobs:
        job.commit(placed)
        placed.append(job.name)
    for job in {job.folder: job for job in jobs}.values():
        descriptor = folders.get(job.folder)
        if descriptor is not None:
            with system_errors(job.name, "is in place, but its folder cannot be synced"):
                os.fsync(descriptor)


def _write_through(
    cord: Cord, name: str, durability: Durability, progress: Progress | None
) -> WriteReport:
    """Write to a FIFO or character device."""
    with system_errors(name):
        descriptor = os.open(name, _OPEN_FLAGS)
    try:
        return _write_descriptor(cord, descriptor, name, durability, progress)
    finally:
        with tolerated():
            os.close(descriptor)


def _write_open(
    cord: Cord, target: object, durability: Durability, progress: Progress | None
) -> WriteReport:
    """Write to what is open already, by its descriptor where that is its stream."""
    if isinstance(target, int) and not isinstance(target, bool):
        return _write_descriptor(cord, target, f"descriptor {target}", durability, progress)
    if isinstance(target, io.TextIOBase):
        raise TypeError(
            f"{target!r} is a text file; open it in binary mode ('wb') or hand over its .buffer"
        )
    if _is_binary_file(target):
        return _write_file_object(cord, target, durability, progress)
    if _is_writable(target):
        meter = Meter(len(cord), progress)
        sink = ObjectSink(_name(target), len(cord), meter, target)
        return _stream(cord, sink, meter, _sources([cord]))
    if _is_socket(target):
        timeout = target.gettimeout()
        return _write_descriptor(
            cord, target.fileno(), repr(target), durability, progress, timeout=timeout
        )
    raise TypeError(
        f"cannot write to {type(target).__name__}; a path, descriptor, binary file, socket or "
        "object with write() is needed"
    )


def _write_file_object(
    cord: Cord, target: _BinaryFile, durability: Durability, progress: Progress | None
) -> WriteReport:
    """Flush, write by descriptor, and let the object's position follow."""
    name = _name(target)
    with system_errors(name):
        target.flush()
    try:
        return _write_descriptor(cord, target.fileno(), name, durability, progress)
    finally:
        with system_errors(name):
            if target.seekable():  # CPython asks the system for the position, others may not
                target.seek(os.lseek(target.fileno(), 0, os.SEEK_CUR))


def _write_descriptor(
    cord: Cord,
    descriptor: int,
    name: str,
    durability: Durability,
    progress: Progress | None,
    *,
    timeout: float | None = None,
) -> WriteReport:
    with system_errors(name):
        status = os.fstat(descriptor)
    sources = _sources([cord])
    for source in sources:
        if source.identity == (status.st_dev, status.st_ino):
            raise WriteError(
                "is also a source of what is written to it",
                errno=errno.EINVAL,
                source=name,
                actual=source.path,
                cause="write to the path, which replaces the file as a whole",
            )
    meter = Meter(len(cord), progress)
    sink = DescriptorSink(name, len(cord), meter, descriptor, timeout or None)
    durable = durability != "none" and stat.S_ISREG(status.st_mode)
    return _stream(cord, sink, meter, sources, descriptor if durable else None)


def _stream(
    cord: Cord, sink: Sink, meter: Meter, sources: list[SourceFile], to_sync: int | None = None
) -> WriteReport:
    """Write in order, all digests first; a stream keeps what it took before an error."""
    start = perf_counter()
    _check_unchanged(sources)
    transfer = Transfer(cord, sink, Digests())
    transfer.stream()
    _check_unchanged(sources)
    meter.finish()
    if to_sync is not None:
        with system_errors(sink.name):
            sync_descriptor(to_sync)
    return _report(cord, perf_counter() - start, transfer.moved)


def _report(cord: Cord, seconds: float, moved: Counter[str]) -> WriteReport:
    kinds = {kind: count for kind, count in sorted(moved.items()) if count}
    return WriteReport(len(cord), seconds, MappingProxyType(kinds))


def _check_durability(durability: str) -> None:
    if durability not in ("none", "file", "dir"):
        raise ValueError(f"durability {durability!r} is not 'none', 'file' or 'dir'")


def _check_cord(cord: Cord) -> None:
    if not isinstance(cord, Cord):
        raise TypeError(f"{type(cord).__name__} is no Cord; hand over cordbundle.Cord(data)")


def _sources(cords: Iterable[Cord]) -> list[SourceFile]:
    """Return all source files of Cords, also those that are only digested."""
    found: dict[SourceFile, None] = {}
    seen: set[int] = set()
    waiting = list(cords)
    while waiting:
        cord = waiting.pop()
        found.update(dict.fromkeys(cord.empty_sources))
        if id(cord) in seen or cord.is_memory:
            continue
        seen.add(id(cord))
        for chunk in cord.raw_chunks:
            whole = chunk.whole if isinstance(chunk, Slice) else chunk
            if isinstance(whole, FileRange):
                found[whole.source] = None
            elif isinstance(whole, Digest):
                waiting.append(whole.cord)
    return list(found)


def _check_unchanged(sources: list[SourceFile]) -> None:
    for source in sources:
        source.check_unchanged()


class _BinaryFile(Protocol):
    """What the three binary file classes have in common."""

    def flush(self) -> None: ...
    def fileno(self) -> int: ...
    def seekable(self) -> bool: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...


def _is_binary_file(target: object) -> TypeGuard[_BinaryFile]:
    """Return whether a descriptor is the object's stream; a subclass may do anything in write()."""
    if type(target) in (io.BufferedWriter, io.BufferedRandom):
        target = target.raw  # type: ignore[attr-defined]  # just seen
    return type(target) is io.FileIO


def _is_writable(target: object) -> TypeGuard[Writable]:
    return callable(getattr(target, "write", None))


def _is_socket(target: object) -> TypeGuard[socket]:
    if not hasattr(target, "send"):
        return False
    import socket as module  # slow to import, and there already for whoever has a socket

    return isinstance(target, module.socket)


def _name(target: object) -> str:
    name = getattr(target, "name", None)
    return name if isinstance(name, str) else repr(target)
