"""Telling how far a pass over bytes has come.

Rules of this file: it counts bytes and knows nothing of them; what `progress` raises passes as it
is, and so cancels the pass.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Meter", "Progress"]

Progress = Callable[[int, int], object]
"""Called with (bytes done, bytes in all)."""

_REPORT_EVERY = 4 << 20


class Meter:
    """Counts bytes and tells `progress`: at the start, about every 4 MiB, and at the end."""

    __slots__ = ("_next", "_progress", "_total", "done")

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done = 0
        self._total = total
        self._progress = progress
        self._next = _REPORT_EVERY
        self._report()

    def advance(self, count: int) -> None:
        """Count bytes that moved; the last report is left to `finish`."""
        self.done += count
        if self._next <= self.done < self._total:
            self._next = self.done + _REPORT_EVERY
            self._report()

    def finish(self) -> None:
        """Report the end."""
        self._report()

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self.done, self._total)
