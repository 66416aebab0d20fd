"""What is measured: jobs, the ways of doing each, and the cells of a profile.

Rules of this file: tables only. A new job is a `Job` with its ways and a line in a profile; nothing
else has to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["GIB", "JOBS", "KIB", "MIB", "PROFILES", "Cell", "Job", "Profile", "Source", "Way"]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

Source = Literal[
    "dense program",
    "sparse program",
    "sparse bundle",
    "weights",
    "sparse blobs",
    "alike blobs",
    "equal blobs",
    "nothing",
]
"""What is on the disk before a run; a "sparse bundle" is a segmented one of a sparse program,
"weights" a `.ptd` file, and blobs are as `benchmarks.serializing.make_blobs` makes them."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way of doing a job.

    Attributes:
        name: Its name in results.
        entry: "module:function", imported in the process under test alone.
        makes: What the target is afterwards: a "copy" of the source, a "bundle" with the source as
            its program, a "program" that holds the source's blobs, or "nothing".
        options: Handed to the function.
        needs: Packages without which it is left out.
        most: Largest source that it can take, in bytes.
        why_most: The reason.
        memory_factor: Memory that it needs, in sizes of the source.
        in_process: Whether its memory is that of the process under test.
    """

    name: str
    entry: str
    makes: Literal["copy", "bundle", "program", "nothing"]
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
        source: What is there before.
        ways: Compared with each other. What they make has to be the same wherever they say what
            it is: by the target, or by the fact "made".
        floor: The way that ratios are taken to: what no other can do without, if there is such a
            way, else what is to be replaced.
        warms_up: Whether a process does a small task of the same kind first. Where it does not, the
            first call is measured, with all that it imports.
        counted: What a cell counts: values, tensors, blobs.
    """

    name: str
    what: str
    source: Source
    ways: tuple[Way, ...]
    floor: str
    warms_up: bool = True
    counted: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison: a job under one set of conditions.

    Attributes:
        job: Name of the job.
        size: Size of the source's constant segment or of its blobs together, in bytes; 0 where
            the count is what matters.
        folder: "disk" or "tmpfs".
        measure: "time", or "memory", whose runs are slowed down by being watched.
        durability: "none": time to the last byte; "file": time until the bytes are on the disk.
        without: Names of ways to leave out.
        count: How many of what the job counts.
    """

    job: str
    size: int
    folder: Literal["disk", "tmpfs"] = "disk"
    measure: Literal["time", "memory"] = "time"
    durability: Literal["none", "file"] = "none"
    without: tuple[str, ...] = ()
    count: int = 0


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

_EXECUTORCH = ("executorch", "torch")

SERIALIZE = Job(
    "serialize",
    "Serialize a program made of ExecuTorch's own classes, with two instructions for five values.",
    "nothing",
    (
        Way(
            "cordbundle",
            "benchmarks.ways.serialize_dropins:serialize",
            "nothing",
            needs=_EXECUTORCH,
        ),
        Way(
            "executorch",
            "benchmarks.ways.serialize_executorch:serialize",
            "nothing",
            needs=_EXECUTORCH,
        ),
    ),
    floor="executorch",
    counted="values",
)

WRITE_PTD = Job(
    "write ptd",
    "Serialize named tensors of about 1 KiB each as a .ptd file: the drop-in and ExecuTorch from "
    "bytes, `serialize_ptd` from arrays, which it describes and looks for equal ones among.",
    "nothing",
    (
        Way(
            "cordbundle",
            "benchmarks.ways.serialize_dropins:write_weights",
            "nothing",
            needs=_EXECUTORCH,
        ),
        Way(
            "cordbundle, serialize_ptd",
            "benchmarks.ways.serialize_cordbundle:write_weights",
            "nothing",
        ),
        Way(
            "executorch",
            "benchmarks.ways.serialize_executorch:write_weights",
            "nothing",
            needs=_EXECUTORCH,
        ),
    ),
    floor="executorch",
    counted="tensors",
)

READ_PTD = Job(
    "read ptd",
    "Read a .ptd file: the drop-in and ExecuTorch from memory, `load_ptd` from its path into a "
    "dict of views. ExecuTorch copies every blob; the drop-in does so when one is asked for, in "
    "the second row for all of them.",
    "weights",
    (
        Way(
            "cordbundle",
            "benchmarks.ways.serialize_dropins:read_weights",
            "nothing",
            needs=_EXECUTORCH,
        ),
        Way(
            "cordbundle, all blobs",
            "benchmarks.ways.serialize_dropins:read_weights",
            "nothing",
            {"cut": True},
            needs=_EXECUTORCH,
        ),
        Way("cordbundle, load_ptd", "benchmarks.ways.serialize_cordbundle:load", "nothing"),
        Way(
            "executorch",
            "benchmarks.ways.serialize_executorch:read_weights",
            "nothing",
            needs=_EXECUTORCH,
        ),
    ),
    floor="executorch",
    counted="tensors",
)


def _deduplicate(name: str, what: str, source: Source, held: Literal["file", "memory"]) -> Job:
    """Return the job of finding equal blobs."""
    options = {"held": held}
    factor = 1.5 if held == "memory" else 0
    return Job(
        f"deduplicate {name}",
        f"Add blobs {what} to a store that keeps equal ones once; or SHA-256 of all.",
        source,
        (
            Way(
                "sha256",
                "benchmarks.ways.deduplicate_sha256:deduplicate",
                "nothing",
                options,
                memory_factor=factor,
            ),
            Way(
                "cordbundle",
                "benchmarks.ways.serialize_cordbundle:deduplicate",
                "nothing",
                options,
                memory_factor=factor,
            ),
            Way(
                "executorch",
                "benchmarks.ways.serialize_executorch:deduplicate",
                "nothing",
                options,
                needs=_EXECUTORCH,
                memory_factor=factor,
            ),
        ),
        floor="sha256",
        counted="blobs",
    )


_DEDUPLICATE = (
    _deduplicate(
        "distinct", "in files of one size whose first bytes differ", "sparse blobs", "file"
    ),
    _deduplicate(
        "alike", "in memory that differ in their last bytes alone", "alike blobs", "memory"
    ),
    _deduplicate("equal", "in memory that are equal", "equal blobs", "memory"),
    _deduplicate(
        "alike files", "in files that differ in their last bytes alone", "alike blobs", "file"
    ),
    _deduplicate("equal files", "in files that are equal", "equal blobs", "file"),
)

CONSTANTS = Job(
    "constants",
    "Write a program to a file; its constants are given as mapped files (ExecuTorch takes bytes "
    "alone).",
    "sparse blobs",
    (
        Way("cordbundle", "benchmarks.ways.serialize_cordbundle:write_constants", "program"),
        Way(
            "executorch",
            "benchmarks.ways.serialize_executorch:write_constants",
            "program",
            needs=_EXECUTORCH,
            memory_factor=2,
        ),
    ),
    floor="executorch",
    counted="constants",
)


def _delegate(name: str, what: str, *, extract: bool, memory_factor: float) -> Job:
    """Return the job of serializing a program with a large delegate."""
    options = {"extract": extract}
    return Job(
        f"delegate {name}",
        f"Serialize a program whose delegate payload {what}, before a byte is written; it is given "
        "as a mapped file (ExecuTorch takes bytes alone).",
        "sparse blobs",
        (
            Way("cordbundle", "benchmarks.ways.serialize_cordbundle:delegate", "nothing", options),
            Way(
                "executorch",
                "benchmarks.ways.serialize_executorch:delegate",
                "nothing",
                options,
                needs=_EXECUTORCH,
                most=2 * GIB - 1,
                why_most="the flatbuffers builder ends at 2 GiB",
                memory_factor=memory_factor,
            ),
        ),
        floor="executorch",
        counted="delegate",
    )


_DELEGATE = (
    _delegate("moved", "becomes a segment", extract=True, memory_factor=2),
    _delegate("inline", "stays inline", extract=False, memory_factor=7),
)

JOBS = {
    job.name: job
    for job in (
        BUNDLE,
        OPEN,
        SERIALIZE,
        WRITE_PTD,
        READ_PTD,
        *_DEDUPLICATE,
        CONSTANTS,
        *_DELEGATE,
    )
}

_WITHOUT_EXECUTORCH = ("executorch",)

PROFILES = {
    "quick": Profile(
        "small sizes, in less than three minutes",
        (
            Cell("bundle", 16 * MIB),
            Cell("bundle", 16 * MIB, "tmpfs", without=_WITHOUT_EXECUTORCH),
            Cell("bundle", 16 * MIB, measure="memory", without=_WITHOUT_EXECUTORCH),
            Cell("open", 64 * MIB),
            Cell("serialize", 0, count=500),
            Cell("write ptd", 0, count=100),
            Cell("deduplicate equal files", 16 * MIB, count=2, without=_WITHOUT_EXECUTORCH),
            Cell("constants", 16 * MIB, measure="memory", count=4, without=_WITHOUT_EXECUTORCH),
            Cell("delegate inline", 16 * MIB, count=1, without=_WITHOUT_EXECUTORCH),
        ),
        rounds=3,
    ),
    "issue": Profile(
        "all sizes of bundles for which there are targets",
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
    "serialize": Profile(
        "programs, weights, equal blobs: all that has a target but for bundles",
        (
            Cell("serialize", 0, count=50_000),
            Cell("write ptd", 0, count=5_000),
            Cell("read ptd", 0, count=5_000),
            Cell("deduplicate distinct", 2 * GIB, count=64),
            Cell("deduplicate alike", 512 * MIB, count=2),
            Cell("deduplicate equal", 512 * MIB, count=2),
            Cell("deduplicate alike files", 512 * MIB, count=2),
            Cell("deduplicate equal files", 512 * MIB, count=2),
            Cell("constants", 2 * GIB, measure="memory", count=8),
            Cell("delegate moved", 512 * MIB, count=1),
            Cell("delegate inline", 512 * MIB, count=1),
            Cell("delegate moved", 512 * MIB, measure="memory", count=1),
            Cell("delegate inline", 512 * MIB, measure="memory", count=1),
        ),
    ),
}
