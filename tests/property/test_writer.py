"""Any mix of chunks arrives as the same bytes at every target."""

from __future__ import annotations

import gzip
import io
import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordbundle.cord import Chunk, Cord, Deferred, Digest, Fill
from cordbundle.writer import write
from tests.faults import FakeObject, litter, short_calls

PATTERN = bytes(range(251)) * 200  # 50,200 bytes


class _Produced(Deferred):
    def produce(self) -> memoryview:
        return memoryview(PATTERN)[: self.size]


SIZES = st.one_of(st.integers(0, 20), st.integers(500, 520), st.integers(4090, 4100), st.just(9000))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "file"
    path.write_bytes(PATTERN)
    return path


@st.composite
def cords(draw: st.DrawFn, source: Path) -> Cord:
    """Draw a Cord of all kinds of chunks, with digests of runs of them, earlier and later."""
    runs: list[Cord] = []
    for kind, size in draw(st.lists(st.tuples(st.integers(0, 4), SIZES), max_size=12)):
        chunks: list[Chunk] = [
            memoryview(PATTERN)[:size],
            Fill(size),
            Fill(size, 7),
            _Produced(size),
        ]
        runs.append(Cord.of(chunks[kind]) if kind < 4 else Cord.from_file(source, size % 100, size))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(runs)))
        covered = sum(runs[start : draw(st.integers(start, len(runs)))], Cord())
        runs.insert(draw(st.integers(0, len(runs))), Cord.of(Digest(covered)))
    return sum(runs, Cord())


@given(data=st.data(), limit=st.sampled_from([None, 7, 513, 4096]))
@settings(max_examples=300)
def test_a_path_gets_the_bytes_however_short_the_calls_are(
    source: Path, data: st.DataObject, limit: int | None
) -> None:
    cord = data.draw(cords(source))
    with tempfile.TemporaryDirectory() as folder:
        if limit is None:
            report = write(cord, folder + "/out", durability="none")
        else:
            with short_calls(limit):
                report = write(cord, folder + "/out", durability="none")

        assert Path(folder, "out").read_bytes() == bytes(cord)
        assert litter(folder) == []
    assert sum(report.transfers.values()) == report.nbytes == len(cord)


@given(data=st.data(), step=st.sampled_from([7, 513, 1 << 20]))
def test_an_object_gets_the_bytes_however_few_it_takes(
    source: Path, data: st.DataObject, step: int
) -> None:
    cord = data.draw(cords(source))
    target = FakeObject(step)
    report = write(cord, target)

    assert target.taken == bytes(cord)
    assert sum(report.transfers.values()) == report.nbytes == len(cord)


@given(data=st.data())
def test_gzip_a_descriptor_and_a_pipe_get_the_same_bytes(source: Path, data: st.DataObject) -> None:
    cord = data.draw(cords(source))
    memory, reading_and_writing, read = io.BytesIO(), os.pipe(), bytearray()
    with gzip.GzipFile(fileobj=memory, mode="wb", compresslevel=0) as file:
        write(cord, file)
    with tempfile.TemporaryFile() as plain:
        write(cord, plain.fileno(), durability="none")
        plain.seek(0)
        from_descriptor = plain.read()

    def drain() -> None:
        while block := os.read(reading_and_writing[0], 65536):
            read.extend(block)

    thread = threading.Thread(target=drain)
    thread.start()
    write(cord, reading_and_writing[1])
    os.close(reading_and_writing[1])
    thread.join()
    os.close(reading_and_writing[0])

    assert gzip.decompress(memory.getvalue()) == from_descriptor == bytes(read) == bytes(cord)
