"""What all verbs share: messages, tables, progress, standard output as a target.

Rules of this file: results go to standard output, all else to standard error; text that comes from
files is made printable first, so that no name can steer a terminal or break a line; rich is
imported only when there is a terminal to draw on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

__all__ = [
    "STDOUT",
    "UsageError",
    "check_new",
    "error",
    "note",
    "note_all",
    "printable",
    "progress",
    "say",
    "show_size",
    "show_table",
    "target",
]

STDOUT = "-"
"""What stands for standard output where a path is asked for."""

LONG = 64 << 20
"""From this many bytes on a progress bar is worth its place."""

_MAX_NOTES = 20
_MAX_WIDTH = 80  # longer cells do not widen their column, or one would fill every row with blanks
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class UsageError(Exception):
    """Say that the words of the command line make no sense together; exit code 2."""


def printable(text: object) -> str:
    """Return text with everything escaped that would not print as a character in a line."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in line
    )


def say(text: object, *, to_stderr: bool = False) -> None:
    """Print one line of result."""
    print(printable(text), file=sys.stderr if to_stderr else sys.stdout)


def error(text: object) -> None:
    """Print an error as one line."""
    print(f"cordbundle: error: {printable(text)}", file=sys.stderr)


def note(text: object) -> None:
    """Print something that a user should know, but that is no error."""
    print(f"cordbundle: note: {printable(text)}", file=sys.stderr)


def note_all(notes: Sequence[str]) -> None:
    """Print notes, of very many the first ones."""
    for text in notes[:_MAX_NOTES]:
        note(text)
    if len(notes) > _MAX_NOTES:
        note(f"{len(notes) - _MAX_NOTES} more like these")


def show_size(nbytes: float) -> str:
    """Return a number of bytes for people."""
    size, unit = float(nbytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    if unit:
        return f"{size:.1f} {_UNITS[unit]}"
    return "1 byte" if nbytes == 1 else f"{int(nbytes)} bytes"


def show_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
) -> None:
    """Print a table: drawn on a terminal, aligned text elsewhere; nothing if it has no rows.

    Args:
        title: A line above it.
        columns: The headings.
        rows: A cell for each column.
        right: The headings of columns that hold numbers.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells:
        return
    if sys.stdout.isatty():
        _draw_table(title, columns, cells, right)
        return
    table = [list(columns), *cells]
    lengths = [[len(row[i]) for row in table] for i in range(len(columns))]
    widths = [max(n for n in column if n <= _MAX_WIDTH) for column in lengths]
    print(f"\n{printable(title)}")
    for row in table:
        aligned = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        print("  " + "  ".join(aligned).rstrip())


def _draw_table(
    title: str, columns: Sequence[str], cells: list[list[str]], right: Sequence[str]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(printable(title)), title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))  # Text: no markup in names
    Console().print(table)


@contextmanager
def progress(
    description: str, total: int, unit: Literal["bytes", "cases"] = "bytes"
) -> Iterator[Callable[[int, int], None] | None]:
    """Give a progress callback, drawn on standard error; None where there is nothing to draw.

    Args:
        description: What takes so long.
        total: How much there is to do.
        unit: Of what.
    """
    if not sys.stderr.isatty() or (unit == "bytes" and total < LONG):
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    amount = (
        (bars.DownloadColumn(binary_units=True), bars.TransferSpeedColumn())
        if unit == "bytes"
        else (bars.MofNCompleteColumn(),)
    )
    with bars.Progress(
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        *amount,
        bars.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(printable(description), total=total)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def target(out: str) -> str | int:
    """Return what to write to: a path, or the descriptor of standard output for "-".

    Raises:
        UsageError: Standard output is closed or a terminal.
    """
    if out != STDOUT:
        return out
    if sys.__stdout__ is None:
        raise UsageError("standard output is closed; name a file or a pipe")
    if sys.stdout.isatty():
        raise UsageError("binary data does not go to a terminal; name a file or a pipe")
    sys.stdout.flush()
    return sys.stdout.fileno()


def check_new(out: str, sources: Iterable[str]) -> None:
    """Refuse a target that is one of the command's own inputs.

    Raises:
        UsageError: It is one.
    """
    if out == STDOUT or not os.path.exists(out):
        return
    for source in sources:
        if os.path.exists(source) and os.path.samefile(out, source):
            raise UsageError(f"{out} would be overwritten and is an input")
