"""File names for external tags, and for whatever else a file names a file by.

Rules of this file: a name that was read or handed in names a file in the folder that was asked for,
or it is refused.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping

from cordbundle.cord import Cord
from cordbundle.errors import DuplicateKeyError, LayoutError

__all__ = ["is_file_name", "tensor_data_paths"]

_SUFFIX = ".ptd"
_UNFIT = re.compile("[/\\\\:\0\ud800-\udfff]")  # on any system


def tensor_data_paths(
    tensor_data: Mapping[str, Cord], folder: str | os.PathLike[str]
) -> dict[str, Cord]:
    """Return where external files go, for `cordbundle.write_all`.

    The names are those of ExecuTorch's `write_tensor_data_to_file`: the tag, which has to end, or
    is made to end, in `.ptd`.

    Args:
        tensor_data: The files by tag, as `serialize_for_executorch` returned them.
        folder: Where to put them.

    Returns:
        The files by path.

    Raises:
        LayoutError: A tag that is empty, holds NUL, a separator of folders or half of a surrogate
            pair, or is "." or "..".
        DuplicateKeyError: Two tags that are, or on some filesystems would be, one file.
    """
    tags: dict[str, str] = {}
    paths: dict[str, Cord] = {}
    for tag, cord in tensor_data.items():
        name = _file_name(tag)
        # Filesystems of macOS and Windows do not tell case, macOS's not the forms of Unicode.
        folded = unicodedata.normalize("NFC", name).casefold()
        if folded in tags:
            raise DuplicateKeyError(
                f"external tags {tags[folded]!r} and {tag!r} would be one file", actual=name
            )
        tags[folded] = tag
        paths[os.path.join(folder, name)] = cord
    return paths


def _file_name(tag: str) -> str:
    stem = tag.removesuffix(_SUFFIX)
    if not is_file_name(stem):
        raise LayoutError(
            "external tag is no file name",
            expected="a name that is not empty, without /, \\, : and NUL",
            actual=repr(tag),
        )
    return stem + _SUFFIX


def is_file_name(name: str) -> bool:
    """Tell whether a name can be that of a file in a folder, and on every system of no other."""
    return name not in ("", ".", "..") and not _UNFIT.search(name)
