"""Every call and every byte of a small output, failing in every way.

The long version is `python -m tests.reliability.faults`.

Rules of this file: a point is one write with one fault in it; what a target may be afterwards is
said in `targets.py`, what may be raised in `is_expected`. A point that is not survived raises
AssertionError that names it.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from cordbundle import sinks
from cordbundle.errors import WriteError
from tests.reliability.calls import Act, Call, fail, intercepted
from tests.reliability.sample import sample_bundle
from tests.reliability.targets import TARGETS, AtPath, Outcome, Target, ToObject, is_expected

__all__ = [
    "ERRORS",
    "FULL",
    "WAYS",
    "boundaries",
    "calls_of",
    "is_lie",
    "try_boundary",
    "try_call",
    "try_cleanup",
    "try_interrupt",
    "try_protected",
]

ERRORS = [
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EINTR, errno.EAGAIN),
    *(errno.EPERM, errno.EBADF, errno.EACCES, errno.EROFS, errno.ENOMEM, errno.EINVAL),
    *(errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.ETXTBSY, errno.ESTALE, errno.ENOENT),
    *(errno.EEXIST, errno.EMFILE, errno.ENOLCK, errno.EOVERFLOW, errno.ENXIO, errno.EPIPE),
]
FULL = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG]
WRITES = ("write", "writev", "pwrite")


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    yield


@contextlib.contextmanager
def _reserving() -> Iterator[None]:
    """Preallocate for small chunks too, as where there is a block device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "major", lambda device: 8)
        patch.setattr(sinks, "_LARGE", 512)
        yield


