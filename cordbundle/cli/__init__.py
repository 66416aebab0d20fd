"""The command line: `cordbundle bundle | inspect | extract | verify | run | ptd`.

Rules of this package: one module per verb, each of which only reads its words, calls the library
and prints; typer reads the words and rich draws on terminals (the extra `cli`), and the library
imports neither. Whatever a verb does not always need is imported where it is needed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import FrameType
from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Its words without the program's name; those of the process if None.

    Returns:
        The exit code: 0 fine, 1 a mismatch or an invalid file, 2 wrong usage, 130 interrupted.
    """
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        print(
            f"cordbundle: error: the command line needs {' and '.join(missing)};"
            " run: pip install 'cordbundle[cli]'",
            file=sys.stderr,
        )
        return 2
    from cordbundle.cli.app import run

    if arguments is not None:
        return run(arguments)
    signal.signal(signal.SIGTERM, _terminate)
    return run(sys.argv[1:])


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Leave by an exception, so that temporary files are removed and child processes ended."""
    raise SystemExit(128 + number)
