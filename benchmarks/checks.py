"""What a run has to have made.

Rules of this file: contents are compared with the source by digest, byte for byte up to 1 GiB and
one MiB of 64 above, with cordbundle's own readers where the format needs one; what is wrong is a
`ValueError`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import cordbundle as cb
from benchmarks.programs import program_of
from benchmarks.serializing import blob_paths
from benchmarks.terms import GIB, MIB, Way
from cordbundle.weights import read_weights

__all__ = ["check", "check_equal"]


def check(way: Way, source: Path, target: Path) -> str | None:
    """Check the target of a way; return what all ways of this job have to have made alike, if so.

    Raises:
        ValueError: It is not what it should be.
    """
    if way.makes == "nothing":
        return None
    if way.makes == "program":
        return _check_program(way, source, target)
    if way.makes == "weights":
        if _weights(source) != _weights(target):
            raise ValueError(f"{way.name} changed weights")
    elif way.makes == "rewritten":
        if _segments(source) != _segments(target):
            raise ValueError(f"{way.name} changed segments")
    else:
        expected = program_of(source) if way.makes == "extracted" else source
        made = cb.Cord.from_file(target)
        if way.makes == "bundle":
            with cb.open(target) as file:
                made = file.program if isinstance(file, cb.BundleFile) else cb.Cord()
        if _digest(made) != _file_digest(expected, expected.stat().st_mtime_ns):
            raise ValueError(f"{way.name} changed the bytes of {expected.name}")
    return None


def check_equal(made: dict[str, object]) -> None:
    """Check that ways which say what they made have made the same.

    Raises:
        ValueError: They have not.
    """
    said = {way: it for way, it in made.items() if it is not None}
    if len(set(said.values())) > 1:
        raise ValueError(f"not the same: {said}")


@cache
def _file_digest(path: Path, _changed: int) -> tuple[int, bytes]:
    return _digest(cb.Cord.from_file(path))


def _digest(cord: cb.Cord) -> tuple[int, bytes]:
    """Return the size and a digest of a Cord, of a large one of some of its parts."""
    looked_at = cord
    if len(cord) > GIB:
        looked_at = cb.Cord(cord[-MIB:])
        for at in range(0, len(cord), 64 * MIB):
            looked_at.append(cord[at : at + MIB])
    return len(cord), looked_at.xxh3_128()


def _weights(path: Path) -> dict[str, bytes]:
    return {weight.key: weight.data.xxh3_128() for weight in read_weights(path)}


def _segments(path: Path) -> list[bytes]:
    with cb.open(path) as file:
        file.check()
        if not isinstance(file, cb.PteFile):
            raise ValueError(f"{path.name} is no program")
        return [segment.xxh3_128() for segment in file.segments]


def _check_program(way: Way, source: Path, target: Path) -> str:
    """Check that a program holds the source's blobs as constants, and return its digest."""
    with cb.open(target) as file:
        file.check()
        if not isinstance(file, cb.PteFile) or len(file.segments) != 1:
            raise ValueError(f"{way.name} made no program with one segment")
        place, (data,) = file.program().constant_segment, file.segments
    paths = blob_paths(source)
    offsets = (place and place.offsets) or ()
    for path, offset in zip(paths, offsets[1:], strict=True):
        blob = cb.Cord.from_file(path)
        if data[offset : offset + len(blob)] != blob:
            raise ValueError(f"{way.name} changed the bytes of {path.name}")
    return cb.Cord.from_file(target).xxh3_128().hex()
