"""Safetensors files in shards: the index that says which tensor is in which file.

Rules of this file: a shard is a file in the folder of its index, under a plain name and not through
a link that leads elsewhere; the index and the shards agree, or nothing is taken. The index is JSON
with the files by tensor name under `weight_map`, as Hugging Face's `save_pretrained` writes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cordbundle.cord import Cord
from cordbundle.errors import FormatError, TooLargeError
from cordbundle.safetensors import json_object, read_safetensors
from cordbundle.tags import is_file_name

if TYPE_CHECKING:
    from cordbundle.source import StrPath
    from cordbundle.tensor_view import TensorView

__all__ = ["read_safetensors_index"]

_MAX_INDEX = 100_000_000  # bytes; as a header may have
_WAY_OUT = "name the shards themselves instead of their index to take them as they are"


def read_safetensors_index(path: StrPath) -> dict[str, dict[str, TensorView]]:
    """Read the headers of all shards that an index names.

    Args:
        path: The index, `model.safetensors.index.json`.

    Returns:
        The tensors by file and name, as ranges of the files.

    Raises:
        OSError: The index or a shard cannot be opened.
        FormatError: No index, a shard that is not in its folder, a damaged shard, or one that holds
            other tensors than the index says.
        LayoutError: As for `read_safetensors`.
    """
    source = os.fsdecode(path)
    folder = os.path.dirname(source)
    shards: dict[str, dict[str, TensorView]] = {}
    for file, names in _names_by_file(source).items():
        shard = _path_of(file, folder, source)
        shards[shard] = read_safetensors(shard)
        _check_names(names, shards[shard], file, source)
    return shards


def _names_by_file(source: str) -> dict[str, set[str]]:
    text = Cord.from_file(source)
    if len(text) > _MAX_INDEX:
        raise TooLargeError(
            "too large for an index",
            source=source,
            expected=f"at most {_MAX_INDEX} bytes",
            actual=f"{len(text)} bytes",
        )
    files = json_object(text, source).get("weight_map")
    if not isinstance(files, dict):
        raise FormatError(
            "no index of safetensors files",
            source=source,
            expected="an object 'weight_map'",
            actual="none" if files is None else type(files).__name__,
        )
    names: dict[str, set[str]] = {}
    for name, file in files.items():
        if not isinstance(file, str) or not is_file_name(file):
            raise FormatError(
                f"shard of tensor {name!r} is not in the folder of the index",
                source=source,
                expected="the name of a file",
                actual=repr(file)[:80],
            )
        names.setdefault(file, set()).add(name)
    return names


def _path_of(file: str, folder: str, source: str) -> str:
    path = os.path.join(folder, file)
    if os.path.dirname(os.path.realpath(path)) != os.path.realpath(folder):
        raise FormatError(
            f"shard {file!r} is a link that leads out of the folder of the index",
            source=source,
            expected=f"a file in {os.path.realpath(folder)}",
            actual=os.path.realpath(path),
            cause=_WAY_OUT,
        )
    return path


def _check_names(
    names: set[str], tensors: Mapping[str, TensorView], file: str, source: str
) -> None:
    """Check that a shard holds what the index says, and nothing else."""
    for name in sorted(names ^ tensors.keys()):
        verb = "does not hold" if name in names else "holds"
        raise FormatError(
            f"shard {file!r} {verb} tensor {name!r}, unlike what the index says",
            source=source,
            cause=_WAY_OUT,
        )
