"""What `write` and `write_all` do with every kind of target."""

from __future__ import annotations

import gzip
import io
import itertools
import mmap
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from cordbundle.cord import Cord, Deferred, Digest, Fill
from cordbundle.errors import SourceChangedError, WriteError
from cordbundle.sinks import OBJECT_STEP
from cordbundle.writer import write, write_all
from tests.faults import FakeObject, counted_call, litter, mounted_image, short_calls

MIB = 1 << 20


class Produced(Deferred):
    """A deferred chunk that counts how often it is produced."""

    __slots__ = ("count", "data")

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data = data
        self.count = 0

    def produce(self) -> memoryview:
        self.count += 1
        return memoryview(self.data)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a file of 3 MiB and 5 bytes."""
    path = tmp_path / "source"
    path.write_bytes(bytes(range(251)) * (3 * MIB // 251 + 1))
    os.truncate(path, 3 * MIB + 5)
    return path


@pytest.fixture
def mixed(source: Path) -> Cord:
    """Return a Cord with every kind of chunk, two digests in front of what they cover."""
    payload = Cord.from_file(source, 3, 2 * MIB + 100)
    digest = Digest(payload)
    head = Cord.of(memoryview(b"head"), digest, Fill(70))
    return (
        Cord.of(Digest(head))
        + head
        + payload
        + Cord.of(Fill(100_000), Fill(5000, 7), Produced(b"deferred"), Produced(b"d" * 5000))
        + b"x" * (MIB + 7)
        + Cord.of(*[memoryview(b"tiny")] * 3000)
        + Cord.of(Fill(4096))
    )


class Reader:
    """Reads a pipe or socket to its end in a thread."""

    def __init__(self, descriptor: int) -> None:
        self._data = bytearray()
        self._descriptor = descriptor
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while block := os.read(self._descriptor, 65536):
            self._data += block

    def data(self) -> bytes:
        self._thread.join()
        os.close(self._descriptor)
        return bytes(self._data)


@pytest.fixture
def pipe() -> Iterator[tuple[int, Reader]]:
    """Return the writing end of a pipe, which the test closes, and the reader of the other."""
    reading, writing = os.pipe()
    return (yield writing, Reader(reading))


# Every target gets the same bytes.


def test_a_path_gets_the_bytes_of_the_cord(tmp_path: Path, mixed: Cord) -> None:
    report = write(mixed, tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == bytes(mixed)
    assert report.nbytes == len(mixed)
    assert litter(tmp_path) == []


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_a_path_may_be_str_bytes_or_a_path_object(
    tmp_path: Path, kind: type[str] | type[Path]
) -> None:
    write(Cord(b"abc"), kind(str(tmp_path / "out")))

    assert (tmp_path / "out").read_bytes() == b"abc"


def test_a_pipe_gets_the_bytes_of_the_cord(pipe: tuple[int, Reader], mixed: Cord) -> None:
    writing, reader = pipe
    write(mixed, writing)
    os.close(writing)

    assert reader.data() == bytes(mixed)


def test_a_pipe_that_does_not_block_is_waited_for(pipe: tuple[int, Reader], mixed: Cord) -> None:
    writing, reader = pipe
    os.set_blocking(writing, False)
    write(mixed, writing)
    os.close(writing)

    assert reader.data() == bytes(mixed)


@pytest.mark.parametrize("timeout", [None, 0, 60])
def test_a_socket_gets_the_bytes_of_the_cord(mixed: Cord, timeout: float | None) -> None:
    ours, theirs = socket.socketpair()
    reader = Reader(theirs.detach())
    with ours:
        ours.settimeout(timeout)
        write(mixed, ours)

    assert reader.data() == bytes(mixed)


def test_a_socket_whose_timeout_passes_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.05)

        with pytest.raises(WriteError, match=r"took no bytes for 0\.05 seconds"):
            write(Cord.of(Fill(64 * MIB)), ours)


def test_a_fifo_as_a_path_is_written_through(tmp_path: Path, mixed: Cord) -> None:
    os.mkfifo(tmp_path / "fifo")
    reading = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)
    started = threading.Event()

    def progress(done: int, total: int) -> None:
        if not started.is_set():
            started.set()
            readers.append(Reader(reading))

    readers: list[Reader] = []
    write(mixed, tmp_path / "fifo", progress=progress)

    assert readers[0].data() == bytes(mixed)
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


def test_a_character_device_as_a_path_is_written_through(mixed: Cord) -> None:
    report = write(mixed, "/dev/null")

    assert report.nbytes == len(mixed)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_standard_output_as_a_path_reaches_a_pipe() -> None:
    code = "from cordbundle.writer import *; from cordbundle.cord import Cord\n"
    code += "write(Cord(b'abc'), '/dev/stdout')"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert result.stdout == b"abc"


def test_a_descriptor_is_written_at_its_position_and_keeps_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"0123456789")
    descriptor = os.open(path, os.O_RDWR)
    os.lseek(descriptor, 2, os.SEEK_SET)
    write(Cord(b"ab") + Cord.of(Fill(3)), descriptor)
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.close(descriptor)

    assert path.read_bytes() == b"01ab\0\0\x00789"
    assert position == 7


def test_a_descriptor_in_append_mode_is_written_at_its_end(tmp_path: Path, mixed: Cord) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with path.open("ab", buffering=0) as file:
        write(mixed, file.fileno())

    assert path.read_bytes() == b"before" + bytes(mixed)


@pytest.mark.parametrize("mode", ["wb", "r+b", "ab", "w+b"])
@pytest.mark.parametrize("buffering", [0, -1])
def test_file_objects_are_flushed_and_their_position_follows(
    tmp_path: Path, mixed: Cord, mode: str, buffering: int
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"")
    with path.open(mode, buffering=buffering) as file:
        file.write(b"before")
        write(mixed, file)
        position = file.tell()
        file.write(b"after")

    assert path.read_bytes() == b"before" + bytes(mixed) + b"after"
    assert position == 6 + len(mixed)


def test_a_file_open_for_update_is_written_where_the_reader_stands(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"0123456789")
    with path.open("r+b") as file:
        file.read(3)
        write(Cord(b"ab"), file)
        rest = file.read()

    assert path.read_bytes() == b"012ab56789"
    assert rest == b"56789"


def test_a_file_open_for_update_seeks_rightly_inside_what_it_read_after_the_write(
    tmp_path: Path,
) -> None:
    (tmp_path / "out").write_bytes(b"0123456789")
    with (tmp_path / "out").open("r+b") as file:
        file.read(3)
        write(Cord(b"ab"), file)
        file.read(1)
        file.seek(7)

        assert file.read() == b"789"


def test_a_gzip_file_gets_its_stream_and_not_its_descriptor(tmp_path: Path, mixed: Cord) -> None:
    with gzip.open(tmp_path / "out.gz", "wb", compresslevel=1) as file:
        write(mixed, file)

    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == bytes(mixed)


def test_a_buffered_writer_over_another_stream_gets_its_stream(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "out.gz", "wb") as inner, io.BufferedWriter(inner) as file:
        write(Cord(b"abc"), file)

    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == b"abc"


def test_a_subclass_of_a_file_class_is_written_through_its_write(tmp_path: Path) -> None:
    class Inverting(io.FileIO):
        def write(self, data: memoryview) -> int:  # type: ignore[override]  # narrower on purpose
            return super().write(bytes(255 - byte for byte in data))

    with Inverting(str(tmp_path / "out"), "wb") as file:
        write(Cord(b"\x00\x01"), file)

    assert (tmp_path / "out").read_bytes() == b"\xff\xfe"


def test_memory_and_temporary_files_get_the_bytes(mixed: Cord) -> None:
    memory = io.BytesIO()
    write(mixed, memory)
    with tempfile.NamedTemporaryFile() as named, tempfile.SpooledTemporaryFile(100) as spooled:
        write(mixed, named)
        write(mixed, spooled)
        named.seek(0)
        spooled.seek(0)

        assert named.read() == spooled.read() == memory.getvalue() == bytes(mixed)


@pytest.mark.parametrize("step", [1, 7, 4096])
def test_an_object_that_takes_few_bytes_at_a_time_gets_all(step: int) -> None:
    cord = Cord(b"0123456789" * 50) + Cord.of(Fill(5000)) + b"end"
    target = FakeObject(step)
    write(cord, target)

    assert target.taken == bytes(cord)


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_descriptor_that_takes_few_bytes_at_a_time_gets_all(tmp_path: Path, limit: int) -> None:
    cord = Cord(b"0123456789" * 50) + Cord.of(Fill(5000)) + Cord.of(*[memoryview(b"x" * 600)] * 5)
    with short_calls(limit):
        write(cord, tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == bytes(cord)


def test_an_object_never_gets_more_than_8_mib_at_a_time() -> None:
    target = FakeObject(1 << 40)
    write(Cord(bytes(20 * MIB)), target)

    assert target.largest == OBJECT_STEP == 8 * MIB
    assert len(target.taken) == 20 * MIB


def test_a_text_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file, pytest.raises(TypeError, match=r"text file.*'wb'"):
        write(Cord(b"abc"), file)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [None, True, 1.5, object(), ["out"]])
def test_what_is_no_target_is_refused_by_its_type(target: object) -> None:
    with pytest.raises(TypeError, match=f"cannot write to {type(target).__name__}"):
        write(Cord(b"abc"), target)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"abc", None])
def test_what_is_no_cord_is_refused_by_its_type_and_nothing_is_written(
    tmp_path: Path, data: object
) -> None:
    path = tmp_path / "out"
    for attempt in (
        lambda: write(data, path),  # type: ignore[arg-type]
        lambda: write(data, io.BytesIO()),  # type: ignore[arg-type]
        lambda: write_all({path: data}),  # type: ignore[dict-item]
    ):
        with pytest.raises(TypeError, match=f"{type(data).__name__} is no Cord"):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'disk' is not 'none', 'file' or 'dir'"):
        write(Cord(b"abc"), tmp_path / "out", durability="disk")  # type: ignore[arg-type]


# How the bytes go.


def test_an_empty_cord_makes_an_empty_file(tmp_path: Path) -> None:
    report = write(Cord(), tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == b""
    assert (report.nbytes, dict(report.transfers)) == (0, {})


def test_transfers_add_up_to_the_size(tmp_path: Path, mixed: Cord) -> None:
    to_path = write(mixed, tmp_path / "out").transfers
    to_object = write(mixed, io.BytesIO()).transfers

    assert sum(to_path.values()) == sum(to_object.values()) == len(mixed)
    assert (to_path["hole"], to_path["fill"]) == (104_096, 5070)
    assert (to_object["fill"], "hole" in to_object) == (109_166, False)
    assert to_path["digest"] == to_object["digest"] == 32
    assert to_path["deferred"] == 5008
    assert to_path["memory"] == MIB + 7 + 12_000 + 4


@pytest.mark.parametrize("count", [1023, 1024, 1025, 4097])
def test_any_number_of_chunks_is_written_in_batches(tmp_path: Path, count: int) -> None:
    cord = Cord.of(*[memoryview(bytes([i % 256]) * 600) for i in range(count)])
    with counted_call("writev") as calls:
        write(cord, tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == bytes(cord)
    assert max(len(views) for _, views in calls) <= 1024


def test_tiny_chunks_are_joined(tmp_path: Path) -> None:
    cord = Cord.of(*[memoryview(b"0123456789")] * 10_000)
    with counted_call("write") as writes, counted_call("writev") as batches:
        write(cord, tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == b"0123456789" * 10_000
    assert (len(writes), len(batches)) == (1, 0)


def test_one_chunk_above_2_gib_arrives_whole() -> None:
    size = (1 << 31) + 12_345

    class Counter:
        total = 0
        last = b""

        def write(self, data: memoryview) -> int:
            self.total += data.nbytes
            self.last = bytes(data[-5:])
            return data.nbytes

    with mmap.mmap(-1, size) as pages:
        pages[-5:] = b"abcde"
        target = Counter()
        cord = Cord(pages)
        write(cord, target)
        del cord

    assert (target.total, target.last) == (size, b"abcde")


def test_one_file_range_above_2_gib_keeps_its_holes(tmp_path: Path) -> None:
    size = (1 << 31) + 12_345
    source, out = tmp_path / "source", tmp_path / "out"
    source.write_bytes(b"first")
    os.truncate(source, size)
    with source.open("r+b") as file:
        file.seek(1 << 30)
        file.write(b"middle")
    payload = Cord.from_file(source)

    report = write(Cord(b"head") + Cord.of(Digest(payload)) + payload, out, durability="none")

    with out.open("rb") as file:
        assert file.read(4) == b"head"
        assert file.read(16) == payload.xxh3_128()
        assert file.read(5) == b"first"
        file.seek(20 + (1 << 30))
        assert file.read(6) == b"middle"
    assert out.stat().st_size == size + 20
    assert out.stat().st_blocks * 512 < MIB
    assert report.transfers["hole"] > 2_000_000_000


def test_a_large_file_is_copied_by_two_threads_and_hashed_in_order(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(os.urandom(24 * MIB + 5))
    payload = Cord.from_file(tmp_path / "source", 1)
    calls: list[tuple[int, int]] = []
    with counted_call("pwrite") as writes:
        report = write(
            Cord(b"head") + payload + Cord.of(Digest(payload)) + b"tail",
            tmp_path / "out",
            progress=lambda done, total: calls.append((done, threading.get_ident())),
        )

    expected = (tmp_path / "source").read_bytes()[1:]
    digest = xxhash.xxh3_128(expected).digest()
    assert (tmp_path / "out").read_bytes() == b"head" + expected + digest + b"tail"
    assert report.transfers["file"] == 24 * MIB + 4
    assert len({descriptor for descriptor, _, _ in writes}) == 2
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert {thread for _, thread in calls} == {threading.get_ident()}


def test_a_large_zero_fill_becomes_a_hole_also_at_the_end(tmp_path: Path) -> None:
    write(Cord(b"a") + Cord.of(Fill(64 * MIB)), tmp_path / "out")

    status = (tmp_path / "out").stat()
    assert status.st_size == 64 * MIB + 1
    assert status.st_blocks * 512 < MIB


def test_progress_begins_at_zero_rises_and_ends_at_the_total(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    total = 20 * MIB
    write(
        Cord(bytes(total)),
        tmp_path / "out",
        durability="none",
        progress=lambda done, of: calls.append((done, of)),
    )

    done = [call[0] for call in calls]
    assert (calls[0], calls[-1]) == ((0, total), (total, total))
    assert done == sorted(set(done))
    assert max(b - a for a, b in itertools.pairwise(done)) <= 8 * MIB
    assert {call[1] for call in calls} == {total}


@pytest.fixture(params=["xfs", "btrfs"])
def sharing_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return a folder on a filesystem that shares extents; skip where it cannot be mounted."""
    with mounted_image(request.param, 400, tmp_path / "image", tmp_path / "disk") as folder:
        yield folder


