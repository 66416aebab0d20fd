"""Are the external tensors of a program all there, and what it takes them to be?

Rules of this file: what counts is what the runtime looks at (`parse_external_constants` and
`validateTensorLayout` of ExecuTorch 1.5): the key, the scalar type, the sizes and the dim order; no
tensor is read. So a mix of old and new files is told where keys, types or shapes differ: always for
the constants of XNNPACK, whose keys are digests of them, and never for a tensor that has kept its
name and shape. Other delegates look up named data by keys that the program does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cordbundle import program as schema
from cordbundle.delegate_keys import looked_up_keys
from cordbundle.flatbuffer import decode
from cordbundle.named_data import LayoutFacts, facts_text, layout_facts, layout_text
from cordbundle.pte import PteFile
from cordbundle.weights import Weight

__all__ = ["KeyFinding", "WeightsCheck", "check_weights"]


@dataclass(frozen=True, slots=True)
class KeyFinding:
    """Something wrong with a key.

    Attributes:
        key: The key.
        what: What is wrong.
        file: The weights file at fault, if it is one.
        expected: What the program takes the tensor to be.
        actual: What the file holds.
    """

    key: str
    what: str
    file: str | None = None
    expected: str | None = None
    actual: str | None = None

    def __str__(self) -> str:
        place = f"key {self.key!r}" if self.file is None else f"{self.file}: key {self.key!r}"
        facts = [
            f"{word} {value}"
            for word, value in (("found", self.actual), ("expected", self.expected))
            if value is not None
        ]
        return f"{place}: {self.what}" + (f": {', '.join(facts)}" if facts else "")


@dataclass(frozen=True, slots=True)
class WeightsCheck:
    """What became of a comparison.

    Attributes:
        keys: The external keys of the program and its delegates, sorted.
        findings: All that keeps the runtime from loading the program with the weights, by key.
        unneeded: Weights that nothing in the program is known to name, by key.
        backends: Backends of delegates that may look up keys of their own.
    """

    keys: tuple[str, ...]
    findings: tuple[KeyFinding, ...]
    unneeded: tuple[Weight, ...]
    backends: tuple[str, ...]


def check_weights(program: PteFile, weights: Iterable[Weight]) -> WeightsCheck:
    """Compare the external tensors of a program with weights. O(metadata of both).

    Args:
        program: The program.
        weights: All that is in the weights files, as `read_weights` returned it.

    Raises:
        FormatError: The program's metadata is damaged.
    """
    held: dict[str, list[Weight]] = {}
    for weight in weights:
        held.setdefault(weight.key, []).append(weight)
    metadata = decode(program.root, by_reference=True)
    wanted = _external_tensors(metadata.execution_plan or ())
    looked_up, unknown = looked_up_keys(program, metadata)
    looked_up = {key: by for key, by in looked_up.items() if key not in program.named_data}
    needed = wanted.keys() | looked_up.keys()
    findings = [
        finding
        for key in sorted(held.keys() | needed)
        for finding in _findings(key, wanted.get(key, ()), held.get(key, ()), looked_up.get(key))
    ]
    unneeded = [held[key][0] for key in sorted(held.keys() - needed)]
    return WeightsCheck(
        tuple(sorted(needed)), tuple(findings), tuple(unneeded), tuple(sorted(unknown))
    )


def _external_tensors(plans: Iterable[schema.ExecutionPlan]) -> dict[str, tuple[LayoutFacts, ...]]:
    """Return what a program takes its external tensors to be; one key may be several things."""
    wanted: dict[str, dict[LayoutFacts, None]] = {}
    for plan in plans:
        for value in plan.values or ():
            tensor = value.val
            info = tensor.extra_tensor_info if isinstance(tensor, schema.Tensor) else None
            if not isinstance(tensor, schema.Tensor) or info is None:
                continue
            if info.location == schema.TensorDataLocation.EXTERNAL:
                sizes = tuple(tensor.sizes or ())
                order = range(len(sizes)) if tensor.dim_order is None else tensor.dim_order
                facts = (tensor.scalar_type, sizes, tuple(order))
                wanted.setdefault(info.fully_qualified_name or "", {})[facts] = None
    return {key: tuple(kinds) for key, kinds in wanted.items()}


def _findings(
    key: str, wanted: Sequence[LayoutFacts], held: Sequence[Weight], backend: str | None
) -> Iterator[KeyFinding]:
    if len(held) > 1:
        files = " and ".join(dict.fromkeys(weight.file for weight in held))
        yield KeyFinding(key, "ambiguous", None, "one blob", f"{len(held)}, in {files}")
    if wanted and not held:
        yield KeyFinding(key, "missing", expected=facts_text(wanted[0]))
    elif backend is not None and not held:
        yield KeyFinding(key, "missing", expected=f"constants of {backend}")
    # Of several either way none can be right: each is compared with the first of the others.
    for facts, weight in (
        *((it, held[0]) for it in wanted if held),
        *((wanted[0], it) for it in held[1:] if wanted),
    ):
        expected, layout = facts_text(facts), weight.layout
        if layout is None:
            nbytes = f"{len(weight.data)} bytes"
            yield KeyFinding(key, "has no tensor layout", weight.file, expected, nbytes)
        elif layout_facts(layout) != facts:
            what = f"another {_difference(layout_facts(layout), facts)}"
            yield KeyFinding(key, what, weight.file, expected, layout_text(layout))


def _difference(found: LayoutFacts, expected: LayoutFacts) -> str:
    """Return in words what differs first."""
    names = ("scalar type", "shape", "dim order")
    return next(name for name, a, b in zip(names, found, expected, strict=True) if a != b)
