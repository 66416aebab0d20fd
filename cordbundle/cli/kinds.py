"""What kind of file a command was given.

Rules of this file: a file of another kind is refused with what it is.
"""

from __future__ import annotations

import cordbundle as cb

__all__ = ["AnyFile", "as_bundle", "as_program"]

AnyFile = cb.PteFile | cb.PtdFile | cb.BundleFile
"""What `cordbundle.open` returns."""


def as_bundle(file: AnyFile) -> cb.BundleFile:
    """Return an open file if it is a bundle.

    Raises:
        FormatError: It is another kind.
    """
    if isinstance(file, cb.BundleFile):
        return file
    raise _another_kind("no bundle", "a bundled program (.bpte)", file)


def as_program(file: AnyFile) -> cb.PteFile:
    """Return an open file if it is a program.

    Raises:
        FormatError: It is another kind.
    """
    if isinstance(file, cb.PteFile):
        return file
    raise _another_kind("no program", "an ExecuTorch program (.pte)", file)


def _another_kind(what: str, expected: str, file: AnyFile) -> cb.FormatError:
    return cb.FormatError(what, source=file.name, expected=expected, actual=file.kind.name)
