"""Case files: `.npz` and `.safetensors` files of inputs and expected outputs.

Rules of this file: it knows keys and their order, no bytes. A key is

    inputs.N | outputs.N | METHOD.CASE.inputs.N | METHOD.CASE.outputs.N

read from its right end, so that METHOD may hold dots. The formats are those of `npz.py` and
`safetensors.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordbundle.errors import CaseMismatchError, FormatError
from cordbundle.npz import read_npz
from cordbundle.safetensors import read_safetensors
from cordbundle.tensor_view import TensorView

if TYPE_CHECKING:
    from cordbundle.source import StrPath

__all__ = ["CaseFileCase", "read_case_files"]


@dataclass(frozen=True, slots=True)
class CaseFileCase:
    """One case of a case file.

    A value of rank 0 (`sizes == ()`) may stand for a scalar: the method decides, not the file.

    Attributes:
        method: The method named by the keys; None where they have no prefix.
        index: The number of the case in the file, by its keys; None where they have no prefix.
        inputs: Values of `inputs.0`, `inputs.1`, …
        outputs: Values of `outputs.0`, …; may be empty.
        path: The file.
    """

    method: str | None
    index: int | None
    inputs: list[TensorView]
    outputs: list[TensorView]
    path: str


_KEY = re.compile(
    r"(?:(?P<method>.+)\.(?P<case>0|[1-9][0-9]{0,8})\.)?"
    r"(?P<kind>inputs|outputs)\.(?P<index>0|[1-9][0-9]{0,8})",
    re.DOTALL,
)


def read_case_files(paths: Iterable[StrPath]) -> list[CaseFileCase]:
    """Read the cases of several files, in the order of the files.

    Within a file cases are ordered by method, then number. A tensor that the file stores as it is
    becomes a range of the file; a compressed one is decompressed into memory. An `.npz` file is
    read once, for its checksums.

    Args:
        paths: `.npz` and `.safetensors` files.

    Raises:
        OSError: A file cannot be opened.
        FormatError: A file of another kind, or a damaged one (`TruncatedError` for one cut short).
        DuplicateKeyError: A key that stands twice in a file.
        CaseMismatchError: A key outside the grammar, a gap in the numbers, or keys with and
            without a prefix in one file.
        LayoutError: A data type that ExecuTorch does not have.
    """
    return [case for path in paths for case in _read_file(os.fsdecode(path))]


def _read_file(path: str) -> list[CaseFileCase]:
    readers = {".npz": read_npz, ".safetensors": read_safetensors}
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in readers:
        raise FormatError(
            "no case file", source=path, expected=" or ".join(readers), actual=repr(suffix)
        )
    return _cases(readers[suffix](path), path)


def _cases(values: Mapping[str, TensorView], path: str) -> list[CaseFileCase]:
    """Group values by case."""
    groups: dict[tuple[str, int] | None, dict[str, dict[int, TensorView]]] = {}
    for key, value in values.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise CaseMismatchError(
                f"key {key!r} is no input or output",
                source=path,
                expected="inputs.N or outputs.N, or these after METHOD.CASE.",
                actual=repr(key),
            )
        prefix = (match["method"], int(match["case"])) if match["method"] is not None else None
        kinds = groups.setdefault(prefix, {"inputs": {}, "outputs": {}})
        kinds[match["kind"]][int(match["index"])] = value
    if not groups:
        raise CaseMismatchError("no cases in the file", source=path, expected="a key inputs.0")
    if None in groups and len(groups) > 1:
        prefixed = next(key for key in values if not key.startswith(("inputs.", "outputs.")))
        raise CaseMismatchError(
            f"key {prefixed!r} has a prefix METHOD.CASE. and others of the file have none",
            source=path,
        )
    return [
        CaseFileCase(
            method=prefix[0] if prefix else None,
            index=prefix[1] if prefix else None,
            inputs=_in_order(kinds["inputs"], prefix, "inputs", path),
            outputs=_in_order(kinds["outputs"], prefix, "outputs", path),
            path=path,
        )
        for prefix, kinds in sorted(groups.items(), key=lambda group: group[0] or ("", 0))
    ]


def _in_order(
    values: Mapping[int, TensorView], prefix: tuple[str, int] | None, kind: str, path: str
) -> list[TensorView]:
    """Return the values in the order of their numbers, which count from 0 without a gap."""
    missing = next((i for i in range(len(values)) if i not in values), None)
    if missing is not None:
        stem = kind if prefix is None else f"{prefix[0]}.{prefix[1]}.{kind}"
        raise CaseMismatchError(
            f"key {stem + '.' + str(missing)!r} is missing",
            source=path,
            expected=f"{stem}.0 to {stem}.{len(values) - 1}",
            actual=f"{stem}.{max(values)}",
        )
    return [values[i] for i in range(len(values))]
