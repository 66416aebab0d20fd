"""The words of the harness: what a job, a way, a cell and a profile are.

Rules of this file: definitions alone, no content; sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

__all__ = [
    "BLOBS",
    "GIB",
    "KIB",
    "LOOPS",
    "MIB",
    "PROGRAMS",
    "BlobSource",
    "Cache",
    "Cell",
    "Folder",
    "Job",
    "Makes",
    "Profile",
    "ProgramSource",
    "Source",
    "Way",
]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

ProgramSource = Literal[
    "dense program",
    "sparse program",
    "filled program",
    "paged program",
    "dense bundle",
    "sparse bundle",
]
"""Sources that need an exported program."""

PROGRAMS: tuple[ProgramSource, ...] = get_args(ProgramSource)

BlobSource = Literal["sparse blobs", "alike blobs", "equal blobs"]

BLOBS: tuple[BlobSource, ...] = get_args(BlobSource)

Source = Literal[
    ProgramSource,
    BlobSource,
    "made program",
    "small program",
    "bundle of cases",
    "safetensors",
    "weights",
    "nothing",
]
"""What is on the disk before a run.

A program is exported by ExecuTorch: a "dense" one full of random numbers, a "sparse" one mostly
holes, a "filled" one a sparse one whose holes are filled with one MiB of random numbers again and
again, a "paged" one a dense one whose segments stand at multiples of 4096. A bundle holds one of
them: "dense" with one case, "sparse" a segmented one of 100 cases. A "made program" is as
`benchmarks.serializing.program` makes it, a "small program" one of 8 values, and a "bundle of
cases" a bundle of that. "safetensors" is a file whose tensors stand at multiples of 4096, "weights"
a `.ptd` file, and blobs are as `benchmarks.serializing.make_blobs` makes them."""

Folder = Literal["disk", "tmpfs", "xfs", "btrfs"]

LOOPS: tuple[Literal["xfs", "btrfs"], ...] = ("xfs", "btrfs")
"""Filesystems that the harness makes in a file, and where extents can be shared."""

Cache = Literal["warm", "cold"]

Makes = Literal["copy", "bundle", "program", "extracted", "rewritten", "weights", "nothing"]


@dataclass(frozen=True, slots=True)
class Way:
    """One way of doing a job.

    Attributes:
        name: Its name in results.
        entry: "module:function", imported in the process under test alone.
        makes: What the target is afterwards: a "copy" of the source, a "bundle" with the source as
            its program, a "program" that holds the source's blobs, the program "extracted" from
            the source, the source "rewritten" with the same segments, "weights" of the same names
            and bytes as the source's, or "nothing".
        options: Handed to the function.
        needs: Packages without which it is left out.
        only_on: Folders in which it makes sense.
        most: Largest source that it can take, in bytes.
        why_most: The reason.
        memory_factor: Memory that it needs, in sizes of the source.
        in_process: Whether its memory is that of the process under test.
    """

    name: str
    entry: str
    makes: Makes
    options: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    only_on: tuple[Folder, ...] = ("disk", "tmpfs", "xfs", "btrfs")
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
        source: What is there before.
        ways: Compared with each other. What they make has to be the same wherever they say what
            it is: by the target, or by the fact "made".
        floor: The way that ratios are taken to: what no other can do without, if there is such a
            way, else what is to be replaced.
        shared_floor: The same where extents can be shared; `floor` if empty.
        warms_up: Whether a process does a small task of the same kind first. Where it does not, the
            first call is measured, with all that it imports.
        counted: What a cell counts: values, tensors, blobs.
    """

    name: str
    what: str
    source: Source
    ways: tuple[Way, ...]
    floor: str
    shared_floor: str = ""
    warms_up: bool = True
    counted: str = ""

    def floor_on(self, folder: Folder) -> str:
        """Return the way that ratios are taken to in a folder."""
        return self.shared_floor if self.shared_floor and folder in LOOPS else self.floor


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison: a job under one set of conditions.

    Attributes:
        job: Name of the job.
        size: Size of the source's constant segment or of its blobs together, in bytes; 0 where
            the count is what matters.
        folder: "disk", "tmpfs", or a filesystem made for the run.
        measure: "time", or "memory", whose runs are slowed down by being watched.
        durability: "none": time to the last byte; "file": time until the bytes are on the disk.
        without: Names of ways to leave out.
        count: How many of what the job counts.
        cache: State of the source; None for what the whole run has, which is settled before
            anything is measured.
    """

    job: str
    size: int
    folder: Folder = "disk"
    measure: Literal["time", "memory"] = "time"
    durability: Literal["none", "file"] = "none"
    without: tuple[str, ...] = ()
    count: int = 0
    cache: Cache | None = None

    def wants(self, way: Way) -> bool:
        """Return whether a way of the job is to take part."""
        return (
            way.name not in self.without
            and self.folder in way.only_on
            and (self.measure == "time" or way.in_process)
        )


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
