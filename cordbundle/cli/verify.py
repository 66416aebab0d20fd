"""`cordbundle verify`: is a file what its format promises?

Rules of this file: it prints every finding and what the check could cover; the checks are the
library's.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

import cordbundle as cb
from cordbundle.cli import output
from cordbundle.cli.inspect import digests, show_digests
from cordbundle.cli.kinds import AnyFile
from cordbundle.flatbuffer.verify import MAX_FINDINGS

__all__ = ["verify"]


def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .pte, .ptd or .bpte file.")],
) -> int:
    """Check a file and print all that is wrong with it.

    The exit code is 1 if anything is.
    """
    with cb.open(file) as opened:
        what = f"verifying {os.path.basename(file)}"
        with output.progress(what, _nbytes_to_read(opened)) as callback:
            findings = opened.verify(callback)
        outcome = _outcome(opened, len(findings))
    for finding in findings:
        output.say(finding)
    output.say(f"{file}: {outcome}")
    return 1 if findings else 0


def _outcome(file: AnyFile, count: int) -> str:
    """Return in words how many findings there are and what the check looked at."""
    if count >= MAX_FINDINGS:
        return f"{count} findings or more; the check stopped"
    found = "sound" if not count else f"{count} finding{'s' * (count > 1)}"
    return f"{found} ({_coverage(file, is_sound=not count)})"


def _nbytes_to_read(file: AnyFile) -> int:
    """Return about how much the check reads; of files without digests only the metadata."""
    return len(file.cord) if isinstance(file, cb.BundleFile) else file.metadata_end


def _coverage(file: AnyFile, *, is_sound: bool) -> str:
    """Return in words what the check looked at."""
    if not is_sound:
        try:
            file.check_structure()
        except cb.FormatError:
            return "structure is damaged; what it leads to could not be checked"
    if not isinstance(file, cb.BundleFile):
        return "structure checked; the format holds no digests"
    held = digests(file)
    if not held["metadata"] and not held["segments"]:
        return "structure checked; the file holds no digests"
    return f"structure checked; recomputed: {show_digests(held)}"
