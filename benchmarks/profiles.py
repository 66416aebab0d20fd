"""Sets of cells that are measured together.

Rules of this file: tables only.
"""

from __future__ import annotations

from benchmarks.terms import GIB, LOOPS, MIB, Cell, Folder, Profile

__all__ = ["PROFILES"]

_WITHOUT_EXECUTORCH = ("executorch",)
_WITHOUT_ENCODING = (*_WITHOUT_EXECUTORCH, "flatbuffers builder", "read, join, write")
_COPIES = ("copyfile", "cp")
_FOLDERS: tuple[Folder, ...] = ("disk", "tmpfs", *LOOPS)
_WITH_ITS_CLASSES = ("cordbundle", "executorch")  # of ExecuTorch
_DECADES = (10, 100, 1_000, 10_000, 100_000)

PROFILES = {
    "quick": Profile(
        "small sizes, in less than three minutes",
        (
            Cell("bundle", 16 * MIB),
            Cell("bundle", 16 * MIB, "tmpfs", without=_WITHOUT_ENCODING),
            Cell("bundle", 16 * MIB, measure="memory", without=_WITHOUT_ENCODING),
            Cell("open", 64 * MIB),
            Cell("serialize", 0, count=500, without=("cordbundle, own classes",)),
            Cell("write ptd", 0, count=100),
            Cell("deduplicate equal files", 16 * MIB, count=2, without=_WITHOUT_EXECUTORCH),
            Cell("constants", 16 * MIB, measure="memory", count=4, without=_WITHOUT_EXECUTORCH),
            Cell("delegate inline", 16 * MIB, count=1, without=_WITHOUT_EXECUTORCH),
            Cell("bundle", 16 * MIB, "xfs", without=("copyfile", "cat", *_WITHOUT_ENCODING)),
            Cell("bundle large", 64 * MIB, "btrfs"),
            Cell("extract", 16 * MIB, without=("cp", *_WITHOUT_EXECUTORCH)),
            Cell("rewrite pte", 16 * MIB),
            Cell("safetensors to ptd", 16 * MIB, count=4, without=("cp",)),
            Cell("verify", 16 * MIB, cache="cold"),
            Cell("decode", 0, count=500, without=_WITH_ITS_CLASSES),
            Cell("write cases", 0, count=50, without=("executorch", "cordbundle, drop-in")),
            Cell("list cases", 0, count=50, without=_WITHOUT_EXECUTORCH),
            Cell("chunks of 4 KiB", 0, count=500),
            Cell("inspect", 64 * MIB),
            Cell("import", 0),
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
            Cell("open", 5 * GIB),
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
    "limit": Profile(
        "all that has a target: what issue 5 asks for",
        (
            Cell("bundle", 512 * MIB),
            Cell("bundle", 512 * MIB, "tmpfs", without=_WITHOUT_ENCODING),
            Cell("bundle", 512 * MIB, "xfs", without=_WITHOUT_ENCODING),
            Cell("bundle", 512 * MIB, "btrfs", without=_WITHOUT_ENCODING),
            *(Cell("bundle large", 8 * GIB, kind, without=_COPIES) for kind in LOOPS),
            *(
                Cell(job, 512 * MIB, kind, without=(*_COPIES, *others), count=count)
                for kind in LOOPS
                for job, count, others in (
                    ("extract", 0, ("tail, head", *_WITHOUT_EXECUTORCH)),
                    ("rewrite pte", 0, ()),
                    ("safetensors to ptd", 16, ("save_file",)),
                )
            ),
            Cell("extract", 16 * MIB),
            Cell("extract", 512 * MIB, without=("tail, head", *_WITHOUT_EXECUTORCH)),
            Cell("safetensors to ptd", 512 * MIB, count=16),
            Cell("bundle", 512 * MIB, cache="cold", without=_WITHOUT_ENCODING),
            Cell("bundle", 512 * MIB, durability="file", without=_WITHOUT_ENCODING),
            Cell("bundle", 512 * MIB, measure="memory", without=_WITHOUT_ENCODING),
            Cell("verify", 512 * MIB),
            Cell("verify", 512 * MIB, "tmpfs"),
            Cell("verify", 512 * MIB, cache="cold"),
            Cell("open", 5 * GIB),
            Cell("inspect", 5 * GIB),
            Cell("import", 0),
            Cell("serialize", 0, count=50_000, without=("cordbundle, own classes",)),
            Cell("decode", 0, count=50_000),
            Cell("write cases", 0, count=10_000),
            Cell("list cases", 0, count=10_000),
            Cell("chunks of 64 B", 0, count=200_000),
            Cell("chunks of 4 KiB", 0, count=16_384),
            Cell("chunks of 1 MiB", 0, count=1_000),
        ),
    ),
    "scale": Profile(
        "sizes and counts over some decades, for the plots",
        (
            *(
                Cell("bundle", size * MIB, folder, without=_WITHOUT_ENCODING)
                for folder in _FOLDERS
                for size in (1, 8, 64, 512)
            ),
            *(
                Cell("bundle", size * MIB, measure="memory", without=_WITHOUT_ENCODING)
                for size in (1, 8, 64, 512)
            ),
            *(
                Cell(job, 0, count=count, without=without)
                for job, without in (
                    ("serialize", _WITH_ITS_CLASSES),
                    ("decode", _WITH_ITS_CLASSES),
                    ("write cases", ("executorch", "cordbundle, drop-in")),
                    ("list cases", _WITHOUT_EXECUTORCH),
                    ("write ptd", _WITH_ITS_CLASSES),
                )
                for count in _DECADES
            ),
        ),
    ),
}
