"""Jobs whose cost is bytes: bundles, programs and weights on the disk, and opening them.

Rules of this file: tables only.
"""

from __future__ import annotations

from benchmarks.terms import GIB, LOOPS, Job, Way

__all__ = ["BUILDER_ENDS", "FILE_JOBS"]

BUILDER_ENDS = "the flatbuffers builder ends at 2 GiB"

_SYSTEM = "benchmarks.ways.with_system"
_CORDBUNDLE = "benchmarks.ways.with_cordbundle"
_EXECUTORCH = ("executorch", "torch")
_BARE = {"digest": False}
_CLONE = "cp, shared"

_COPIES = (
    Way("copyfile", f"{_SYSTEM}:copyfile", "copy"),
    Way("cp", f"{_SYSTEM}:cp", "copy", {"reflink": "never"}, in_process=False),
    Way(
        _CLONE,
        f"{_SYSTEM}:cp",
        "copy",
        {"reflink": "always"},
        only_on=LOOPS,
        in_process=False,
    ),
)

BUNDLE = Job(
    "bundle",
    "Bundle a program on disk with one test case, into a new file.",
    "dense program",
    (
        *_COPIES,
        Way("cat", f"{_CORDBUNDLE}:cat", "bundle", in_process=False),
        Way(
            "read, join, write",
            "benchmarks.ways.naively:join",
            "bundle",
            needs=("flatbuffers",),
            memory_factor=3,
        ),
        Way(
            "flatbuffers builder",
            "benchmarks.ways.naively:build",
            "bundle",
            needs=("flatbuffers",),
            most=2 * GIB - 1,
            why_most=BUILDER_ENDS,
            memory_factor=6,
        ),
        Way("write alone", f"{_SYSTEM}:write_alone", "nothing", only_on=("disk", "tmpfs")),
        Way("cordbundle, no digest", f"{_CORDBUNDLE}:bundle", "bundle", _BARE),
        Way("cordbundle", f"{_CORDBUNDLE}:bundle", "bundle", {"digest": True}),
        Way(
            "executorch",
            "benchmarks.ways.with_executorch:bundle",
            "bundle",
            needs=_EXECUTORCH,
            most=2 * GIB - 1,
            why_most=BUILDER_ENDS,
            memory_factor=6,
        ),
    ),
    floor="copyfile",
    shared_floor=_CLONE,
)

BUNDLE_LARGE = Job(
    "bundle large",
    "Bundle a program full of the same MiB again and again with one test case, into a new file "
    "(in segmented form from 4 GiB).",
    "filled program",
    (
        *_COPIES,
        Way(
            "cordbundle, no digest",
            f"{_CORDBUNDLE}:bundle",
            "bundle",
            {"digest": False, "form": "segmented"},
        ),
    ),
    floor="copyfile",
    shared_floor=_CLONE,
)

EXTRACT = Job(
    "extract",
    "Get the program out of a bundle, into a new file, as `cordbundle extract --program` does.",
    "dense bundle",
    (
        *_COPIES,
        Way("tail, head", f"{_CORDBUNDLE}:cut", "extracted", in_process=False),
        Way("cordbundle", f"{_CORDBUNDLE}:extract", "extracted"),
        Way(
            "executorch",
            "benchmarks.ways.with_executorch:extract",
            "extracted",
            needs=_EXECUTORCH,
            memory_factor=28,  # measured: 26 times the size
        ),
    ),
    floor="copyfile",
    shared_floor=_CLONE,
)

REWRITE = Job(
    "rewrite pte",
    "Move the segments of a program from multiples of 4 KiB to multiples of 64 KiB, into a new "
    "file.",
    "paged program",
    (*_COPIES, Way("cordbundle", f"{_CORDBUNDLE}:realign", "rewritten")),
    floor="copyfile",
    shared_floor=_CLONE,
)

