"""Copying a large range of a file with two threads.

Rules of this file: blocks are read and hashed in order under one lock, and written without it, so
that one thread writes while the other reads; `progress` is called by the caller's thread only; the
helper writes to a descriptor of its own, so that whatever happens to the caller, it never writes to
another file that got the same number.

Both kernel calls and xxhash release the interpreter's lock. More than two threads gain nothing: a
filesystem writes one block of a file at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from cordbundle.chunks import STEP, FileRange
from cordbundle.digest import Hasher
from cordbundle.sinks import FileSink

__all__ = ["copy_in_tandem"]


def copy_in_tandem(chunk: FileRange, sink: FileSink, hashers: tuple[Hasher, ...]) -> None:
    """Copy a range to where the sink stands, and hash it; takes 2 MiB of memory.

    Raises:
        WriteError: The target fails or takes no bytes.
        SourceChangedError: The file ends before the range does.
    """
    pair = _Pair(chunk, sink, hashers)
    with pair.helper():
        for _ in pair.blocks(sink.descriptor):
            sink.advance(pair.take_count())
    if pair.error is not None:
        raise pair.error
    sink.advance(pair.take_count())
    sink.seek(sink.done)


class _Pair:
    """What both threads share."""

    def __init__(self, chunk: FileRange, sink: FileSink, hashers: tuple[Hasher, ...]) -> None:
        self.error: BaseException | None = None
        self._chunk = chunk
        self._sink = sink
        self._start = sink.done
        self._hashers = hashers
        self._next = 0
        self._written = 0
        self._stopped = False
        self._reading = threading.Lock()
        self._counting = threading.Lock()

    def blocks(self, descriptor: int) -> Iterator[None]:
        """Copy one block after the other, until the range or the other thread is at its end."""
        buffer = memoryview(bytearray(STEP))
        while True:
            with self._reading:
                at = self._next
                run = buffer[: min(STEP, self._chunk.size - at)]
                if self._stopped or not run:
                    return
                self._next += run.nbytes
                self._chunk.source.read_into(run, self._chunk.offset + at)
                for hasher in self._hashers:
                    hasher.update(run)
            self._sink.put(run, self._start + at, descriptor)
            with self._counting:
                self._written += run.nbytes
            yield

    def take_count(self) -> int:
        """Return how many bytes both wrote since the last call."""
        with self._counting:
            count, self._written = self._written, 0
        return count

    @contextlib.contextmanager
    def helper(self) -> Iterator[None]:
        """Let a second thread copy until the end of the block; without one, all is copied alone."""
        descriptor = self._sink.duplicate()
        thread = threading.Thread(target=self._help, args=(descriptor,), name="cordbundle-copy")
        try:
            thread.start()
        except RuntimeError:  # the system's limit of threads
            os.close(descriptor)
            yield
            return
        try:
            yield
        except BaseException:
            self._stopped = True
            raise
        finally:
            thread.join()

    def _help(self, descriptor: int) -> None:
        try:
            for _ in self.blocks(descriptor):
                pass
        except BaseException as error:  # raised again by the caller's thread
            self.error = error
            self._stopped = True
        finally:
            os.close(descriptor)
