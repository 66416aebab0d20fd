"""System calls that fail, and what becomes of their errors.

Rules of this file: only what the system raised is turned into another error or tolerated. What the
handler of a signal raises arrives in the middle of a call too, and may well be an `OSError`, such
as `TimeoutError`; it has no number, and reaches the caller as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from cordbundle.errors import CordBundleError, WriteError

__all__ = ["is_of_system", "reason", "system_errors", "tolerated", "turned_into"]


def is_of_system(error: OSError) -> bool:
    """Return whether a system call failed."""
    return error.errno is not None


def reason(error: OSError) -> str:
    """Return the system's words for an error."""
    return error.strerror or str(error)


@contextmanager
def turned_into(make: Callable[[OSError], WriteError]) -> Iterator[None]:
    """Turn an `OSError` of a system call in the block into the error that `make` returns."""
    try:
        yield
    except CordBundleError:
        raise
    except OSError as error:
        if not is_of_system(error):
            raise
        raise make(error) from error


def system_errors(
    name: str, what: str | None = None, cause: str | None = None
) -> AbstractContextManager[None]:
    """Turn an `OSError` of a call on the target `name` into a `WriteError`."""

    def failure(error: OSError) -> WriteError:
        text = reason(error) if what is None else f"{what}: {reason(error)}"
        return WriteError(text, errno=error.errno, source=name, cause=cause)

    return turned_into(failure)


@contextmanager
def tolerated() -> Iterator[None]:
    """Go on behind the block after an `OSError` of a system call in it."""
    try:
        yield
    except OSError as error:
        if not is_of_system(error):
            raise
