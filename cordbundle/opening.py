"""Open a file of any of the formats.

Rules of this file: it looks at the first bytes and hands over to the class that reads the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordbundle.bpte import BundleFile
from cordbundle.headers import HEAD_SIZE, identify
from cordbundle.inputs import source_cord, source_name
from cordbundle.ptd import PtdFile
from cordbundle.pte import PteFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from cordbundle.cord import Cord
    from cordbundle.source import StrPath

__all__ = ["open_file"]

_CLASSES: dict[bytes, type[PteFile | PtdFile | BundleFile]] = {
    identifier: cls for cls in (PteFile, PtdFile, BundleFile) for identifier in cls.KINDS
}


def open_file(source: StrPath | Buffer | Cord) -> PteFile | PtdFile | BundleFile:
    """Open a `.pte`, `.ptd` or `.bpte` file for reading.

    Args:
        source: Path, bytes-like object or Cord with the whole file.

    Returns:
        The open file, a context manager; its kind is told by its bytes, not by its name. Reads the
        header and what is asked for, never the payload.

    Raises:
        OSError: The file cannot be opened.
        FormatError: It is none of these; says what it looks like.
        TruncatedError: It ends before what its header promises.
    """
    cord = source_cord(source)
    name = source_name(source, cord, "<memory>")
    kind = identify(bytes(cord[:HEAD_SIZE]), name, len(cord))
    return _CLASSES[kind.identifier](cord, name)
