"""`cordbundle run`: every case of a bundle on the ExecuTorch runtime.

Rules of this file: the runtime works in a child process, because a program that it does not like
may kill it; a child that dies costs the case at which it died, and another goes on with the rest.
The program is never read into memory: the runtime maps its file, or a copy made by `cb.write`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated, Any

import typer

import cordbundle as cb
from cordbundle.cli import output
from cordbundle.cli.kinds import as_bundle, as_program
from cordbundle.cli.output import UsageError
from cordbundle.weights import is_ptd, ptd_weights, serialize_weights, unique

__all__ = ["run"]

_PREFIX = ".cordbundle."  # of a temporary folder; the bundle's own name may be too long for it
_LOG_LINES = 8
_LOG_BYTES = 1 << 16  # from the end of a log, enough for its last lines
_VERDICTS = ("mismatched", "not compared")  # of an output, the one that decides first
_NOISE = re.compile(r"\] (arg \d+ with type id|dtype: |\d+,$|\]$)")  # dozens of lines for a kernel


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .bpte file.")],
    *,
    program: Annotated[
        str | None,
        typer.Option(metavar="MODEL.pte", help="Run this program instead of the bundled one."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WEIGHTS.ptd",
            help="External weights; repeatable. [default: those among the bundle's named data]",
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(metavar="M", help="Run its cases only.")] = None,
    rtol: Annotated[float, typer.Option(min=0, help="Relative tolerance.")] = 1e-5,
    atol: Annotated[float, typer.Option(min=0, help="Absolute tolerance.")] = 1e-8,
) -> int:
    """Run all cases on the ExecuTorch runtime and compare.

    The exit code is 1 if an output differs or the runtime fails.
    """
    _require_runtime()
    with cb.open(file) as opened, ExitStack() as stack:
        bundle = as_bundle(opened)
        cases = _cases(bundle, method)
        if not cases:
            output.say(f"{file}: no cases")
            return 0
        request: dict[str, object] = {
            "bundle": file,
            "program": _program_path(bundle, program, stack),
            "data": _data_path(bundle, data or (), stack),
            "rtol": rtol,
            "atol": atol,
        }
        results = _run_all(request, cases)
    return _report(cases, results)


def _require_runtime() -> None:
    missing = [name for name in ("executorch", "torch") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"run needs {' and '.join(missing)}; run: pip install 'cordbundle[executorch]'"
        )


@dataclass(frozen=True, slots=True)
class _Case:
    """A case by its place in the bundle."""

    suite: int
    index: int
    method: str

    @property
    def name(self) -> str:
        return f"{self.method}/{self.index}"


@dataclass(slots=True)
class _Result:
    """What became of a case: the outputs compared, or why it failed and what the runtime said."""

    outputs: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None
    log: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Return in a word what became of the case."""
        if self.failure is not None:
            return "failed"
        verdicts = {output["verdict"] for output in self.outputs}
        return next((word for word in _VERDICTS if word in verdicts), "matched")


def _cases(bundle: cb.BundleFile, method: str | None) -> list[_Case]:
    names = [suite.method_name for suite in bundle.suites]
    if method is not None and method not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise UsageError(f"{bundle.name} has no cases for {method!r}; it has {known}")
    return [
        _Case(number, index, suite.method_name)
        for number, suite in enumerate(bundle.suites)
        for index in range(len(suite.test_cases))
        if method in (None, suite.method_name)
    ]


def _program_path(bundle: cb.BundleFile, given: str | None, stack: ExitStack) -> str:
    """Return a file for the runtime to map."""
    if given is not None:
        with cb.open(given) as file:
            as_program(file)
        if _is_utf8(given):
            return given
        return stack.enter_context(_copy(cb.Cord.from_file(given), given, ".pte"))
    program = bundle.program
    if not program:
        raise UsageError(
            f"{bundle.name} holds no program (form {bundle.form!r}); say --program MODEL.pte"
        )
    return stack.enter_context(_copy(program, bundle.name, ".pte"))


def _data_path(bundle: cb.BundleFile, given: Sequence[str], stack: ExitStack) -> str | None:
    """Return the one weights file that the runtime takes, if there is one; several are merged."""
    if len(given) == 1:
        cb.PtdFile(cb.Cord.from_file(given[0]), given[0]).close()  # raises for what is none
        if _is_utf8(given[0]):
            return given[0]
    files = [(path, cb.Cord.from_file(path)) for path in given] or [
        (f"{bundle.name}: {key!r}", blob) for key, blob in bundle.named_data.items() if is_ptd(blob)
    ]
    if not files:
        return None
    cord = files[0][1]
    if len(files) > 1:
        weights = unique(weight for name, part in files for weight in ptd_weights(part, name))
        (cord,) = serialize_weights(weights).values()
    return stack.enter_context(_copy(cord, bundle.name, ".ptd"))


