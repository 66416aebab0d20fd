"""What lies on the disk before a run: programs, bundles, weights, blobs.

Rules of this file: all files of a source are in one folder, and one of them stands for it; nothing
heavy is imported.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import cordbundle as cb
from benchmarks import programs
from benchmarks.jobs import JOBS, MIB, Cell
from benchmarks.serializing import blob_paths, make_blobs, named_tensors

__all__ = [
    "export_programs",
    "make_source",
    "prepare_cache",
    "program_sizes",
    "source_size",
    "warm_up_cell",
]

WARM_UP_SIZE = 1 * MIB
WARM_UP_COUNT = 64
CASES = 100  # of a bundle that is opened

_PROGRAMS = ("dense program", "sparse program", "sparse bundle")


def program_sizes(cells: Iterable[Cell]) -> dict[bool, set[int]]:
    """Return the sizes of the programs that cells need: of sparse ones, and of those that are not.

    Those of warming up are with them; without cells that need any, there are none.
    """
    sizes: dict[bool, set[int]] = {False: set(), True: set()}
    for cell in cells:
        if JOBS[cell.job].source in _PROGRAMS:
            sizes["sparse" in JOBS[cell.job].source].add(cell.size)
    if any(sizes.values()):
        sizes[False].add(WARM_UP_SIZE)
    return sizes


def export_programs(folder: Path, sizes: dict[bool, set[int]]) -> None:
    """Export the programs that `program_sizes` returned."""
    programs.export_all(folder, dense=sorted(sizes[False]), sparse=sorted(sizes[True]))


def warm_up_cell(cell: Cell) -> Cell:
    """Return a small cell of the same kind."""
    return replace(cell, size=min(cell.size, WARM_UP_SIZE), count=min(cell.count, WARM_UP_COUNT))


def make_source(cell: Cell, folder: Path, exported: Path) -> Path:
    """Make a cell's source and return the file that stands for it.

    Args:
        cell: What it is for.
        folder: Where to put it.
        exported: Where `export_programs` put the programs.
    """
    kind = JOBS[cell.job].source
    path = folder / f"{kind.replace(' ', '-')}-{cell.size}-{cell.count}"
    if kind == "nothing":
        path.touch()
    elif kind == "weights":
        cb.write(cb.serialize_ptd(_weights(cell.count)), path, durability="none")
    elif kind in ("sparse blobs", "alike blobs", "equal blobs"):
        make_blobs(path, kind, cell.size, cell.count)
    else:
        program = programs.program_path(exported, cell.size, sparse="sparse" in kind)
        if kind == "sparse bundle":
            return _bundle_to_open(program, path)
        for it in (program, programs.cases_of(program)):
            _place(it, folder / it.name)
        return folder / program.name
    return path


def _weights(count: int) -> cb.DataPayload:
    store = cb.NamedDataStore()
    for tensor in named_tensors(count):
        layout = cb.TensorLayout(cb.ScalarType.FLOAT, tuple(tensor.sizes), (0, 1))
        store.add_named_data(tensor.name, tensor.data, tensor_layout=layout)
    return cb.DataPayload(store.buffers, store.pte_data)


def _place(path: Path, target: Path) -> None:
    """Give a file a second name; across filesystems, a copy."""
    try:
        target.hardlink_to(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(path, target)


def _bundle_to_open(program: Path, path: Path) -> Path:
    """Bundle a program with many cases of one tensor each way, in a form without a size limit."""
    case = cb.MethodTestCase([memoryview(bytes(4 * 8)).cast("q")], [])
    suite = cb.MethodTestSuite("forward", [case] * CASES)
    cb.bundle(program, [suite], form="segmented", digest=False).write(path)
    return path


def _payload_paths(cell: Cell, source: Path) -> list[Path]:
    return blob_paths(source) if JOBS[cell.job].source.endswith("blobs") else [source]


def source_size(cell: Cell, source: Path) -> int:
    """Return the size of a source in bytes, blobs together."""
    return sum(path.stat().st_size for path in _payload_paths(cell, source))


def prepare_cache(cell: Cell, source: Path, state: Literal["warm", "cold"]) -> None:
    """Bring a source into the page cache or drop it from there; a sparse one is left alone."""
    if "sparse" in JOBS[cell.job].source:
        return
    for path in _payload_paths(cell, source):
        with path.open("rb", buffering=0) as file:
            if state == "cold":
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                continue
            buffer = bytearray(MIB)
            while file.readinto(buffer):
                pass
