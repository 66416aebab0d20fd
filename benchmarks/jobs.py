"""What is measured: jobs, the ways of doing each, and the cells of a profile.

Rules of this file: tables only. A new job is a `Job` with its ways and a line in a profile; nothing
else has to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["GIB", "JOBS", "KIB", "MIB", "PROFILES", "Cell", "Job", "Profile", "Way"]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Way:
    """One way of doing a job.

    Attributes:
        name: Its name in results.
        entry: "module:function", imported in the process under test alone.
        makes: What the target is afterwards: a "copy" of the source, a "bundle" with the source as
            its program, or "nothing".
        options: Handed to the function.
        needs: Packages without which it is left out.
        most: Largest source that it can take, in bytes.
        why_most: The reason.
        memory_factor: Memory that it needs, in sizes of the source.
        in_process: Whether its memory is that of the process under test.
    """

    name: str
    entry: str
    makes: Literal["copy", "bundle", "nothing"]
    options: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    most: int | None = None
    why_most: str = ""
    memory_factor: float = 0
    in_process: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """Something that users do, and the ways of doing it.

    Attributes:
        name: Its name in results.
        what: A sentence for the report.
        source: "dense program", "sparse program", or "sparse bundle" (a segmented bundle of one).
        ways: Compared with each other.
        floor: The way that ratios are taken to: what no other can do without.
        warms_up: Whether a process does a small task of the same kind first. Where it does not, the
            first call is measured, with all that it imports.
    """

    name: str
    what: str
    source: Literal["dense program", "sparse program", "sparse bundle"]
    ways: tuple[Way, ...]
    floor: str
    warms_up: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison: a job under one set of conditions.

    Attributes:
        job: Name of the job.
        size: Size of the source's constant segment, in bytes.
        folder: "disk" or "tmpfs".
        measure: "time", or "memory", whose runs are slowed down by being watched.
        durability: "none": time to the last byte; "file": time until the bytes are on the disk.
        without: Names of ways to leave out.
    """

    job: str
    size: int
    folder: Literal["disk", "tmpfs"] = "disk"
    measure: Literal["time", "memory"] = "time"
    durability: Literal["none", "file"] = "none"
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """A set of cells.

    Attributes:
        what: A sentence for the help text.
        cells: In the order in which they are measured.
        rounds: Measured runs of each way in each cell.
    """

    what: str
    cells: tuple[Cell, ...]
    rounds: int = 7


BUNDLE = Job(
    "bundle",
    "Bundle a program on disk with one test case, into a new file.",
    "dense program",
    (
        Way("copyfile", "benchmarks.ways.with_system:copyfile", "copy"),
        Way(
            "cp",
            "benchmarks.ways.with_system:cp",
            "copy",
            {"reflink": "never"},
            in_process=False,
        ),
        Way(
            "cordbundle, no digest",
            "benchmarks.ways.with_cordbundle:bundle",
            "bundle",
            {"digest": False},
        ),
        Way(
            "cordbundle",
            "benchmarks.ways.with_cordbundle:bundle",
            "bundle",
            {"digest": True},
        ),
        Way(
            "executorch",
            "benchmarks.ways.with_executorch:bundle",
            "bundle",
            needs=("executorch", "torch"),
            most=2 * GIB - 1,
            why_most="the flatbuffers builder ends at 2 GiB",
            memory_factor=6,
        ),
    ),
    floor="copyfile",
)

OPEN = Job(
    "open",
    "Open a bundle of 100 test cases and list them; the first call after the import.",
    "sparse bundle",
    (
        Way("read 64 KiB", "benchmarks.ways.with_system:read_start", "nothing"),
        Way("cordbundle", "benchmarks.ways.with_cordbundle:open_and_list", "nothing"),
    ),
    floor="read 64 KiB",
    warms_up=False,
)

JOBS = {job.name: job for job in (BUNDLE, OPEN)}

_WITHOUT_EXECUTORCH = ("executorch",)

PROFILES = {
    "quick": Profile(
        "small sizes, in less than three minutes",
        (
            Cell("bundle", 16 * MIB),
            Cell("bundle", 16 * MIB, "tmpfs", without=_WITHOUT_EXECUTORCH),
            Cell("bundle", 16 * MIB, measure="memory", without=_WITHOUT_EXECUTORCH),
            Cell("open", 64 * MIB),
        ),
    ),
    "issue": Profile(
        "all sizes for which there are targets",
        (
            Cell("bundle", 64 * MIB),
            Cell("bundle", 512 * MIB),
            Cell("bundle", 3 * GIB),
            Cell("bundle", 64 * MIB, "tmpfs"),
            Cell("bundle", 512 * MIB, "tmpfs"),
            Cell("bundle", 3 * GIB, "tmpfs"),
            Cell("bundle", 512 * MIB, durability="file"),
            Cell("bundle", 64 * MIB, measure="memory"),
            Cell("bundle", 512 * MIB, measure="memory"),
            Cell("bundle", 3 * GIB, measure="memory"),
            Cell("open", 4 * GIB),
        ),
    ),
}
