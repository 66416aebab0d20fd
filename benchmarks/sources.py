"""What lies on the disk before a run: programs, bundles, weights, blobs.

Rules of this file: all files of a source are in one folder, and one of them stands for it; nothing
heavy is imported.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import cordbundle as cb
from benchmarks import programs
from benchmarks.jobs import JOBS
from benchmarks.serializing import blob_paths, make_blobs, named_tensors, program, small_cases
from benchmarks.terms import BLOBS, LOOPS, MIB, PROGRAMS, Cell
from cordbundle import program as schema

__all__ = [
    "export_programs",
    "make_source",
    "prepare_cache",
    "program_sizes",
    "source_size",
    "warm_up_cell",
    "why_not_cold",
]

WARM_UP_SIZE = 1 * MIB
SPARSE_WARM_UP_SIZE = 16 * MIB
WARM_UP_COUNT = 64
CASES = 100  # of a bundle that is opened
PAGE = 4096

_FROM_SPARSE = ("sparse program", "filled program", "sparse bundle")
_LEFT_ALONE = (*_FROM_SPARSE, "sparse blobs")  # by `prepare_cache`: their jobs do not read them


def program_sizes(cells: Iterable[Cell]) -> dict[bool, set[int]]:
    """Return the sizes of the programs that cells need: of sparse ones, and of those that are not.

    Those of warming up are with them; without cells that need any, there are none.
    """
    sizes: dict[bool, set[int]] = {False: set(), True: set()}
    for cell in cells:
        if JOBS[cell.job].source in PROGRAMS:
            sizes[JOBS[cell.job].source in _FROM_SPARSE].add(cell.size)
    for kind, found in sizes.items():
        if found:
            found.add(_least(kind))
    return sizes


def _least(sparse: bool) -> int:
    """Return the size of a program for warming up; a sparse one has numbers that stay."""
    return SPARSE_WARM_UP_SIZE if sparse else WARM_UP_SIZE


def export_programs(folder: Path, sizes: dict[bool, set[int]]) -> None:
    """Export the programs that `program_sizes` returned."""
    programs.export_all(folder, dense=sorted(sizes[False]), sparse=sorted(sizes[True]))


def warm_up_cell(cell: Cell) -> Cell:
    """Return a small cell of the same kind."""
    least = _least(JOBS[cell.job].source in _FROM_SPARSE)
    return replace(cell, size=min(cell.size, least), count=min(cell.count, WARM_UP_COUNT))


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
    elif kind == "safetensors":
        _make_safetensors(path, cell.size, cell.count)
    elif kind in ("made program", "small program"):
        _make_program(path, cell.count if kind == "made program" else 8)
    elif kind == "bundle of cases":
        _bundle_of_cases(path, cell.count)
    elif kind in ("sparse blobs", "alike blobs", "equal blobs"):
        make_blobs(path, kind, cell.size, cell.count)
    else:
        path = _of_exported(cell, folder, exported)
    return path


def _of_exported(cell: Cell, folder: Path, exported: Path) -> Path:
    """Make a source from a program that was exported."""
    kind = JOBS[cell.job].source
    made = programs.program_path(exported, cell.size, sparse=kind in _FROM_SPARSE)
    path = folder / f"{kind.replace(' ', '-')}-{cell.size}"
    if kind == "sparse bundle":
        return _bundle_to_open(made, path)
    _place(programs.cases_of(made), programs.cases_of(path))
    if kind == "filled program":
        programs.fill(made, path)
    elif kind == "paged program":
        with cb.open(made) as file:
            editor = cb.PteEditor(file)
            editor.align_segments(PAGE)
            editor.finish().write(path)
    elif kind == "dense bundle":
        _place(made, programs.program_of(path))
        cb.bundle(programs.program_of(path), [cb.MethodTestSuite("forward", [_CASE])]).write(path)
    else:
        _place(made, path)
    return path


_CASE = cb.MethodTestCase([memoryview(bytes(4 * 8)).cast("q")], [])


def _make_safetensors(path: Path, size: int, count: int) -> None:
    """Make a safetensors file of float32, its header filled up so that its tensors have pages."""
    each = size // count // PAGE * PAGE
    header: dict[str, object] = {
        f"layers.{number:05}.weight": {
            "dtype": "F32",
            "shape": [each // PAGE, PAGE // 4],
            "data_offsets": [number * each, (number + 1) * each],
        }
        for number in range(count)
    }
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % PAGE)
    numbers = random.Random(0)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(count):
            left = each
            while left:
                left -= file.write(numbers.randbytes(min(left, MIB)))
        file.flush()
        os.fsync(file.fileno())


def _make_program(path: Path, values: int) -> None:
    made = program(schema, cb.ScalarType.FLOAT, values=max(values, 8))
    cb.write(cb.serialize_pte(made), path, durability="none")


def _bundle_of_cases(path: Path, count: int) -> None:
    _make_program(path.with_suffix(".pte"), 8)
    cases = [
        cb.MethodTestCase(*([_tensor(sizes, data)] for sizes, data in pair))
        for pair in small_cases(count)
    ]
    suite = cb.MethodTestSuite("forward", cases)
    cb.bundle(path.with_suffix(".pte"), [suite], digest=False).write(path, durability="none")


def _tensor(sizes: tuple[int, ...], data: bytes) -> object:
    return memoryview(data).cast("B").cast("f", sizes)


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
    """Bundle a program with many cases of one tensor, in a form without a size limit."""
    suite = cb.MethodTestSuite("forward", [_CASE] * CASES)
    cb.bundle(program, [suite], form="segmented", digest=False).write(path)
    return path


def _payload_paths(cell: Cell, source: Path) -> list[Path]:
    return blob_paths(source) if JOBS[cell.job].source in BLOBS else [source]


def source_size(cell: Cell, source: Path) -> int:
    """Return the size of a source in bytes, blobs together."""
    return sum(path.stat().st_size for path in _payload_paths(cell, source))


def why_not_cold(cell: Cell) -> str:
    """Return why the source of a cell cannot be out of the page cache; empty if it can."""
    job = JOBS[cell.job]
    if job.source == "nothing":
        return "there is no source to drop from the cache"
    if job.source in _LEFT_ALONE:
        return "a source of this kind is left in the cache as it is"
    if cell.folder == "tmpfs":
        return "files on tmpfs are in memory alone"
    if cell.folder in LOOPS:
        return "the file that it is in would stay in the cache"
    if job.warms_up and cell.measure == "time" and warm_up_cell(cell) == cell:
        return "warming up reads the same source"
    return ""


def prepare_cache(cell: Cell, source: Path) -> None:
    """Bring the source of a cell into the page cache, or drop it from there if that is cold.

    Sparse and filled ones are left alone: what they are for does not read them.
    """
    if JOBS[cell.job].source in _LEFT_ALONE:
        return
    for path in _payload_paths(cell, source):
        with path.open("rb", buffering=0) as file:
            if cell.cache == "cold":
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                continue
            buffer = bytearray(MIB)
            while file.readinto(buffer):
                pass
