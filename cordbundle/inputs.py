"""What users hand over as programs and blobs, as Cords.

Rules of this file: by reference, always; ExecuTorch's objects are recognised by what they offer,
without importing ExecuTorch.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cordbundle.cord import Cord, FileRange
from cordbundle.errors import SourceChangedError
from cordbundle.source import SourceFile
from cordbundle.tensors import describe

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from cordbundle.source import StrPath

__all__ = ["CordHolder", "blob_cord", "is_array", "program_cord", "source_cord", "source_name"]


class CordHolder:
    """A Cord in the guise of another library's class.

    Attributes:
        cord: The Cord.
    """

    cord: Cord


def source_cord(source: StrPath | Buffer | Cord) -> Cord:
    """Return a file, a bytes-like object or a Cord as a Cord."""
    if isinstance(source, Cord):
        return source
    if isinstance(source, str | os.PathLike):
        return Cord.from_file(source)
    try:
        memoryview(source)
    except TypeError:
        raise TypeError(
            f"{type(source).__name__} is no file; give a path, a bytes-like object or a Cord"
        ) from None
    return Cord(source)


def source_name(source: object, cord: Cord, default: str) -> str:
    """Return the path of a source, or of the file that its Cord begins in, else `default`."""
    if isinstance(source, str | os.PathLike):
        return os.fsdecode(source)
    first = cord.first_chunk()
    return first.source.path if isinstance(first, FileRange) else default


def program_cord(program: object) -> Cord:
    """Return a program as a Cord.

    Args:
        program: A path, a bytes-like object, a Cord, or an ExecuTorch program manager, whose
            `buffer` would join the whole program and is not used.

    Raises:
        TypeError: None of these.
    """
    for name in ("_pte_data", "_get_pte_data"):  # ExecutorchProgramManager, ExecutorchProgram
        data = getattr(program, name, None)
        if data is not None:
            cord = _executorch_cord(data() if callable(data) else data)
            if cord is None:
                raise TypeError(f"no program: {type(program).__name__}")
            return cord
    return source_cord(program)  # type: ignore[arg-type]  # a TypeError for what it is not


def blob_cord(blob: object) -> Cord:
    """Return the bytes of a blob by reference.

    Args:
        blob: A path, a bytes-like object, a Cord, an array (its elements in its own dim order), or
            ExecuTorch's `FileBackedData` or `Cord`.

    Raises:
        LayoutError: An array that cannot be stored.
        SourceChangedError: A `FileBackedData` whose file has another size by now.
        TypeError: None of these.
    """
    if isinstance(blob, bytes):
        return Cord(blob)
    if isinstance(blob, Cord | str | os.PathLike | bytearray | memoryview):
        return source_cord(blob)
    cord = _executorch_cord(blob)
    return describe(blob).cord if cord is None else cord  # type: ignore[arg-type]  # as above


_NO_ARRAYS = (Cord, CordHolder, str, os.PathLike, bytes, bytearray, memoryview, mmap.mmap)


def is_array(blob: object) -> bool:
    """Tell whether a blob has a scalar type and sizes, and is not merely bytes."""
    if isinstance(blob, _NO_ARRAYS):
        return False
    return not _is_file_backed(blob) and _pieces(blob) is None


def _executorch_cord(data: object) -> Cord | None:
    """Return ExecuTorch's `FileBackedData`, or its Cord, a list of `bytes` and these, as ours."""
    if isinstance(data, Cord):
        return data
    if isinstance(data, CordHolder):
        return data.cord
    if _is_file_backed(data):
        return _file_cord(data)
    pieces = _pieces(data)
    if pieces is None:
        return None
    cord = Cord()
    for piece in pieces:
        held = None if isinstance(piece, bytes) else _executorch_cord(piece)
        cord.append(piece if held is None else held)  # type: ignore[arg-type]  # as above
    return cord


def _pieces(data: object) -> Iterable[object] | None:
    pieces = getattr(data, "_buffers", None)
    # A torch.nn.Module has `_buffers` too, a dict.
    return pieces if isinstance(pieces, list) else None


def _is_file_backed(data: object) -> bool:
    return isinstance(getattr(data, "_path", None), str) and hasattr(data, "_size")


_owners: WeakKeyDictionary[SourceFile, list[object]] = WeakKeyDictionary()
"""Objects that delete their file when they die, kept as long as the file is referred to."""


def _file_cord(data: object) -> Cord:
    """Return the file of a `FileBackedData`, which may be temporary, by reference."""
    path, size = data._path, data._size  # type: ignore[attr-defined]  # see _is_file_backed
    cord = Cord.from_file(path)
    if len(cord) != size:
        raise SourceChangedError(
            "the size changed after the data was handed over",
            source=path,
            expected=size,
            actual=len(cord),
        )
    chunk = cord.first_chunk()
    if isinstance(chunk, FileRange):
        owners = _owners.setdefault(chunk.source, [])
        if not any(owner is data for owner in owners):
            owners.append(data)
    return cord
