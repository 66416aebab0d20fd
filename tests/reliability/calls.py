"""Every system call of a write, seen and answered one by one.

Rules of this file: it replaces the functions through which this package reaches the system, of
`os`, `fcntl` and `select` and the C library's `fallocate`, for the length of a `with`; what it is
not asked to break it hands to the real one. What is not listed here is failed by strace
(`python -m tests.reliability.kernel_faults`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cordbundle import sinks

__all__ = ["Act", "Call", "fail", "intercepted", "record"]

_OS_CALLS = [
    *("open", "close", "dup", "stat", "lstat", "fstat", "statvfs", "fstatvfs", "access"),
    *(
        "readlink",
        "scandir",
        "preadv",
        "write",
        "writev",
        "pwrite",
        "lseek",
        "ftruncate",
        "copy_file_range",
    ),
    *("fchown", "fchmod", "setxattr", "removexattr", "fsync", "replace", "unlink"),
]

_CALLERS = ("cordbundle", "posixpath", "genericpath")  # the rest is the test's own

_COLLECTED = ("cordbundle.source", "close")  # whenever an earlier test's source is collected
_READERS = ("cordbundle.source", "cordbundle.transfer")


@dataclass(frozen=True, slots=True)
class Call:
    """A call on its way to the system.

    Attributes:
        index: Its place among all calls, from 0.
        name: The function.
        of_source: Whether it is made to read a source, not to write.
        arguments: Its arguments.
    """

    index: int
    name: str
    of_source: bool
    arguments: tuple[Any, ...]


Act = Callable[[Call, Callable[[], Any]], Any]
"""Answers a call, by calling the real function, if it likes."""


@contextlib.contextmanager
def intercepted(act: Act) -> Iterator[None]:
    """Let `act` answer every call."""
    count = 0

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            module = str(sys._getframe(1).f_globals["__name__"])
            if module.partition(".")[0] not in _CALLERS or (module, name) == _COLLECTED:
                return real(*arguments, **named)
            call = Call(count, name, module in _READERS, arguments)
            count += 1
            return act(call, lambda: real(*arguments, **named))

        return answer

    with pytest.MonkeyPatch.context() as patch:
        for name in _OS_CALLS:
            patch.setattr(os, name, wrapped(name, getattr(os, name)))
        for name in ("flock", "ioctl"):
            patch.setattr(fcntl, name, wrapped(name, getattr(fcntl, name)))
        patch.setattr(select, "poll", wrapped("poll", select.poll))
        fallocate = sinks._fallocate()
        if fallocate is not None:
            patch.setattr(sinks, "_fallocate", lambda: wrapped("fallocate", fallocate))
        yield


@contextlib.contextmanager
def record() -> Iterator[list[Call]]:
    """Yield the list of calls as it grows."""
    calls: list[Call] = []

    def act(call: Call, real: Callable[[], Any]) -> Any:
        calls.append(call)
        return real()

    with intercepted(act):
        yield calls


def fail(number: int, call: Call, real: Callable[[], Any]) -> Any:
    """Answer a call as the system does when it fails with an error number."""
    if call.name == "access":  # does not raise
        return False
    if call.name == "fallocate":
        return -1
    if call.name == "close":  # Linux closes whatever it answers
        real()
    raise OSError(number, os.strerror(number))
