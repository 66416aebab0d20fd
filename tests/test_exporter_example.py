"""The example of embedding: an invented format, written whole and read back by another reader."""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import cordbundle as cb

flatbuffers = pytest.importorskip("flatbuffers")


@pytest.fixture(scope="module")
def exporter(examples: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("exporter", examples / "exporter.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(data: bytes) -> dict[str, bytes]:
    """Read a file of the invented format with the flatbuffers package alone."""
    from flatbuffers import encode, number_types
    from flatbuffers.table import Table

    base, size = struct.unpack_from("<QQ", data, 16)
    assert base + size == len(data)
    root = Table(data, encode.Get(number_types.UOffsetTFlags.packer_type, data, 0))
    vector = root.Offset(4)
    found = {}
    for number in range(root.VectorLen(vector)):
        blob = Table(data, root.Indirect(root.Vector(vector) + 4 * number))
        name = blob.String(blob.Offset(4) + blob.Pos).decode()
        offset = blob.GetSlot(6, 0, number_types.Uint64Flags)
        length = blob.GetSlot(8, 0, number_types.Uint64Flags)
        assert (base + offset) % 4096 == 0
        found[name] = data[base + offset : base + offset + length]
    return found


def test_the_blobs_come_out_again_aligned(exporter: ModuleType) -> None:
    blobs = {"a": b"first" * 1000, "empty": b"", "ü": bytes(5000)}
    cord = exporter.export({name: cb.Cord(data) for name, data in blobs.items()})
    assert bytes(cord[:8])[4:] == b"TOY1"
    assert read(bytes(cord)) == blobs


def test_the_script_writes_files_by_reference(tmp_path: Path, examples: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"w" * 10_000)
    done = subprocess.run(
        [sys.executable, examples / "exporter.py", "out.toy", "weights=w.bin"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(examples.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "'file': 10000" in done.stdout
    assert read((tmp_path / "out.toy").read_bytes()) == {"weights": b"w" * 10_000}