@pytest.mark.parametrize("start", [0, 100, 4096])
def test_whole_blocks_are_shared_where_the_filesystem_can(sharing_disk: Path, start: int) -> None:
    source = sharing_disk / "source"
    source.write_bytes(os.urandom(MIB) * 20 + b"odd tail")
    payload = Cord.from_file(source, start)
    cord = Cord(bytes(start)) + Cord.of(Fill(8192)) + payload + Cord.of(Digest(payload))
    report = write(cord, sharing_disk / "out")

    assert (sharing_disk / "out").read_bytes() == bytes(cord)
    assert report.transfers["clone"] == 20 * MIB - -(-start // 4096) * 4096
    assert report.transfers["file"] == len(payload) - report.transfers["clone"]


def test_a_range_that_cannot_be_shared_does_not_keep_others_from_it(sharing_disk: Path) -> None:
    source = sharing_disk / "source"
    source.write_bytes(os.urandom(MIB))
    payload = Cord.from_file(source)
    cord = Cord(b"x") + payload + Cord.of(Fill(4095)) + payload
    report = write(cord, sharing_disk / "out")

    assert (sharing_disk / "out").read_bytes() == bytes(cord)
    assert report.transfers["clone"] == MIB


def test_what_can_be_shared_needs_no_space(sharing_disk: Path) -> None:
    source = sharing_disk / "source"
    source.write_bytes(os.urandom(MIB) * 100)
    cord = Cord(b"head".ljust(4096))
    for _ in range(6):
        cord.append(Cord.from_file(source))
    report = write(cord, sharing_disk / "out", durability="none")

    assert dict(report.transfers) == {"clone": 600 * MIB, "memory": 4096}
    assert (sharing_disk / "out").stat().st_size == len(cord)


# Digests.


def test_digests_on_the_way_and_digests_in_advance_are_the_same_bytes(
    tmp_path: Path, mixed: Cord, source: Path
) -> None:
    write(mixed, tmp_path / "out")
    target = io.BytesIO()
    write(mixed, target)
    payload = source.read_bytes()[3 : 3 + 2 * MIB + 100]
    head = b"head" + xxhash.xxh3_128(payload).digest() + bytes(70)

    assert (tmp_path / "out").read_bytes() == target.getvalue()
    assert target.getvalue().startswith(xxhash.xxh3_128(head).digest() + head + payload)


def test_a_digested_payload_is_read_once_on_its_way_to_a_path(tmp_path: Path) -> None:
    payload = Produced(b"payload " * 10_000)
    covered = Cord(b"prefix") + Cord.of(payload) + b"suffix"
    cord = Cord.of(Digest(covered), Digest(covered)) + covered
    write(cord, tmp_path / "out")
    count = payload.count

    expected = xxhash.xxh3_128(bytes(covered)).digest()
    assert count == 1
    assert (tmp_path / "out").read_bytes() == expected * 2 + bytes(covered)


def test_a_digest_of_bytes_that_are_not_written_is_computed_by_reading(tmp_path: Path) -> None:
    write(Cord.of(Digest(Cord(b"elsewhere")), Digest(Cord())), tmp_path / "out")

    expected = xxhash.xxh3_128(b"elsewhere").digest() + xxhash.xxh3_128(b"").digest()
    assert (tmp_path / "out").read_bytes() == expected


def test_overlapping_and_nested_digests_are_right(tmp_path: Path) -> None:
    a, b, c = (Cord(bytes([i]) * 5000) for i in range(3))
    first, second = Digest(a + b), Digest(b + c)
    outer = Digest(Cord.of(first, second))
    write(a + b + c + Cord.of(outer, second, first), tmp_path / "out")

    one, two = ((x + y).xxh3_128() for x, y in ((a, b), (b, c)))
    tail = xxhash.xxh3_128(one + two).digest() + two + one
    assert (tmp_path / "out").read_bytes() == bytes(a + b + c) + tail


# Replacing a file.


def test_a_new_file_gets_the_permissions_that_open_would_give(tmp_path: Path) -> None:
    code = "import os, sys; os.umask(0o027); from cordbundle.writer import *\n"
    code += "from cordbundle.cord import Cord; write(Cord(b'abc'), sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, tmp_path / "out"], check=True)

    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o600, 0o666, 0o755])
