"""`cordbundle inspect`: what is in a file, without reading its payload.

Rules of this file: one description of a file, made of plain values, is the JSON and the source of
the tables; keys of the JSON are added in later versions, none is renamed or removed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

import cordbundle as cb
from cordbundle.cli import output

if TYPE_CHECKING:
    from cordbundle.artifact import SegmentRange
    from cordbundle.cli.kinds import AnyFile
    from cordbundle.headers import ExtendedHeader

    Facts: TypeAlias = dict[str, Any]

__all__ = ["digests", "inspect", "show_digests"]


def inspect(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .pte, .ptd or .bpte file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """Show what is in a file; no payload is read."""
    with cb.open(file) as opened:
        facts = _file(opened)
    if as_json:
        print(json.dumps(facts, indent=2, allow_nan=False))
    else:
        _show(facts)


def _file(file: AnyFile) -> Facts:
    """Return all that is said of a file."""
    facts: Facts = {
        "file": file.name,
        "kind": file.kind.name,
        "identifier": file.kind.identifier.decode("ascii"),
        "size": len(file.cord),
        "header": _header(file.header),
    }
    if isinstance(file, cb.BundleFile):
        return facts | _bundle(file)
    return facts | (_weights(file) if isinstance(file, cb.PtdFile) else _program(file))


def _header(header: ExtendedHeader | None) -> Facts | None:
    if header is None:
        return None
    return {
        "length": header.length,
        "flatbuffer_offset": header.flatbuffer_offset,
        "flatbuffer_size": header.flatbuffer_size,
        "segment_base_offset": header.segment_base_offset,
        "segment_data_size": header.segment_data_size,
    }


def _program(file: cb.PteFile) -> Facts:
    return {
        "methods": [_method(method) for method in file.methods.values()],
        "segments": _segments(file.segment_ranges),
        "named_data": [{"key": key, "size": len(data)} for key, data in file.named_data.items()],
    }


def _method(method: cb.Method) -> Facts:
    return {
        "name": method.name,
        "inputs": [_spec(spec) for spec in method.inputs],
        "outputs": [_spec(spec) for spec in method.outputs],
        "operators": list(method.operators),
        "delegates": [
            {"backend": part.backend, "size": part.size, "segment": part.segment}
            for part in method.delegates
        ],
    }


def _spec(spec: cb.TensorSpec | cb.ValueSpec) -> Facts:
    if isinstance(spec, cb.ValueSpec):
        return {"type": spec.kind, "value": _number(spec.value)}
    return {
        "type": "tensor",
        "scalar_type": spec.scalar_type.name,
        "sizes": list(spec.sizes),
        "dim_order": list(spec.dim_order),
        "dynamism": spec.dynamism,
        "size": spec.nbytes,
    }


def _number(value: object) -> object:
    """Return a value that JSON can hold: inf and nan are strings there."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _segments(ranges: Iterable[SegmentRange]) -> list[Facts]:
    return [{"offset": place.offset, "size": place.size} for place in ranges]


def _weights(file: cb.PtdFile) -> Facts:
    return {
        "segments": _segments(file.segment_ranges),
        "named_data": [{"key": key} | _blob(file[key]) for key in file],
    }


def _blob(blob: cb.TensorView | cb.Cord) -> Facts:
    return {"size": len(blob)} if isinstance(blob, cb.Cord) else _value(blob)


def _bundle(file: cb.BundleFile) -> Facts:
    return {
        "form": file.form,
        "suites": [
            {
                "method": suite.method_name,
                "cases": [
                    {
                        "inputs": [_value(value) for value in case.inputs],
                        "expected_outputs": [_value(value) for value in case.expected_outputs],
                    }
                    for case in suite.test_cases
                ],
            }
            for suite in file.suites
        ],
        "program": _bundled_program(file),
        "segments": _segments(file.segment_ranges),
        "named_data": [{"key": key, "size": len(data)} for key, data in file.named_data.items()],
        "digests": digests(file),
    }


def _value(value: object) -> Facts:
    if isinstance(value, cb.TensorView):
        return {
            "type": "tensor",
            "scalar_type": value.scalar_type.name,
            "sizes": list(value.sizes),
            "dim_order": list(value.dim_order),
            "size": value.nbytes,
        }
    return {"type": type(value).__name__, "value": _number(value)}