@contextlib.contextmanager
def _by_kernel() -> Iterator[None]:
    """Take the target's filesystem for one of a file server, which may copy for us."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sinks, "_LARGE", 512)
        patch.setattr(os, "major", lambda device: 0)
        yield


WAYS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "plainly": _plainly,
    "after preallocation": _reserving,
    "copied by the kernel": _by_kernel,
}
"""What a write to a path may do besides, depending on filesystem and size."""


def calls_of(target: Target) -> list[Call]:
    """Return the calls of a write that succeeds."""
    calls: list[Call] = []

    def act(call: Call, real: Callable[[], Any]) -> Any:
        calls.append(call)
        return _answer(call, real)

    _run(target, act)
    return calls


def is_lie(call: Call, number: int) -> bool:
    """Return whether an error would be an answer, and a wrong one: that there is no link."""
    return call.name == "lstat" and number == errno.ENOENT


def try_call(target: Target, wanted: Call, number: int) -> bool:
    """Let one call fail once; return whether the write failed.

    Raises:
        AssertionError: The target is not what it may be, or another error arrived.
    """
    seen: list[Call] = []

    def act(call: Call, real: Callable[[], Any]) -> Any:
        if call.index != wanted.index:
            return _answer(call, real)
        seen.append(call)
        return fail(number, call, real)

    point = f"{wanted.name} (call {wanted.index}) fails with {errno.errorcode[number]}"
    outcome = _run(target, act, point)
    assert [call.name for call in seen] == [wanted.name], f"{point}: {seen}"
    if outcome is not None:
        right = is_expected(outcome, wanted.name, number, of_source=wanted.of_source)
        assert right, f"{point}: {outcome!r}"
    return outcome is not None


def boundaries(target: Target) -> int:
    """Return how many bytes a write hands over: it can be cut after each but the last."""
    sizes: list[int] = []

    def act(call: Call, real: Callable[[], Any]) -> Any:
        if call.name in WRITES:
            sizes.append(_size(call))
        return _answer(call, real)

    _run(target, act)
    return len(target.data) if isinstance(target, ToObject) else sum(sizes)


def try_boundary(target: Target, cut: int, number: int | None) -> None:
    """Let a write take bytes up to the `cut`-th and be short; then let all fail, if `number`.

    Raises:
        AssertionError: The target is not what it may be, or another error arrived.
    """
    done = 0

    def act(call: Call, real: Callable[[], Any]) -> Any:
        nonlocal done
        if call.name not in WRITES:
            return _answer(call, real)
        if number is not None and done >= cut:
            raise OSError(number, os.strerror(number))
        count = _shortened(call, cut - done) if done < cut < done + _size(call) else real()
        done += count
        return count

    point = f"short after {cut} bytes" + (f", then {errno.errorcode[number]}" if number else "")
    if isinstance(target, ToObject):
        target.cut, target.error = cut, number
    outcome = _run(target, act, point)
    if isinstance(target, ToObject):
        target.cut = target.error = None
        assert outcome is None or type(outcome) is type(OSError(number, "")), f"{point}: {outcome}"
    elif outcome is not None and number is not None:
        right = is_expected(outcome, "write", number, of_source=False)
        assert right, f"{point}: {outcome!r}"
    assert (outcome is None) == (number is None), f"{point}: {outcome!r}"


def try_cleanup(target: AtPath, wanted: Call, number: int) -> bool:
    """Let a call fail, and the removal of the temporary file after it.

    Then that file is left, as nothing can be done about it; the next write removes it.

    Raises:
        AssertionError: The target is no longer the old file, or the next write leaves something.
    """

    def act(call: Call, real: Callable[[], Any]) -> Any:
        if call.index == wanted.index or (call.index > wanted.index and call.name == "unlink"):
            return fail(number, call, real)
        return _answer(call, real)

    outcome, renamed = _write(target, act)
    left = target.left()
    assert len(left) <= (outcome is not None), f"{wanted}: {left}"
    assert target.path.read_bytes() == (target.data if renamed else target.old)
    target.write()
    target.check(None, renamed=1)
    return bool(left)


def try_protected(target: AtPath, number: int) -> None:
    """Let the old file be write-protected, and the look at its filesystem fail.

    Raises:
        AssertionError: The target is no longer the old file, or another error arrived.
    """

    def act(call: Call, real: Callable[[], Any]) -> Any:
        return fail(number, call, real) if call.name in ("access", "statvfs") else real()

    outcome = _run(target, act, "write-protected")
    assert isinstance(outcome, WriteError) and outcome.errno == number, repr(outcome)


def try_interrupt(
    target: Target, wanted: Call, error: type[BaseException], *, before: bool
) -> None:
    """Let a signal arrive just before or after a call, whose handler raises.

    Raises:
        AssertionError: The target is not what it may be, or another exception arrived.
    """

    def raise_it(number: int, frame: object) -> None:
        raise error("a signal came")

    def act(call: Call, real: Callable[[], Any]) -> Any:
        if call.index != wanted.index:
            return _answer(call, real)
        if not before or call.name == "close":  # what is not closed for a signal stays open
            _lose_result(call, real)
        signal.raise_signal(signal.SIGUSR1)
        raise AssertionError("the handler did not run")

    point = f"{error.__name__} {'before' if before else 'after'} {wanted.name} ({wanted.index})"
    previous = signal.signal(signal.SIGUSR1, raise_it)
    try:
        outcome = _run(target, act, point)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert type(outcome) is error, f"{point}: {outcome!r}"


def _lose_result(call: Call, real: Callable[[], Any]) -> None:
    """Make a call; a descriptor is lost with the return of the call that opened it."""
    with contextlib.suppress(OSError):
        result = real()
        if call.name in ("open", "dup"):
            os.close(result)
        elif call.name == "scandir":
            result.close()


def _answer(call: Call, real: Callable[[], Any]) -> Any:
    """Answer a call that does not fail; waiting for the disk would change nothing but the time."""
    return None if call.name == "fsync" else real()


def _run(target: Target, act: Act, point: str = "nothing fails") -> Outcome:
    """Write and check; return what was raised."""
    before = os.listdir("/proc/self/fd")
    outcome, renamed = _write(target, act)
    try:
        target.check(outcome, renamed)
        assert len(os.listdir("/proc/self/fd")) <= len(before), "a descriptor is left open"
    except AssertionError as error:
        raise AssertionError(f"{point}: {error}") from outcome
    return outcome


def _write(target: Target, act: Act) -> tuple[Outcome, int]:
    """Write; return what was raised, and how many files took their places."""
    renamed = 0

    def count(call: Call, real: Callable[[], Any]) -> Any:
        nonlocal renamed
        before = _number_of(call)
        try:
            return act(call, real)
        finally:
            renamed += call.name == "replace" and _number_of(call) != before

    with intercepted(count):
        try:
            target.write()
        except AssertionError:
            raise
        except BaseException as error:
            return error.with_traceback(None), renamed
    return None, renamed


def _number_of(call: Call) -> int | None:
    """Return which file stands where a rename puts one."""
    if call.name != "replace":
        return None
    try:
        return os.stat(call.arguments[1]).st_ino
    except FileNotFoundError:
        return None


def _size(call: Call) -> int:
    data = call.arguments[1]
    views = data if call.name == "writev" else [data]
    return sum(memoryview(view).nbytes for view in views)


def _shortened(call: Call, size: int) -> int:
    """Make a call that writes with its first `size` bytes."""
    descriptor, data = call.arguments[:2]
    joined = b"".join(data) if call.name == "writev" else bytes(data)
    if call.name == "pwrite":
        return os.pwrite(descriptor, joined[:size], call.arguments[2])
    return os.write(descriptor, joined[:size])


def _targets(folder: Path) -> Iterable[tuple[str, str, Target]]:
    """Yield every kind of target, one at a path in every way that a file may be filled."""
    cord = sample_bundle(folder)
    for name, make in TARGETS.items():
        for way in WAYS if name == "path" else ["plainly"]:
            place = folder / f"{name} {way}"
            place.mkdir()
            yield name, way, make(place, cord)


def main() -> None:
    """Try everything and print how many points were tried, by target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to write; a temporary folder by default")
    parser.add_argument(
        "--stride", type=int, default=1, help="bytes from one point to the next, but for a path"
    )
    options = parser.parse_args()
    total: Counter[str] = Counter()
    start = perf_counter()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name, way, target in _targets(Path(folder)):
            with WAYS[way]():
                is_first = (name, way) == ("path", "plainly")
                found = _try_all(target, is_first, 1 if is_first else options.stride)
            total.update(found)
            print(f"{name}, {way}: " + ", ".join(f"{n} {k}" for k, n in found.items()), flush=True)
    points = sum(n for kind, n in total.items() if kind.endswith("points"))
    print(f"{points} fault points tried and survived in {perf_counter() - start:.0f} s: {total}")


def _try_all(target: Target, all_errors: bool, stride: int) -> Counter[str]:
    """Try all points of a target, at every `stride`-th byte; if not `all_errors`, with one each."""
    found: Counter[str] = Counter()
    calls = calls_of(target)
    found["calls"] = len(calls)
    if type(target) is AtPath:
        for number in ERRORS:
            try_protected(target, number)
            found["error points"] += 1
    for call in calls:
        for number in (number for number in ERRORS if not is_lie(call, number)):
            found["error points"] += 1
            found["of these written all the same"] += not try_call(target, call, number)
        for error in (KeyboardInterrupt, TimeoutError):
            for before in (True, False):
                try_interrupt(target, call, error, before=before)
                found["interrupt points"] += 1
        if type(target) is AtPath:
            found["cleanup points"] += 1
            found["temporary files left by a failing unlink"] += try_cleanup(
                target, call, errno.EIO
            )
    gc.collect()
    for cut in range(1, boundaries(target), stride):
        try_boundary(target, cut, None)
        found["short-write points"] += 1
        for number in FULL if all_errors else [FULL[cut % len(FULL)]]:
            try_boundary(target, cut, number)
            found["boundary error points"] += 1
    return found


if __name__ == "__main__":
    main()
