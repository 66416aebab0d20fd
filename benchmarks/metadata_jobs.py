"""Jobs whose cost is objects: programs, named tensors, test cases, blobs that may be equal.

Rules of this file: tables only.
"""

from __future__ import annotations

from typing import Literal

from benchmarks.file_jobs import BUILDER_ENDS
from benchmarks.terms import GIB, Job, Source, Way

__all__ = ["METADATA_JOBS"]

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
            "cordbundle, own classes",
            "benchmarks.ways.serialize_cordbundle:serialize",
            "nothing",
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

DECODE = Job(
    "decode",
    "Decode a program that is in a file into objects: the drop-in and ExecuTorch "
    "(`deserialize_pte_binary`) from memory into ExecuTorch's classes, `open().program()` from its "
    "path into cordbundle's.",
    "made program",
    (
        Way(
            "cordbundle",
            "benchmarks.ways.serialize_dropins:decode",
            "nothing",
            needs=_EXECUTORCH,
        ),
        Way(
            "cordbundle, own classes",
            "benchmarks.ways.serialize_cordbundle:decode",
            "nothing",
        ),
        Way(
            "executorch",
            "benchmarks.ways.serialize_executorch:decode",
            "nothing",
            needs=_EXECUTORCH,
        ),
    ),
    floor="executorch",
    counted="values",
)

WRITE_CASES = Job(
    "write cases",
    "Bundle a program of 8 values with test cases of one small tensor each way, into a new file: "
    "`cordbundle.bundle` from NumPy arrays, the drop-in and ExecuTorch from PyTorch's tensors.",
    "small program",
    (
        Way("cordbundle", "benchmarks.ways.with_cases:bundle", "bundle"),
        Way(
            "cordbundle, drop-in",
            "benchmarks.ways.with_cases_executorch:dropin",
            "bundle",
            needs=_EXECUTORCH,
        ),
        Way(
            "executorch",
            "benchmarks.ways.with_cases_executorch:bundle",
            "bundle",
            needs=_EXECUTORCH,
        ),
    ),
    floor="executorch",
    counted="cases",
)

LIST_CASES = Job(
    "list cases",
    "List the scalar type and sizes of every tensor of a bundle: `cordbundle.open` from its path, "
    "ExecuTorch from memory after decoding all.",
    "bundle of cases",
    (
        Way("cordbundle", "benchmarks.ways.with_cases:listing", "nothing"),
        Way(
            "executorch",
            "benchmarks.ways.with_cases_executorch:listing",
            "nothing",
            needs=_EXECUTORCH,
        ),
    ),
    floor="executorch",
    counted="cases",
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
                why_most=BUILDER_ENDS,
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

METADATA_JOBS = (
    SERIALIZE,
    DECODE,
    WRITE_CASES,
    LIST_CASES,
    WRITE_PTD,
    READ_PTD,
    *_DEDUPLICATE,
    CONSTANTS,
    *_DELEGATE,
)