def test_an_existing_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(Cord(b"new"), path)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_an_existing_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    os.chown(path, 1234, 4321)
    write(Cord(b"new"), path)

    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("folder/real")
    write(Cord(b"new"), tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "real").read_bytes() == b"new"


def test_a_link_to_nothing_makes_the_file_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    write(Cord(b"new"), tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_relative_path_is_taken_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Cord(b"abc"), "out", durability="dir")

    assert (tmp_path / "out").read_bytes() == b"abc"


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, ".hidden", "a b\n"])
def test_any_file_name_is_possible(tmp_path: Path, name: str) -> None:
    write(Cord(b"abc"), tmp_path / name)

    assert (tmp_path / name).read_bytes() == b"abc"


def test_saving_over_the_mapped_source_gives_the_new_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 100_000)
    mapped = Cord.from_file(path).try_flat()
    cord = Cord(b"head") + Cord.from_file(path) + Cord(mapped)
    expected = b"head" + path.read_bytes() * 2
    write(cord, path)

    assert path.read_bytes() == expected


def test_a_smaller_file_over_a_larger_one_leaves_no_tail(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(bytes(100_000))
    write(Cord(b"small"), tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == b"small"


def test_readers_of_the_old_file_keep_the_old_bytes(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    with (tmp_path / "out").open("rb") as file:
        write(Cord(b"new"), tmp_path / "out")

        assert file.read() == b"old"


@pytest.mark.parametrize(
    ("durability", "synced"),
    [("none", []), ("file", [stat.S_IFREG]), ("dir", [stat.S_IFREG, stat.S_IFDIR])],
)
def test_durability_decides_what_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, synced: list[int]
) -> None:
    kinds: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        kinds.append(stat.S_IFMT(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write(Cord(b"abc"), tmp_path / "out", durability=durability)  # type: ignore[arg-type]

    assert kinds == synced


# Sets.


def test_a_set_is_written_and_reported_path_by_path(tmp_path: Path, mixed: Cord) -> None:
    paths = {tmp_path / "a.pte": mixed, tmp_path / "b.ptd": Cord(b"data")}
    reports = write_all(paths, durability="dir")

    assert {path: path.read_bytes() for path in paths} == {
        path: bytes(cord) for path, cord in paths.items()
    }
    assert [(path, report.nbytes) for path, report in reports.items()] == [
        (path, len(cord)) for path, cord in paths.items()
    ]


def test_a_set_is_renamed_data_first_in_the_order_given(tmp_path: Path) -> None:
    names = ["m.pte", "b.ptd", "m.bpte", "a.ptd"]
    with counted_call("replace") as calls:
        write_all({tmp_path / name: Cord(b"abc") for name in names})

    assert [os.path.basename(new) for _, new in calls] == ["b.ptd", "a.ptd", "m.pte", "m.bpte"]


def test_a_set_is_synced_before_its_first_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        order.append("fsync")
        fsync(descriptor)

    def record_replace(old: str, new: str) -> None:
        order.append("replace")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_all({tmp_path / "a.pte": Cord(b"a"), tmp_path / "b.ptd": Cord(b"b")}, durability="dir")

    assert order == ["fsync", "fsync", "replace", "fsync", "replace", "fsync"]


def test_a_set_reports_progress_over_all_its_bytes(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    write_all(
        {tmp_path / "a": Cord(bytes(5 * MIB)), tmp_path / "b": Cord(bytes(5 * MIB))},
        progress=lambda done, total: calls.append((done, total)),
    )

    assert (calls[0], calls[-1]) == ((0, 10 * MIB), (10 * MIB, 10 * MIB))
    assert {total for _, total in calls} == {10 * MIB}


def test_two_paths_of_one_file_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")

    with pytest.raises(WriteError, match=r"link: two paths are one file: found .*real"):
        write_all({tmp_path / "real": Cord(b"a"), tmp_path / "link": Cord(b"b")})
    assert os.listdir(tmp_path) == ["link"]


def test_a_fifo_in_a_set_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    with pytest.raises(WriteError, match="fifo: cannot be in a set"):
        write_all({tmp_path / "fifo": Cord(b"a")})


def test_an_empty_set_is_written_at_once() -> None:
    assert write_all({}) == {}


def test_a_set_with_a_changed_source_changes_nothing(tmp_path: Path, source: Path) -> None:
    cord = Cord.from_file(source)
    os.truncate(source, 10)

    with pytest.raises(SourceChangedError):
        write_all({tmp_path / "a": Cord(b"a"), tmp_path / "b": cord})
    assert sorted(os.listdir(tmp_path)) == ["source"]


# Many small chunks ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 64, 700])
def test_many_small_chunks_arrive_in_order(tmp_path: Path, size: int) -> None:
    pieces = [number.to_bytes(4, "little") * size for number in range(5000)]
    cord = Cord()
    cord.extend(pieces)

    report = write(cord, tmp_path / "out")

    assert (tmp_path / "out").read_bytes() == b"".join(pieces)
    assert report.transfers == {"memory": len(cord)}


def test_an_object_gets_views_of_bytes_that_are_not_copied(tmp_path: Path) -> None:
    data = bytes(OBJECT_STEP + 1)
    owners: list[object] = []

    class Target:
        def write(self, view: memoryview) -> int:
            owners.append(view.obj)
            return view.nbytes

    write(Cord(data), Target())

    assert [owner is data for owner in owners] == [True, True]


def test_a_digest_is_of_its_own_chunks_behind_many_that_are_alike(tmp_path: Path) -> None:
    one, other, end = b"same object", b"other", b"end"
    covered = Cord()
    covered.extend([one, one, end])
    cord = Cord()
    cord.extend([one] * 50 + [one, other, end])
    cord = cord + covered + Cord.of(Digest(covered))

    write(cord, tmp_path / "out")

    expected = one * 51 + other + end + one * 2 + end
    assert (tmp_path / "out").read_bytes() == (expected + xxhash.xxh3_128_digest(one * 2 + end))
