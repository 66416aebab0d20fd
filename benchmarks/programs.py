"""Real programs of any size: an embedding table, exported by ExecuTorch.

Rules of this file: `python -m benchmarks.programs` runs in a process of its own, which alone
imports ExecuTorch; a program `NAME.pte` comes with its case `NAME.npz`.

A dense program has random weights and needs about twice its size of memory while it is exported. A
sparse one is exported with few rows and then widened: the sizes of its table and of its constant
segment are changed in place and the file is extended by a hole, with random numbers in the last
row. Both run on the ExecuTorch runtime.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["cases_of", "export_all", "fill", "program_of", "program_path"]

COLUMNS = 1024
ROW = 4 * COLUMNS
_PIECE = 1 << 20
_HEAD = 4 << 20  # bytes with all the numbers of a sparse program but for the last row
SPARSE_ROWS = 257  # those with numbers in a sparse program, but for the last one


def program_path(folder: Path, size: int, *, sparse: bool) -> Path:
    """Return the path of a program with a constant segment of `size` bytes."""
    return folder / f"{'sparse' if sparse else 'dense'}-{size}.pte"


def cases_of(program: Path) -> Path:
    """Return the path of a program's case."""
    return program.with_suffix(".npz")


def program_of(bundle: Path) -> Path:
    """Return the path of the program that a bundle was made of."""
    return bundle.with_suffix(".pte")


def fill(program: Path, target: Path) -> None:
    """Copy a sparse program; its holes become the same MiB of random numbers again and again."""
    piece = random.Random(0).randbytes(_PIECE)
    with program.open("rb") as source, target.open("xb") as file:
        size = os.fstat(source.fileno()).st_size
        file.write(source.read(_HEAD))
        while size - file.tell() > 2 * _PIECE:
            file.write(piece)
        source.seek(file.tell())
        file.write(source.read())
        file.flush()
        os.fsync(file.fileno())


def export_all(folder: Path, *, dense: Iterable[int], sparse: Iterable[int]) -> None:
    """Export programs in another process.

    Args:
        folder: Where to.
        dense: Sizes in bytes of programs full of random numbers.
        sparse: Sizes in bytes of programs that are holes for the most part.

    Raises:
        subprocess.CalledProcessError: It failed; standard error says why.
    """
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.programs", str(folder)]
    command += [f"--dense={size}" for size in dense] + [f"--sparse={size}" for size in sparse]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        command, check=False, cwd=root, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()


def main() -> None:
    """Export the programs named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dense", metavar="BYTES", type=int, action="append", default=[])
    parser.add_argument("--sparse", metavar="BYTES", type=int, action="append", default=[])
    arguments = parser.parse_args()
    for size in arguments.dense:
        path = program_path(arguments.folder, size, sparse=False)
        _export(path, size // ROW, size // ROW)
    for size in arguments.sparse:
        path = program_path(arguments.folder, size, sparse=True)
        _export(path, SPARSE_ROWS, size // ROW)
        _widen(path, size // ROW)


def _export(path: Path, rows: int, wide_rows: int) -> None:
    """Export a table of `rows` rows and write its case, for a table of `wide_rows` rows."""
    import numpy as np
    import torch
    from executorch.exir import to_edge

    torch.manual_seed(0)
    table = torch.nn.Embedding(rows, COLUMNS, _weight=torch.empty(rows, COLUMNS).uniform_(-1, 1))
    index = torch.tensor([0, 1, wide_rows // 2, wide_rows - 1])
    with torch.no_grad():
        exported = torch.export.export(table.eval(), (torch.zeros_like(index),))
        with path.open("wb") as file:
            to_edge(exported).to_executorch().write_to_file(file)
        expected = torch.zeros(len(index), COLUMNS)
        inside = index < rows
        expected[inside] = table(index[inside])
        if rows < wide_rows:
            expected[-1] = table(torch.tensor([rows - 1]))[0]
    arrays: dict[str, Any] = {"inputs.0": index.numpy(), "outputs.0": expected.numpy()}
    np.savez(cases_of(path), **arrays)


def _widen(path: Path, rows: int) -> None:
    """Let a sparse program's table have `rows` rows, the last one as the last one is now."""
    data = bytearray(path.read_bytes())
    narrow, wide = SPARSE_ROWS * ROW, rows * ROW
    # The pairs are all that states the size: the table's sizes, its constant segment, the header.
    sizes = (struct.pack("<Iii", 2, SPARSE_ROWS, COLUMNS), struct.pack("<Iii", 2, rows, COLUMNS))
    segment = (struct.pack("<Q", narrow), struct.pack("<Q", wide))
    for (old, new), count in ((sizes, 1), (segment, 2)):
        if data.count(old) != count:
            raise SystemExit(f"{path}: found {data.count(old)} times {old.hex(' ')}, not {count}")
        data = data.replace(old, new)
    base = len(data) - narrow
    with path.open("wb") as file:
        file.write(data)
        file.truncate(base + wide)
        file.seek(base + wide - ROW)
        file.write(data[-ROW:])
        os.fsync(file.fileno())


if __name__ == "__main__":
    main()
