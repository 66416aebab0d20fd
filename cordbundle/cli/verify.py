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
        coverage = _coverage(opened)
    for finding in findings:
        output.say(finding)
    count = "sound" if not findings else f"{len(findings)} finding{'s' * (len(findings) > 1)}"
    output.say(f"{file}: {count} ({coverage})")
    return 1 if findings else 0


def _nbytes_to_read(file: cb.PteFile | cb.PtdFile | cb.BundleFile) -> int:
    """Return about how much the check reads; of files without digests only the metadata."""
    return len(file.cord) if isinstance(file, cb.BundleFile) else file.metadata_end


def _coverage(file: cb.PteFile | cb.PtdFile | cb.BundleFile) -> str:
    """Return in words what the check looked at."""
    if not isinstance(file, cb.BundleFile):
        return "structure checked; the format holds no digests"
    held = digests(file)
    if not held["metadata"] and not held["segments"]:
        return "structure checked; the file holds no digests"
    return f"structure checked; recomputed: {show_digests(held)}"
