"""Safetensors files: names, and tensors as ranges of the file.

Rules of this file: the header is read and checked whole, every number before it is used; no byte of
a tensor is read. The format is a little-endian uint64 length, that many bytes of JSON, then the
bytes of the tensors without gaps (https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from cordbundle.cord import Cord
from cordbundle.errors import DuplicateKeyError, FormatError, LayoutError, TruncatedError
from cordbundle.scalar_types import ScalarType
from cordbundle.tensor_view import TensorView

if TYPE_CHECKING:
    from cordbundle.source import StrPath

__all__ = ["SCALAR_TYPES", "json_object", "read_safetensors"]

_LENGTH_SIZE = 8
_MAX_HEADER = 100_000_000  # bytes; the limit of the format's own reader
_MAX_RANK = 64  # as PyTorch and NumPy
_FIELDS = {"dtype", "shape", "data_offsets"}
SCALAR_TYPES = {
    "BOOL": ScalarType.BOOL,
    "U8": ScalarType.BYTE,
    "I8": ScalarType.CHAR,
    "I16": ScalarType.SHORT,
    "I32": ScalarType.INT,
    "I64": ScalarType.LONG,
    "F16": ScalarType.HALF,
    "F32": ScalarType.FLOAT,
    "F64": ScalarType.DOUBLE,
    "BF16": ScalarType.BFLOAT16,
    "F8_E5M2": ScalarType.FLOAT8E5M2,
    "F8_E4M3": ScalarType.FLOAT8E4M3FN,
    "F8_E5M2FNUZ": ScalarType.FLOAT8E5M2FNUZ,
    "F8_E4M3FNUZ": ScalarType.FLOAT8E4M3FNUZ,
    "U16": ScalarType.UINT16,
    "U32": ScalarType.UINT32,
    "U64": ScalarType.UINT64,
}


def read_safetensors(path: StrPath) -> dict[str, TensorView]:
    """Read the header of a safetensors file; tensors are ranges of the file, by reference.

    Args:
        path: The file. It has to stay as it is while the tensors are used.

    Returns:
        The tensors by name, in the order of the header.

    Raises:
        OSError: The file cannot be opened.
        TruncatedError: The file is shorter than its header says.
        FormatError: It is no safetensors file, or a damaged one.
        DuplicateKeyError: Two tensors of one name.
        LayoutError: A data type that ExecuTorch does not have.
    """
    source = os.fsdecode(path)
    cord = Cord.from_file(path)
    header_size = _header_size(cord, source)
    start = _LENGTH_SIZE + header_size
    entries = [_entry(*item, source) for item in _parse(cord[_LENGTH_SIZE:start], source)]
    _check_ranges(entries, len(cord) - start, source)
    return {
        entry.name: TensorView(
            entry.scalar_type,
            entry.sizes,
            tuple(range(len(entry.sizes))),
            cord[start + entry.begin : start + entry.end],
        )
        for entry in entries
    }


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor of the header; `begin` and `end` count from the end of the header, in bytes."""

    name: str
    scalar_type: ScalarType
    sizes: tuple[int, ...]
    begin: int
    end: int


def _header_size(cord: Cord, source: str) -> int:
    """Return the number of bytes of the header, which stand in the file and begin a JSON object."""
    if len(cord) < _LENGTH_SIZE:
        raise TruncatedError(
            "too short for a safetensors file",
            source=source,
            expected=f"at least {_LENGTH_SIZE} bytes",
            actual=f"{len(cord)} bytes",
        )
    head = bytes(cord[: _LENGTH_SIZE + 1])
    size = int.from_bytes(head[:_LENGTH_SIZE], "little")
    if size > _MAX_HEADER or head[_LENGTH_SIZE:] not in (b"", b"{"):
        raise FormatError(
            "no safetensors file",
            source=source,
            offset=0,
            expected=f"the length of a header of up to {_MAX_HEADER} bytes, then '{{'",
            actual=repr(head),
        )
    if size > len(cord) - _LENGTH_SIZE:
        raise TruncatedError(
            "header passes the end of the file",
            source=source,
            offset=_LENGTH_SIZE,
            expected=f"{size} bytes",
            actual=f"{len(cord) - _LENGTH_SIZE} bytes",
            cause="the download or the copy may be incomplete",
        )
    return size


