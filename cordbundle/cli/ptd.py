"""`cordbundle ptd`: weights into `.ptd` files, and what is in them.

Rules of this file: what a file is, is told by its bytes; a name inside one never becomes a path;
several files are written as a set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

import cordbundle as cb
from cordbundle.cli import output
from cordbundle.cli.kinds import as_program
from cordbundle.cli.output import UsageError
from cordbundle.named_data import layout_text
from cordbundle.ptd_writer import SEGMENT_ALIGNMENT
from cordbundle.set_marks import mark_of, name_of
from cordbundle.tags import tensor_data_paths
from cordbundle.weights import (
    Weight,
    is_ptd,
    read_weights,
    serialize_weights,
    shard_paths,
    unique,
)
from cordbundle.weights_check import check_weights

__all__ = ["ptd"]


def ptd(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="WEIGHTS",
            help="Files, .safetensors or the .index.json of their shards; .ptd with --merge, --list"
            " and --check.",
        ),
    ],
    *,
    out: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.ptd",
            help="Where to write; - is standard output. With --tag, a folder will do.",
        ),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(
            metavar="TAG",
            help="Name files as ExecuTorch names those of an external tag: in a folder TAG.ptd,"
            " with --max-bytes TAG_<SHA-256 of its keys>.ptd.",
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Split into OUT-00001-of-00003.ptd, … of at most N bytes of tensors each.",
        ),
    ] = None,
    alignment: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=f"Where each tensor starts: a multiple of N bytes. [default: {SEGMENT_ALIGNMENT}]",
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Take .ptd files too, and put all into one.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--list", help="Print what the files hold; write nothing.")
    ] = False,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL.pte",
            help="Compare the files with what the program needs; write nothing. The exit code is 1"
            " if it could not be loaded with them, or they were written with another program.",
        ),
    ] = None,
) -> int:
    """Make .ptd files of safetensors files, by reference; merge, split, list and check them."""
    if show + merge + (check is not None) > 1:
        raise UsageError("--list, --merge and --check do not go together")
    if show or check is not None:
        if (out, tag, max_bytes, alignment) != (None, None, None, None):
            raise UsageError("--list and --check write nothing: no -o, --tag, --max-bytes, …")
        return _list(files) if check is None else _check(check, files)
    if out is None:
        raise UsageError("say where to write: -o OUT.ptd")
    weights = unique(weight for file in files for weight in _to_write(file, merge=merge))
    cords = serialize_weights(
        weights,
        max_bytes,
        SEGMENT_ALIGNMENT if alignment is None else alignment,
        "weights" if tag is None else tag,
    )
    _write(_paths(cords, out, tag), files, weights)
    return 0


def _to_write(file: str, *, merge: bool) -> list[Weight]:
    if not merge and is_ptd(cb.Cord.from_file(file)):
        raise UsageError(f"{file} is a .ptd file already; say --merge to put it into another")
    return read_weights(file)


def _list(files: Sequence[str]) -> int:
    rows = [
        (
            weight.key,
            "bytes" if weight.layout is None else layout_text(weight.layout),
            len(weight.data),
            weight.file,
        )
        for file in files
        for weight in read_weights(file)
    ]
    output.show_table("weights", ("key", "what", "size", "file"), rows, right=("size",))
    print()
    output.say(f"{_count(len(rows), 'key')}, {output.show_size(sum(row[2] for row in rows))}")
    return 0


def _check(model: str, files: Sequence[str]) -> int:
    with cb.open(model) as file:
        program = as_program(file)
        result = check_weights(program, [weight for name in files for weight in read_weights(name)])
        strangers = list(_of_other_sets(program, files))
    for finding in result.findings:
        output.say(finding)
    for weight in result.unneeded:
        output.say(f"{weight.file}: key {weight.key!r}: not needed by any tensor of the program")
    if result.backends:
        names = ", ".join(map(repr, result.backends))
        output.note(
            f"delegates ({names}) may look up keys of their own, which a program does not tell"
        )
    for stranger in strangers:
        output.say(stranger)
    wrong = len({finding.key for finding in result.findings})
    words = f"{_count(wrong, 'key')} wrong" if wrong else "all as the program needs them"
    output.say(f"{model}: {_count(len(result.keys), 'external key')}: {words}")
    return 1 if wrong or strangers else 0


def _of_other_sets(program: cb.PteFile, weights: Sequence[str]) -> Iterator[str]:
    """Yield what tells that a set was cut off: what is older than marked weights of it.

    What was written later took the place of a file on purpose, and is not told.
    """
    marks = {name: mark for name in weights if (mark := mark_of(name))}
    times = {name: os.stat(name).st_mtime_ns for name in (program.name, *weights) if marks}
    digest = program.cord.xxh3_128() if marks else b""
    told: set[str] = set()
    for name, mark in marks.items():
        if mark.excludes(name_of(program.name), digest) and times[program.name] < times[name]:
            yield f"{name}: was written in one set with another program than {program.name}"
        for other in weights:
            is_older = name_of(other) in mark.data and times[other] < times[name]
            of_other = marks.get(other)
            if other in told or not is_older or (of_other and of_other.token == mark.token):
                continue
            if of_other is None:
                yield f"{other}: was not written in one set with {name}"
            else:
                yield f"{other}: was written in another set than {name}"
            told.add(other)


def _paths(cords: dict[str, cb.Cord], out: str, tag: str | None) -> dict[str, cb.Cord]:
    """Return where the files go."""
    if tag is not None:
        is_folder = os.path.isdir(out)
        folder = out if is_folder else os.path.dirname(out) or "."
        if not is_folder and not (out.endswith(".ptd") and os.path.isdir(folder)):
            raise UsageError(
                f"with --tag, -o has to be a folder or a .ptd file in one; {out} is none"
            )
        named = tensor_data_paths(cords, folder)
        return named if is_folder or len(cords) > 1 else {out: next(iter(cords.values()))}
    if out == output.STDOUT and len(cords) > 1:
        raise UsageError(f"{len(cords)} files do not go to standard output; name a file with -o")
    return dict(zip(shard_paths(out, len(cords)), cords.values(), strict=True))


def _write(cords: dict[str, cb.Cord], inputs: Sequence[str], weights: dict[str, Weight]) -> None:
    sources = {*inputs, *(weight.file for weight in weights.values())}
    for path in cords:
        output.check_new(path, sources)
    total = sum(map(len, cords.values()))
    to_stderr = output.STDOUT in cords
    with output.progress("writing", total) as callback:
        if to_stderr:
            target = output.target(output.STDOUT)
            cb.write(cords[output.STDOUT], target, progress=callback)
        else:
            cb.write_all(cords, progress=callback)
    for path, cord in cords.items():
        name = "standard output" if to_stderr else path
        output.say(f"wrote {name}: {output.show_size(len(cord))}", to_stderr=to_stderr)
    output.say(f"  {_count(len(weights), 'key')}", to_stderr=to_stderr)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
