"""The verbs under one roof, and what becomes of errors.

Rules of this file: every error that a user can cause ends here as one line on standard error and
an exit code; nothing else is caught, so that a bug shows its traceback.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, cast

import typer

from cordbundle.cli import output
from cordbundle.errors import CordBundleError

__all__ = ["run"]

_VERBS = ("bundle", "inspect", "extract", "verify", "run", "ptd")

# Newer typers hold a copy of click, older ones use click; this is either's root of usage errors.
_ClickException = cast(
    "type[typer.BadParameter]",
    next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"),
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"cordbundle {version('cordbundle')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Bundle ExecuTorch programs with their test cases, and look into the files."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line; see `cordbundle.cli.main`."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the encoding lacks is still printed
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        output.error("interrupted")
        return 130
    except BrokenPipeError:  # whoever read our results has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except CordBundleError as error:
        output.error(error)
        return 1
    except OSError as error:
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        output.error(f"{place}{error.strerror or error}")
        return 1
    return code


def _replace_closed_streams() -> None:
    """Give a process whose standard output or error is closed the null device instead.

    Python has no stream there then, `print` would send errors to standard output, and the next file
    that is opened would get a descriptor that libraries print to.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _app(arguments: Sequence[str]) -> typer.Typer:
    """Return the verbs for typer; only the one asked for, since each takes time to set up."""
    app = typer.Typer(
        name="cordbundle",
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,  # rich is slow to import, and help does not need it
    )
    app.callback()(_root)
    asked = arguments[0] if arguments else None
    for verb in (asked,) if asked in _VERBS else _VERBS:
        app.command(verb)(getattr(import_module(f"cordbundle.cli.{verb}"), verb))
    return app


def _invoke(arguments: Sequence[str]) -> int:
    """Let typer read the words and call the verb; usage errors become one line here."""
    command = typer.main.get_command(_app(arguments))
    try:
        # Not `command()`, which catches errors and exits in its own way.
        words = list(arguments) or ["--help"]  # a list of its own, since it is used up
        with command.make_context("cordbundle", words) as context:
            code = command.invoke(context)
    except typer.Exit as leave:  # after --help and --version
        return leave.exit_code if arguments else 2
    except output.UsageError as error:
        output.error(error)
        return 2
    except _ClickException as error:
        output.error(error.format_message())
        return 2
    return code if isinstance(code, int) else 0