def _parse(header: Cord, source: str) -> Iterable[tuple[str, object]]:
    """Return the names and descriptions of the tensors."""
    parsed = json_object(header, source, _LENGTH_SIZE)
    return [item for item in parsed.items() if item[0] != "__metadata__"]


def json_object(text: Cord, source: str, offset: int = 0) -> dict[str, object]:
    """Read a JSON object, in which no name may stand twice.

    Args:
        text: The JSON.
        source: The file that it stands in, for errors.
        offset: Where, in bytes.

    Raises:
        FormatError: It is no JSON, or no object.
        DuplicateKeyError: A name stands twice in an object.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice = next(name for name, count in counts.items() if count > 1)
            raise DuplicateKeyError(f"key {twice!r} stands twice", source=source)
        return result

    try:
        parsed: object = json.loads(bytes(text).decode("utf-8"), object_pairs_hook=unique)
    except DuplicateKeyError:
        raise
    except (ValueError, RecursionError) as error:  # what json raises for bad text
        raise FormatError(
            "no JSON",
            source=source,
            offset=offset,
            expected="{...}",
            actual=_short(bytes(text[:80])),
            cause=str(error),
        ) from error
    if not isinstance(parsed, dict):
        raise FormatError(
            "no JSON object",
            source=source,
            offset=offset,
            expected="{...}",
            actual=_short(parsed),
        )
    return parsed


def _entry(name: str, value: object, source: str) -> _Entry:
    """Check the description of one tensor for itself."""
    if not isinstance(value, dict) or value.keys() != _FIELDS:
        raise FormatError(
            f"tensor {name!r} is not described",
            source=source,
            expected="an object of dtype, shape and data_offsets",
            actual=_short(value),
        )
    dtype, sizes, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not _are_sizes(sizes) or not _are_sizes(offsets) or len(offsets) != 2:
        raise FormatError(
            f"shape or data_offsets of tensor {name!r} are no sizes",
            source=source,
            expected=f"at most {_MAX_RANK} whole numbers from 0, and two",
            actual=_short(value),
        )
    scalar_type = SCALAR_TYPES.get(dtype) if isinstance(dtype, str) else None
    if scalar_type is None:
        raise LayoutError(
            f"tensor {name!r} has a data type that ExecuTorch does not have",
            source=source,
            expected=" or ".join(SCALAR_TYPES),
            actual=_short(dtype),
        )
    begin, end = offsets
    return _Entry(name, scalar_type, tuple(sizes), begin, end)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list)
        and len(value) <= _MAX_RANK
        and all(type(size) is int and 0 <= size < 1 << 63 for size in value)
    )


def _check_ranges(entries: list[_Entry], data_size: int, source: str) -> None:
    """Check that the tensors fill the data from end to end, each with the size of its shape."""
    position = 0
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != position or entry.end < entry.begin:
            raise FormatError(
                f"data of tensor {entry.name!r} leaves a gap or overlaps",
                source=source,
                expected=f"data_offsets from {position} on",
                actual=f"[{entry.begin}, {entry.end}]",
            )
        nbytes = math.prod(entry.sizes) * entry.scalar_type.itemsize
        if nbytes != entry.end - entry.begin:
            raise FormatError(
                f"data of tensor {entry.name!r} has another size than its shape",
                source=source,
                expected=f"{nbytes} bytes for {entry.scalar_type.name} {list(entry.sizes)}",
                actual=f"{entry.end - entry.begin} bytes",
            )
        position = entry.end
    if position > data_size:
        raise TruncatedError(
            "data passes the end of the file",
            source=source,
            expected=f"{position} bytes after the header",
            actual=f"{data_size} bytes",
            cause="the download or the copy may be incomplete",
        )
    if position < data_size:
        raise FormatError(
            "bytes after the last tensor",
            source=source,
            expected=f"{position} bytes after the header",
            actual=f"{data_size} bytes",
        )


def _short(value: object) -> str:
    """Return a value of the header for an error, cut to a line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
