"""Whatever call fails, and at whatever byte: the old file or the new one, and nothing beside it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reliability.faults import (
    FULL,
    WAYS,
    boundaries,
    calls_of,
    is_lie,
    try_boundary,
    try_call,
    try_cleanup,
    try_interrupt,
    try_protected,
)
from tests.reliability.sample import kinds, sample_bundle
from tests.reliability.targets import OLD, TARGETS, AtPath, Target

TRANSIENT = [errno.EINTR, errno.EAGAIN]
REFUSING = [errno.EPERM, errno.EBADF, errno.EEXIST, errno.ENOENT]


@pytest.fixture(params=[(n, w) for n in TARGETS for w in (WAYS if n == "path" else ["plainly"])])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    """Return every kind of target, one at a path in every way that a file may be filled."""
    name, way = request.param
    (tmp_path / "target").mkdir()
    with WAYS[way]():
        yield TARGETS[name](tmp_path / "target", sample_bundle(tmp_path))


@pytest.fixture
def at_path(tmp_path: Path) -> AtPath:
    (tmp_path / "target").mkdir()
    return AtPath(tmp_path / "target", sample_bundle(tmp_path))


def test_the_sample_needs_every_kind_of_chunk(tmp_path: Path) -> None:
    files = {"small file", "large file"}
    others = {"memory", "digest", "small fill", "large fill", "large deferred"}

    assert kinds(sample_bundle(tmp_path)) == files | others


def test_a_write_makes_the_calls_that_the_points_are_made_of(at_path: AtPath) -> None:
    names = {call.name for call in calls_of(at_path)}

    assert names >= {"open", "flock", "write", "lseek", "ioctl", "preadv", "pwrite", "ftruncate"}
    assert names >= {"fsync", "replace", "close", "unlink", "scandir", "stat", "fstat", "fstatvfs"}


@pytest.mark.parametrize("number", FULL + TRANSIENT + REFUSING, ids=errno.errorcode.get)
def test_every_call_may_fail(target: Target, number: int) -> None:
    calls = [call for call in calls_of(target) if not is_lie(call, number)]
    failed = [try_call(target, call, number) for call in calls]

    assert any(failed)


@pytest.mark.parametrize("number", FULL + TRANSIENT + REFUSING, ids=errno.errorcode.get)
def test_a_look_at_the_filesystem_of_a_protected_file_may_fail(
    at_path: AtPath, number: int
) -> None:
    try_protected(at_path, number)

    assert at_path.path.read_bytes() == OLD


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_what_a_signal_raises_at_any_call_arrives_as_it_is(
    target: Target, error: type[BaseException], before: bool
) -> None:
    calls = calls_of(target)
    for call in calls:
        try_interrupt(target, call, error, before=before)

    assert len(calls) > 5


def test_a_temporary_file_that_cannot_be_removed_is_removed_by_the_next_write(
    at_path: AtPath,
) -> None:
    left = [try_cleanup(at_path, call, errno.EIO) for call in calls_of(at_path)]

    assert any(left)


@pytest.mark.parametrize("number", [None, *FULL])
def test_a_write_may_be_short_at_any_byte_and_fail_there(
    target: Target, number: int | None
) -> None:
    size = boundaries(target)
    for cut in (1, 2, 3, *range(10, size, 997), size - 1):
        try_boundary(target, cut, number)

    assert size > 16_000
