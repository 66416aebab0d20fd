"""`cordbundle extract`: a program, a case or a blob out of a file.

Rules of this file: a target is always named by the user, a key never becomes a path; what comes
out is moved by reference.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

import cordbundle as cb
from cordbundle.cli import output
from cordbundle.cli.kinds import AnyFile, as_bundle
from cordbundle.cli.output import UsageError

__all__ = ["extract"]


def extract(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A .bpte file; for --named also .pte or .ptd.")
    ],
    *,
    program: Annotated[
        str | None, typer.Option(metavar="OUT", help="Write the program, as it was bundled.")
    ] = None,
    case: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="METHOD/INDEX OUT",
            help="Write a case as a case file: .safetensors if OUT ends so, else .npz.",
        ),
    ] = None,
    named: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="KEY OUT", help="Write the blob with this key."),
    ] = None,
) -> None:
    """Write out the program, a case or a blob.

    OUT - is standard output.
    """
    if (program is not None) + (case is not None) + (named is not None) != 1:
        raise UsageError("say one of --program OUT, --case METHOD/INDEX OUT, --named KEY OUT")
    with cb.open(file) as opened:
        if named is not None:
            out = named[1]
            cord = _blob(opened, named[0])
        elif case is not None:
            out = case[1]
            cord = _case(as_bundle(opened), case[0], out)
        else:
            out = program or ""
            cord = _program(as_bundle(opened))
    _write(cord, file, out)


def _program(bundle: cb.BundleFile) -> cb.Cord:
    program = bundle.program
    if not program:
        raise cb.FormatError(
            "the bundle holds no program",
            source=bundle.name,
            cause=f"its form is {bundle.form!r}: the program is a file of its own",
        )
    return program


def _blob(file: AnyFile, key: str) -> cb.Cord:
    blobs = file if isinstance(file, cb.PtdFile) else file.named_data
    if key not in blobs:
        known = ", ".join(repr(name) for name in blobs)
        raise UsageError(f"{file.name} has no key {key!r}; it has {known or 'none'}")
    blob = blobs[key]
    return blob if isinstance(blob, cb.Cord) else blob.cord


def _case(bundle: cb.BundleFile, name: str, out: str) -> cb.Cord:
    """Return a case as the bytes of a case file."""
    from cordbundle.cli.case_file import npz_cord, safetensors_cord, values_of

    case = _find_case(bundle, name)
    values = values_of(
        {f"inputs.{i}": value for i, value in enumerate(case.inputs)}
        | {f"outputs.{i}": value for i, value in enumerate(case.expected_outputs)}
    )
    write = safetensors_cord if out.lower().endswith(".safetensors") else npz_cord
    return write(values)


def _find_case(bundle: cb.BundleFile, name: str) -> cb.MethodTestCase:
    method, slash, index = name.rpartition("/")
    if not slash or not (index.isascii() and index.isdigit()):
        raise UsageError(f"--case {name} is not METHOD/INDEX")
    suites = {suite.method_name: suite for suite in reversed(bundle.suites)}  # the first one counts
    if method not in suites:
        known = ", ".join(repr(suite.method_name) for suite in bundle.suites)
        raise UsageError(f"{bundle.name} has no cases for {method!r}; it has {known or 'none'}")
    cases = suites[method].test_cases
    if int(index) >= len(cases):
        raise UsageError(f"{method!r} has no case {index}; it has {len(cases)}")
    return cases[int(index)]


def _write(cord: cb.Cord, source: str, out: str) -> None:
    output.check_new(out, [source])
    target = output.target(out)
    with output.progress(f"writing {os.path.basename(out)}", len(cord)) as callback:
        report = cb.write(cord, target, progress=callback)
    name = "standard output" if out == output.STDOUT else out
    output.say(f"wrote {name}: {output.show_size(report.nbytes)}", to_stderr=out == output.STDOUT)
