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
_DEVICES = frozenset(
    ["CON", "PRN", "AUX", "NUL"] + [f"{name}{n}" for name in ("COM", "LPT") for n in range(1, 10)]
)
"""Names that Windows gives to devices, whatever suffix follows them."""

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
            pair, is "." or "..", or on Windows names a device; or a link in the folder that leads
            out of it, as links are followed by writes.
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
        path = os.path.join(folder, name)
        _check_link(path, tag)
        paths[path] = cord
    return paths


def _check_link(path: str, tag: str) -> None:
    """Refuse a link to another folder; links inside of one are the user's own."""
    folder = os.path.realpath(os.path.dirname(path))
    target = os.path.realpath(path)
    if os.path.dirname(target) != folder:
        raise LayoutError(
            f"external tag {tag!r} would be written through a link that leads out of its folder",
            source=path,
            expected=f"a file in {folder}",
            actual=target,
        )


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
    if os.name == "nt" and name.split(".", maxsplit=1)[0].rstrip(" ").upper() in _DEVICES:
        return False
    return name not in ("", ".", "..") and not _UNFIT.search(name)
