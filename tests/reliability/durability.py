"""What each level of durability costs: `python -m tests.reliability.durability --folder FOLDER`."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import get_args

from cordbundle.cord import Cord
from cordbundle.writer import Durability, write

__all__: list[str] = []

SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}


def main() -> None:
    """Print the median time of a write in milliseconds, by size and level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to write; a temporary folder by default")
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    levels: tuple[Durability, ...] = get_args(Durability)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print("ms      ", *(f"{level:>8}" for level in levels))
        for name, size in SIZES.items():
            cord = Cord(os.urandom(size))
            times: dict[Durability, list[float]] = {level: [] for level in levels}
            for _ in range(options.runs):
                for level in levels:  # in turn, so that all meet the same state of the disk
                    os.sync()
                    start = perf_counter()
                    write(cord, Path(folder, "out"), durability=level)
                    times[level].append(perf_counter() - start)
            medians = (statistics.median(times[level]) * 1000 for level in levels)
            print(f"{name:8}", *(f"{median:8.2f}" for median in medians))


if __name__ == "__main__":
    main()
