"""A small output that needs every kind of chunk and every kind of system call."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

import cordbundle as cb
from cordbundle.chunks import FileRange, Fill
from cordbundle.cord import Cord, Digest
from cordbundle.transfer import SMALL
from tests.support import program, suite, tensor

__all__ = ["kinds", "sample_bundle"]


def sample_bundle(folder: Path) -> Cord:
    """Return a bundle of 21 KiB, made of files in `folder`, and 8 KiB behind it.

    Memory, small pieces that are joined, a hole, smaller padding, a small and a large range of a
    file, a tensor that is gathered when it is written, and digests in front of what they cover; and
    a range that stands where a filesystem could share its blocks.
    """
    (folder / "model.pte").write_bytes(program([tensor([1200])]))
    (folder / "blob").write_bytes(bytes(range(256)) * 20)
    strided = memoryview(array("f", range(2400)))[::2]
    bundle = cb.bundle(
        os.fspath(folder / "model.pte"),
        [suite(cb.MethodTestCase([strided]))],
        named_data={"tokenizer": os.fspath(folder / "blob")},
        form="segmented",
        alignment=8192,
    )
    padding = Fill(-len(bundle.cord) % 4096)
    return bundle.cord + Cord.of(padding) + Cord.from_file(folder / "blob")


def kinds(cord: Cord) -> set[str]:
    """Return which ways chunks of a Cord have to go."""
    found = set()
    for chunk in cord.raw_chunks:
        if isinstance(chunk, bytes | memoryview):
            found.add("memory")
        elif isinstance(chunk, Digest):
            found.add("digest")
        else:
            kind = {FileRange: "file", Fill: "fill"}.get(type(chunk), "deferred")
            found.add(f"{'small' if chunk.size < SMALL else 'large'} {kind}")
    return found
