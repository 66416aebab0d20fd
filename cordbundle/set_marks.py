"""Marks on the data files of a set, by which a mix of old and new files can be told.

Rules of this file: a mark is an extended attribute (xattr(7)), so that no byte of a file depends
on it; it holds for exactly the file that it was put on, at the size and time that this had; where
there are no extended attributes, or no room for them, no file of a set has one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from cordbundle.digest import DIGEST_SIZE
from cordbundle.failures import tolerated

__all__ = ["SetMark", "mark_of", "name_of", "put_marks"]

ATTRIBUTE = "user.cordbundle.set"

_HEAD = struct.Struct("<16sQqII")  # set, size, mtime in ns, number of programs, of data files
_NAME_SIZE = 8
_PROGRAM = struct.Struct(f"<{_NAME_SIZE}s{DIGEST_SIZE}s")


@dataclass(frozen=True, slots=True)
class SetMark:
    """What the data files of a set with programs are marked with.

    Attributes:
        token: 16 random bytes that the set alone has.
        programs: `name_of` and xxh3-128 of each of its programs.
        data: `name_of` of each of its data files.
    """

    token: bytes
    programs: frozenset[tuple[bytes, bytes]]
    data: frozenset[bytes]

    def excludes(self, program: bytes, digest: bytes) -> bool:
        """Return whether a program has the name of one of the set, but is another."""
        digests = {theirs for name, theirs in self.programs if name == program}
        return bool(digests) and digest not in digests


def name_of(path: str) -> bytes:
    """Return 8 bytes for the name of a file, whatever folder it is in; links are followed."""
    name = os.fsencode(os.path.basename(os.path.realpath(path)))
    return xxhash.xxh3_64_digest(name)


def put_marks(descriptors: Iterable[int], mark: SetMark) -> None:
    """Mark files that are complete: all of them, or none if one cannot be marked."""
    if not hasattr(os, "setxattr"):
        return
    marked: list[int] = []
    for descriptor in descriptors:
        if not _put(descriptor, mark):
            for other in marked:
                with tolerated():
                    os.removexattr(other, ATTRIBUTE)
            return
        marked.append(descriptor)


def mark_of(path: str) -> SetMark | None:
    """Return the mark of a data file; None if it has none, or was changed since it got it."""
    if hasattr(os, "getxattr"):
        with tolerated():
            return _unpack(os.getxattr(path, ATTRIBUTE), os.stat(path))
    return None


def _put(descriptor: int, mark: SetMark) -> bool:
    is_marked = False
    with tolerated():
        os.setxattr(descriptor, ATTRIBUTE, _pack(mark, os.fstat(descriptor)))
        is_marked = True
    return is_marked


def _pack(mark: SetMark, status: os.stat_result) -> bytes:
    head = _HEAD.pack(
        mark.token, status.st_size, status.st_mtime_ns, len(mark.programs), len(mark.data)
    )
    programs = (_PROGRAM.pack(*program) for program in sorted(mark.programs))
    return b"".join((head, *programs, *sorted(mark.data)))


def _unpack(value: bytes, status: os.stat_result) -> SetMark | None:
    if len(value) < _HEAD.size:
        return None
    token, size, time, programs, data = _HEAD.unpack_from(value)
    middle = _HEAD.size + programs * _PROGRAM.size
    if len(value) != middle + data * _NAME_SIZE:
        return None
    if (size, time) != (status.st_size, status.st_mtime_ns):
        return None
    pairs = ((name, digest) for name, digest in _PROGRAM.iter_unpack(value[_HEAD.size : middle]))
    names = (value[at : at + _NAME_SIZE] for at in range(middle, len(value), _NAME_SIZE))
    return SetMark(token, frozenset(pairs), frozenset(names))