def _is_utf8(path: str) -> bool:
    """Return whether the runtime's bindings take a path; what is no UTF-8 is in surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in path)


@contextmanager
def _copy(cord: cb.Cord, beside: str, suffix: str) -> Iterator[str]:
    """Make a file of a part of a bundle: beside it, where it may share its blocks, or elsewhere."""
    place = os.path.dirname(os.path.abspath(beside))
    usable = _is_utf8(place) and os.access(place, os.W_OK | os.X_OK)
    with tempfile.TemporaryDirectory(None, _PREFIX, place if usable else None) as folder:
        path = os.path.join(folder, f"copy{suffix}")
        with output.progress(f"preparing {suffix[1:]}", len(cord)) as callback:
            cb.write(cord, path, durability="none", progress=callback)
        yield path


def _run_all(request: dict[str, object], cases: Sequence[_Case]) -> list[_Result]:
    """Run cases in child processes, a new one after each that died."""
    results: list[_Result] = []
    with output.progress("running", len(cases), "cases") as callback:
        while len(results) < len(cases):
            todo = [(case.suite, case.index) for case in cases[len(results) :]]
            for result in _run_child(request | {"cases": todo}, len(todo)):
                results.append(result)
                if callback is not None:
                    callback(len(results), len(cases))
    return results


def _run_child(request: dict[str, object], count: int) -> Iterator[_Result]:
    """Run cases in one child process; the last result is its death, if it died."""
    # The child imports what this process would, and nothing from the working folder.
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from cordbundle.cli._runner import main; main()"
    )
    log_end = 0
    with (
        tempfile.TemporaryDirectory(prefix="cordbundle-run-") as folder,
        tempfile.TemporaryFile() as words,
    ):
        log = os.path.join(folder, "log")
        words.write(json.dumps(request).encode("ascii"))  # may be longer than an argument
        words.seek(0)
        with open(log, "wb") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=words,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        try:
            for line in child.stdout or ():
                if not line.endswith(b"\n"):
                    break
                message = json.loads(line)
                log_start, log_end = log_end, message["log_end"]
                count -= 1
                failure = message["failure"]
                yield _Result(
                    message["outputs"],
                    failure,
                    _log_tail(log, log_start, log_end) if failure else [],
                )
            code = child.wait()
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        if count:
            yield _Result(failure=_death(code), log=_log_tail(log, log_end, None))


def _death(code: int) -> str:
    """Return in words how a child process ended."""
    if code >= 0:
        return f"the runtime's process ended with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"the runtime died of {known.get(-code, f'signal {-code}')}"


def _log_tail(log: str, start: int, end: int | None) -> list[str]:
    """Return the last lines that the runtime wrote between two positions of its log.

    The log is opened anew, as the runtime writes on where its own position is.
    """
    with open(log, "rb") as file:
        stop = file.seek(0, os.SEEK_END) if end is None else end
        file.seek(max(start, stop - _LOG_BYTES))
        text = file.read(stop - file.tell()).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not _NOISE.search(line)]
    return lines[-_LOG_LINES:]


def _report(cases: Sequence[_Case], results: Sequence[_Result]) -> int:
    """Print what became of the cases and return the exit code."""
    output.show_table(
        "cases",
        ("case", "output", "type", "max abs error", "max rel error", "result"),
        [row for case, result in zip(cases, results, strict=True) for row in _rows(case, result)],
        right=("output", "max abs error", "max rel error"),
    )
    for case, result in zip(cases, results, strict=True):
        if result.log:
            output.say(f"{case.name}: the runtime's last words:")
            for line in result.log:
                output.say(f"  {line}")
    counts = Counter(result.verdict for result in results)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    print()
    output.say(f"{len(cases)} case{'' if len(cases) == 1 else 's'}: {words}")
    return 1 if counts["failed"] or counts["mismatched"] else 0


def _rows(case: _Case, result: _Result) -> Iterator[tuple[object, ...]]:
    if result.failure is not None:
        yield case.name, "", "", "", "", f"FAILED: {result.failure}"
    elif not result.outputs:
        yield case.name, "", "", "", "", "matched: no outputs"
    for number, compared in enumerate(result.outputs):
        yield (
            case.name,
            number,
            compared["type"],
            _error(compared["max_abs"]),
            _error(compared["max_rel"]),
            f"{compared['verdict']}{compared['reason'] and ': '}{compared['reason']}",
        )


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