FROM_SAFETENSORS = Job(
    "safetensors to ptd",
    "Make a .ptd file of a safetensors file whose tensors stand at multiples of 4096; "
    "`save_file` writes them as safetensors again, the nearest that is naive.",
    "safetensors",
    (
        *_COPIES,
        Way(
            "save_file",
            "benchmarks.ways.with_safetensors:save_again",
            "weights",
            needs=("safetensors",),
            memory_factor=3,
        ),
        Way("cordbundle", f"{_CORDBUNDLE}:from_safetensors", "weights"),
        Way(
            "cordbundle, pages",
            f"{_CORDBUNDLE}:from_safetensors",
            "weights",
            {"segment_alignment": 4096},
        ),
    ),
    floor="copyfile",
    shared_floor=_CLONE,
    counted="tensors",
)

VERIFY = Job(
    "verify",
    "Open a bundle with digests and verify it; or read it with `pread` by the MiB into one buffer "
    "and compute one xxh3-128.",
    "dense bundle",
    (
        Way("xxh3-128", "benchmarks.ways.with_xxhash:digest", "nothing"),
        Way("cordbundle", f"{_CORDBUNDLE}:verify", "nothing"),
    ),
    floor="xxh3-128",
)

OPEN = Job(
    "open",
    "Open a bundle of 100 test cases and list them; the first call after the import.",
    "sparse bundle",
    (
        Way("read 64 KiB", f"{_SYSTEM}:read_start", "nothing"),
        Way("cordbundle", "benchmarks.ways.with_cases:listing", "nothing"),
    ),
    floor="read 64 KiB",
    warms_up=False,
)

INSPECT = Job(
    "inspect",
    "`cordbundle inspect` on a bundle of 100 test cases, as a process; or a process of Python that "
    "does nothing.",
    "sparse bundle",
    (
        Way("python", f"{_SYSTEM}:python", "nothing", in_process=False),
        Way(
            "cordbundle",
            f"{_SYSTEM}:inspect",
            "nothing",
            needs=("rich", "typer"),
            in_process=False,
        ),
    ),
    floor="python",
    warms_up=False,
)

IMPORT = Job(
    "import",
    "`import cordbundle` in a new process, as that process measures it; or one of `json` and "
    "`dataclasses`.",
    "nothing",
    (
        Way(
            "json, dataclasses",
            f"{_SYSTEM}:importing",
            "nothing",
            {"names": "json, dataclasses"},
            in_process=False,
        ),
        Way(
            "cordbundle",
            f"{_SYSTEM}:importing",
            "nothing",
            {"names": "cordbundle"},
            in_process=False,
        ),
    ),
    floor="json, dataclasses",
    warms_up=False,
)


def _chunks(name: str, size: int) -> Job:
    """Return the job of writing chunks of one size to a new file."""
    options = {"size": size}
    return Job(
        f"chunks of {name}",
        f"Write chunks of {name} that are in memory to a new file; the Cord is made before, or "
        "within the time.",
        "nothing",
        (
            Way("join", "benchmarks.ways.with_chunks:join", "nothing", options),
            Way("writev", "benchmarks.ways.with_chunks:writev", "nothing", options),
            Way("buffered", "benchmarks.ways.with_chunks:buffered", "nothing", options),
            Way("cordbundle", f"{_CORDBUNDLE}:write_chunks", "nothing", options),
            Way(
                "cordbundle, with appending",
                f"{_CORDBUNDLE}:write_chunks",
                "nothing",
                options | {"append": True},
            ),
        ),
        floor="join",
        counted="chunks",
    )


FILE_JOBS = (
    BUNDLE,
    BUNDLE_LARGE,
    EXTRACT,
    REWRITE,
    FROM_SAFETENSORS,
    VERIFY,
    OPEN,
    INSPECT,
    IMPORT,
    _chunks("64 B", 64),
    _chunks("4 KiB", 4 << 10),
    _chunks("1 MiB", 1 << 20),
)
