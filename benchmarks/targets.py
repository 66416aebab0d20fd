"""What is to be reached, and whether it was.

Rules of this file: a target names a cell by its conditions and one number of its summary; a run
that misses one is no broken run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.results import REFERENCE, Cell
from benchmarks.terms import GIB, KIB, LOOPS, MIB

__all__ = ["TARGETS", "Target", "outcomes"]

FLOOR = "ratio_to_floor.median"
BEST = "ratio_to_best.median"
TIMES_REFERENCE = f"ratio_to_{REFERENCE}.median"


@dataclass(frozen=True, slots=True)
class Target:
    """A limit for one number.

    Attributes:
        job: Name of the job.
        size: Size of its source in bytes.
        filesystem: Type of its folder's filesystem; None for any.
        measure: "time" or "memory".
        way: Name of the way.
        value: Path of the number in the way's summary.
        at_most: The limit.
        unit: "", "s" or "bytes".
        count: How many values, tensors or blobs the source holds; 0 if that is not counted.
    """

    job: str
    size: int
    filesystem: str | None
    measure: str
    way: str
    value: str
    at_most: float
    unit: str = ""
    count: int = 0


_BARE = "cordbundle, no digest"
_MEMORY = "peak.anonymous.most"

TARGETS = (
    Target("bundle", 512 * MIB, "ext4", "time", _BARE, FLOOR, 0.4),
    Target("bundle", 512 * MIB, "ext4", "time", "cordbundle", FLOOR, 0.55),
    Target("bundle", 512 * MIB, "tmpfs", "time", _BARE, FLOOR, 1.05),
    Target("bundle", 512 * MIB, "tmpfs", "time", "cordbundle", FLOOR, 1.2),
    Target("bundle", 512 * MIB, "ext4", "time", _BARE, TIMES_REFERENCE, 1 / 20),
    Target("bundle", 512 * MIB, "ext4", "time", "cordbundle", TIMES_REFERENCE, 1 / 20),
    Target("bundle", 512 * MIB, "tmpfs", "time", _BARE, TIMES_REFERENCE, 1 / 20),
    Target("bundle", 512 * MIB, "tmpfs", "time", "cordbundle", TIMES_REFERENCE, 1 / 20),
    # Where extents are shared: under 20 ms, and under 1 % of the source written.
    *(
        Target(job, size, kind, "time", way, value, at_most, unit, count)
        for kind in LOOPS
        for job, size, way, count in (
            ("bundle", 512 * MIB, _BARE, 0),
            ("bundle large", 8 * GIB, _BARE, 0),
            ("extract", 512 * MIB, "cordbundle", 0),
            ("rewrite pte", 512 * MIB, "cordbundle", 0),
            ("safetensors to ptd", 512 * MIB, "cordbundle, pages", 16),
        )
        for value, at_most, unit in (("seconds.median", 0.020, "s"), ("device_share", 0.01, ""))
    ),
    *(
        Target("bundle", size, None, "memory", way, _MEMORY, 16 * MIB, "bytes")
        for size in (64 * MIB, 512 * MIB, 3 * GIB)
        for way in (_BARE, "cordbundle")
    ),
    Target("open", 5 * GIB, None, "time", "cordbundle", "seconds.median", 0.005, "s"),
    Target("open", 5 * GIB, None, "time", "cordbundle", "io.rchar", 256 * KIB, "bytes"),
    Target("inspect", 5 * GIB, None, "time", "cordbundle", "seconds.median", 0.3, "s"),
    Target("import", 0, None, "time", "cordbundle", "seconds.median", 0.060, "s"),
    Target("verify", 512 * MIB, "ext4", "time", "cordbundle", FLOOR, 1 / 0.8),
    Target("verify", 512 * MIB, "tmpfs", "time", "cordbundle", FLOOR, 1 / 0.8),
    *(
        Target(f"chunks of {name}", 0, None, "time", "cordbundle", BEST, 1.2, count=count)
        for name, count in (("64 B", 200_000), ("4 KiB", 16_384), ("1 MiB", 1_000))
    ),
    *(
        Target(job, 0, None, "time", way, TIMES_REFERENCE, 1 / 15, count=count)
        for job, way, count in (
            ("serialize", "cordbundle", 50_000),
            ("decode", "cordbundle", 50_000),
            ("decode", "cordbundle, own classes", 50_000),
            ("write cases", "cordbundle", 10_000),
            ("write cases", "cordbundle, drop-in", 10_000),
            ("write ptd", "cordbundle", 5_000),
            ("read ptd", "cordbundle", 5_000),
            ("read ptd", "cordbundle, load_ptd", 5_000),
        )
    ),
    # The first 64 bytes of each of 64 blobs, no more.
    Target("deduplicate distinct", 2 * GIB, None, "time", "cordbundle", "io.rchar", 4 * KIB,
           "bytes", 64),
    *(
        Target(f"deduplicate {name}", 512 * MIB, None, "time", "cordbundle", FLOOR, 1 / 5, count=2)
        for name in ("alike", "equal", "alike files", "equal files")
    ),
    Target("constants", 2 * GIB, None, "memory", "cordbundle", _MEMORY, 16 * MIB, "bytes", 8),
    *(
        Target(f"delegate {name}", 512 * MIB, None, measure, "cordbundle", value, at_most, unit, 1)
        for name in ("moved", "inline")
        for measure, value, at_most, unit in (
            ("time", "seconds.median", 0.010, "s"),
            ("memory", _MEMORY, 16 * MIB, "bytes"),
        )
    ),
)  # fmt: skip


def outcomes(cells: list[Cell]) -> Iterator[tuple[Target, Cell, float]]:
    """Yield every target with the cells it speaks of and the number that was found there."""
    for target in TARGETS:
        for cell in cells:
            if (
                (cell["job"], cell["size"], cell["measure"], cell["durability"], cell["cache"])
                == (target.job, target.size, target.measure, "none", "warm")
                and cell["count"] == target.count
                and target.filesystem in (None, cell["filesystem"])
                and target.way in cell["summary"]
            ):
                found: Any = cell["summary"][target.way]
                for name in target.value.split("."):
                    found = None if found is None else found[name]
                if found is not None:
                    yield target, cell, found
