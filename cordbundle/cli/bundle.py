"""`cordbundle bundle`: a program and case files in, a `.bpte` out.

Rules of this file: it reads the words, finds the method that each case is for, and prints what the
library says; which cases fit is the library's to decide.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

import cordbundle as cb
from cordbundle.bundling import check_program_alignment
from cordbundle.cli import output
from cordbundle.cli.output import UsageError

if TYPE_CHECKING:
    from cordbundle.cases import CaseFileCase

__all__ = ["bundle"]


class FormName(str, Enum):
    """The forms by the names of `cordbundle.bundle`."""

    AUTO = "auto"
    BP08 = "bp08"
    SEGMENTED = "segmented"
    DETACHED = "detached"


def bundle(
    model: Annotated[str, typer.Argument(metavar="MODEL.pte", help="The program.")],
    cases: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CASES",
            help="Case files, .npz or .safetensors, with keys inputs.0, outputs.0, … and, if they"
            " hold several cases, METHOD.CASE. before them.",
        ),
    ] = None,
    *,
    more_cases: Annotated[
        list[str] | None,
        typer.Option("--cases", metavar="FILE", help="The same as naming it; repeatable."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where to write; - is standard output. [default: MODEL.bpte beside the model]",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="M",
            help="The method of cases that name none. [default: the only one, or forward]",
        ),
    ] = None,
    form: Annotated[
        FormName, typer.Option(help="How the bundle holds the program.")
    ] = FormName.AUTO,
    alignment: Annotated[
        int, typer.Option(metavar="N", help="Where the program starts: a multiple of N bytes.")
    ] = 4096,
    named: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=PATH", help="A file to carry along under a key; repeatable."),
    ] = None,
    no_digest: Annotated[
        bool, typer.Option("--no-digest", help="Store no xxh3-128 digests.")
    ] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not compare the cases with the methods.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the layout and write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: as JSON.")] = False,
) -> None:
    """Bundle a program with its test cases; the program's bytes stay as they are."""
    if as_json and not dry_run:
        raise UsageError("--json goes with --dry-run")
    try:
        check_program_alignment(alignment)
    except cb.LayoutError as error:
        raise UsageError(f"--alignment: {error}") from error
    case_files = [*(cases or ()), *(more_cases or ())]
    blobs = _named_data(named or ())
    destination = _default_output(model) if out is None else out
    output.check_new(destination, [model, *case_files, *blobs.values()])
    suites = _suites(model, case_files, method, checked=not no_check)
    plan = cb.bundle(
        model,
        suites,
        named_data=blobs,
        form=form.value,
        alignment=alignment,
        digest=not no_digest,
        check=not no_check,
    )
    output.note_all(plan.notes)
    if dry_run:
        print(json.dumps(plan.layout.to_json(), indent=2) if as_json else plan.layout)
        return
    _write(plan, suites, destination)


def _default_output(model: str) -> str:
    return f"{model.removesuffix('.pte')}.bpte"


def _named_data(words: Sequence[str]) -> dict[str, str]:
    """Return the paths of named data by key."""
    blobs: dict[str, str] = {}
    for word in words:
        key, equals, path = word.partition("=")
        if not equals or not key or not path:
            raise UsageError(f"--named {word} is not KEY=PATH")
        if key in blobs:
            raise UsageError(f"--named has the key {key} twice")
        blobs[key] = path
    return blobs


def _suites(
    model: str, paths: Sequence[str], method: str | None, *, checked: bool
) -> list[cb.MethodTestSuite]:
    """Read the case files and sort their cases into suites, in the order of the first of each."""
    if not paths:
        if method is not None:
            raise UsageError("--method goes with case files")
        output.note("no case files: the bundle has no test suites")
        return []
    from cordbundle.cases import read_case_files

    with cb.PteFile(cb.Cord.from_file(model), model) as program:
        methods = program.methods
    cases = read_case_files(paths)
    default = _default_method(cases, method, methods, checked=checked)
    suites: dict[str, list[cb.MethodTestCase]] = {}
    for case in cases:
        name = default if case.method is None else case.method
        suites.setdefault(name, []).append(_case(case, methods.get(name)))
    return [cb.MethodTestSuite(name, members) for name, members in suites.items()]


def _default_method(
    cases: Iterable[CaseFileCase],
    asked: str | None,
    methods: Mapping[str, cb.Method],
    *,
    checked: bool,
) -> str:
    """Return the method of the cases that name none."""
    if all(case.method is not None for case in cases):
        if asked is not None:
            raise UsageError("--method goes with cases that name no method; all of these do")
        return ""
    known = ", ".join(repr(name) for name in methods) or "none"
    if asked is not None:
        if checked and asked not in methods:
            raise UsageError(f"the program has no method {asked!r}; it has {known}")
        return asked
    if len(methods) == 1:
        return next(iter(methods))
    if "forward" in methods:
        return "forward"
    raise UsageError(
        f"which method are the cases for? The program has {known}; say --method, or use keys"
        " METHOD.CASE.inputs.N"
    )


def _case(case: CaseFileCase, method: cb.Method | None) -> cb.MethodTestCase:
    specs = method.inputs if method is not None else ()
    inputs: list[object] = list(case.inputs)
    for i, (value, spec) in enumerate(zip(case.inputs, specs, strict=False)):
        if isinstance(spec, cb.ValueSpec) and value.sizes == ():
            inputs[i] = _scalar(value)
    return cb.MethodTestCase(inputs, case.outputs)


def _scalar(value: cb.TensorView) -> object:
    """Return a 0-d tensor as a scalar; as it is where its type is none that Python has."""
    if value.scalar_type.format is None:
        return value
    return value.memoryview().tolist()


def _write(plan: cb.Bundle, suites: Sequence[cb.MethodTestSuite], destination: str) -> None:
    target = output.target(destination)
    with output.progress(f"writing {os.path.basename(destination)}", len(plan)) as callback:
        report = plan.write(target, progress=callback)
    to_stderr = destination == output.STDOUT
    name = "standard output" if to_stderr else destination
    lines = [f"wrote {name}: {output.show_size(report.nbytes)}, form {plan.form}"]
    lines += [f"  {suite.method_name}: {_count(suite.test_cases)}" for suite in suites]
    for line in [*lines, f"  moved {_transfers(report)}"]:
        output.say(line, to_stderr=to_stderr)


def _count(cases: Sequence[object]) -> str:
    return "1 case" if len(cases) == 1 else f"{len(cases)} cases"


def _transfers(report: cb.WriteReport) -> str:
    """Return how the bytes went and how fast."""
    ways = ", ".join(f"{output.show_size(count)} {way}" for way, count in report.transfers.items())
    speed = f", {output.show_size(report.nbytes / report.seconds)}/s" if report.seconds else ""
    return f"{ways} in {report.seconds:.3f} s{speed}"