def _bundled_program(file: cb.BundleFile) -> Facts | None:
    """Return what is said of the program in a bundle; a damaged one leaves the rest readable."""
    program = file.program
    if not program:
        return None
    facts: Facts = {"size": len(program)}
    try:
        with cb.PteFile(program, f"{file.name}: program") as inner:
            return facts | {"header": _header(inner.header)} | _program(inner)
    except cb.FormatError as error:
        return facts | {"error": str(error)}


def digests(file: cb.BundleFile) -> Facts:
    """Return which digests a bundle has: of its metadata, and of how many segments."""
    return {
        "metadata": file.header is not None and any(file.header.digest),
        "segments": sum(digest is not None for digest in file.digests),
    }


def _show(facts: Facts) -> None:
    """Print a description for people."""
    output.say(f"{facts['file']}: {facts['kind']}, {output.show_size(facts['size'])}")
    header = facts["header"]
    if header is None:
        output.say("header: none")
    else:
        output.say("header: " + ", ".join(f"{name} {value}" for name, value in header.items()))
    if "form" in facts:
        output.say(f"form: {facts['form']}")
        output.say(f"digests: {show_digests(facts['digests'])}")
        _show_suites(facts["suites"])
        program = facts["program"]
        if program is not None:
            print()
            output.say(f"program: {output.show_size(program['size'])}")
            _show_program(program)
    elif "methods" in facts:
        _show_program(facts)
    _show_places(facts)


def show_digests(held: Mapping[str, Any]) -> str:
    """Return in words which digests a bundle has."""
    parts = ["the metadata"] if held["metadata"] else []
    if held["segments"]:
        parts.append("1 segment" if held["segments"] == 1 else f"{held['segments']} segments")
    return "xxh3-128 of " + " and ".join(parts) if parts else "none"


def _show_suites(suites: Sequence[Facts]) -> None:
    for suite in suites:
        cases = suite["cases"]
        title = f"suite {suite['method']}: {len(cases)} case{'' if len(cases) == 1 else 's'}"
        if not cases:
            print()
            output.say(title)
        output.show_table(
            title,
            ("case", "inputs", "expected outputs", "size"),
            [
                (
                    number,
                    _words(case["inputs"]),
                    _words(case["expected_outputs"]),
                    output.show_size(
                        sum(v.get("size", 0) for v in case["inputs"] + case["expected_outputs"])
                    ),
                )
                for number, case in enumerate(cases)
            ],
            right=("case", "size"),
        )


def _show_program(program: Facts) -> None:
    if "error" in program:
        output.say(f"  {program['error']}")
        return
    output.show_table(
        "methods",
        ("method", "inputs", "outputs", "operators", "delegates"),
        [
            (
                method["name"],
                _words(method["inputs"]),
                _words(method["outputs"]),
                ", ".join(method["operators"]) or "none",
                ", ".join(
                    f"{part['backend']} ({output.show_size(part['size'])})"
                    for part in method["delegates"]
                )
                or "none",
            )
            for method in program["methods"]
        ],
    )


def _words(values: Iterable[Facts]) -> str:
    return ", ".join(_word(value) for value in values) or "none"


def _word(value: Facts) -> str:
    """Return a value in a few words: `FLOAT [1, 8]`, `INT [≤4] bound`, `int 3`."""
    if value["type"] != "tensor":
        return value["type"] if value["value"] is None else f"{value['type']} {value['value']!r}"
    dynamism = value.get("dynamism", "static")
    bound = "" if dynamism == "static" else "≤"
    text = f"{value['scalar_type']} [{', '.join(f'{bound}{size}' for size in value['sizes'])}]"
    if value["dim_order"] != sorted(value["dim_order"]):
        text += f" in order {value['dim_order']}"
    return text if dynamism == "static" else f"{text} {dynamism}"


def _show_places(facts: Facts) -> None:
    """Print segments and named data, where the file itself has them."""
    output.show_table(
        "segments",
        ("segment", "offset", "size"),
        [(i, place["offset"], place["size"]) for i, place in enumerate(facts["segments"])],
        right=("segment", "offset", "size"),
    )
    output.show_table(
        "named data",
        ("key", "what", "size"),
        [
            (blob["key"], _word(blob) if "type" in blob else "bytes", blob["size"])
            for blob in facts["named_data"]
        ],
        right=("size",),
    )
