"""Cord: bytes by reference that behave like bytes."""

from __future__ import annotations

import array
import copy
import ctypes
import gc
import io
import mmap
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from cordbundle import chunks as chunks_module
from cordbundle import cord as cord_module
from cordbundle.chunks import flat_bytes
from cordbundle.cord import Chunk, Cord, Deferred, FileRange, Fill, as_cord
from cordbundle.errors import (
    CordBundleError,
    FormatError,
    LayoutError,
    SourceChangedError,
    TruncatedError,
    WriteError,
)
from tests.conftest import REPOSITORY

MEBIBYTE = 1 << 20


class Produced(Deferred):
    """A deferred chunk that counts how often its bytes were produced."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data = data
        self.times = 0

    def produce(self) -> memoryview:
        self.times += 1
        return memoryview(self.data)


def flat(cord: Cord) -> bytes | None:
    """Return the bytes of a Cord that is flat."""
    view = cord.try_flat()
    return None if view is None else bytes(view)


@pytest.fixture
def content() -> bytes:
    """Return more than two blocks of bytes without a period that a block could hide."""
    return random.Random(1).randbytes(2 * MEBIBYTE + 12345)


@pytest.fixture
def path(tmp_path: Path, content: bytes) -> Path:
    """Return a file of `content`."""
    file = tmp_path / "source.bin"
    file.write_bytes(content)
    return file


@pytest.fixture
def mixed(path: Path, content: bytes) -> tuple[Cord, bytes]:
    """Return a Cord with every kind of chunk, and its bytes."""
    cord = Cord(b"memory")
    cord += Cord.from_file(path, 7, 2 * MEBIBYTE + 9)
    cord += Cord.of(Fill(MEBIBYTE + 3), Fill(5, 0xAB), Produced(b"deferred" * 3))
    cord.append(bytearray(b"end"))
    data = b"memory" + content[7 : 2 * MEBIBYTE + 16] + bytes(MEBIBYTE + 3)
    return cord, data + b"\xab" * 5 + b"deferred" * 3 + b"end"


# It behaves like bytes -----------------------------------------------------------------------


def test_a_cord_of_every_kind_of_chunk_is_its_bytes(mixed: tuple[Cord, bytes]) -> None:
    cord, data = mixed

    assert len(cord) == len(data)
    assert bytes(cord) == data
    assert cord == data
    assert b"".join(cord.chunks()) == data
    assert b"".join(bytes(run) for run in cord.stream()) == data
    assert cord.open().read() == data
    assert cord.xxh3_128() == xxhash.xxh3_128(data).digest()
    cord.check_invariants()


def test_a_cord_of_nothing_is_empty() -> None:
    for cord in (Cord(), Cord(b""), Cord(Cord()), Cord.of(Fill(0)), Cord(b"abc")[2:1]):
        assert len(cord) == 0
        assert not cord
        assert bytes(cord) == b""
        assert cord == b""
        assert list(cord.chunks()) == list(cord.stream()) == list(cord.parts(1)) == []
        assert cord.open().read() == b""
        assert flat(cord) == b""
        cord.check_invariants()


@pytest.mark.parametrize("key", [0, 5, 6, 2 * MEBIBYTE, -1, -3, -4, -40, True])
def test_a_byte_is_found_by_its_index(mixed: tuple[Cord, bytes], key: int) -> None:
    cord, data = mixed

    assert cord[key] == data[key]


@pytest.mark.parametrize("key", [3, -4, 1 << 70])
def test_an_index_outside_is_refused(key: int) -> None:
    with pytest.raises(IndexError, match=f"index {key} of a Cord of 3 bytes"):
        Cord(b"abc")[key]


@pytest.mark.parametrize("key", ["a", 1.0, None])
def test_an_index_that_is_no_number_is_refused(key: object) -> None:
    with pytest.raises(TypeError):
        Cord(b"abc")[key]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "key",
    [
        slice(None),
        slice(0, 0),
        slice(2, 6),
        slice(2, 7),
        slice(6, 2 * MEBIBYTE + 15),
        slice(MEBIBYTE, 3 * MEBIBYTE),
        slice(-30, None),
        slice(-5, -1),
        slice(None, -2),
        slice(-(1 << 40), 1 << 40),
        slice(1 << 40, None),
        slice(5, 2),
        slice(1, 9, 1),
    ],
    ids=str,
)
def test_a_slice_is_that_part(mixed: tuple[Cord, bytes], key: slice) -> None:
    cord, data = mixed

    part = cord[key]

    assert bytes(part) == data[key]
    assert len(part) == len(data[key])
    part.check_invariants()


def test_a_slice_shares_whole_chunks(mixed: tuple[Cord, bytes]) -> None:
    cord, _ = mixed

    part = cord[3:-1]

    assert part._chunks[1:-1] == cord._chunks[1:-1]
    assert all(a is b for a, b in zip(part._chunks[1:-1], cord._chunks[1:-1], strict=True))


@pytest.mark.parametrize("step", [2, -1])
def test_a_slice_with_another_step_is_refused(step: int) -> None:
    with pytest.raises(ValueError, match=f"step 1, not {step}"):
        Cord(b"abc")[::step]


def test_a_cord_grows_at_its_end_by_bytes_and_by_cords() -> None:
    cord = Cord(b"a")

    cord.append(b"")
    cord.append(b"b")
    cord.append(Cord(b"c") + b"d")

    assert bytes(cord) == b"abcd"


def test_appending_a_cord_shares_its_chunks_and_not_its_future() -> None:
    first, second = Cord(b"a"), Cord(b"b")

    first.append(second)
    second.append(b"c")

    assert bytes(first) == b"ab"
    assert first._chunks[1] is second._chunks[0]


def test_a_cord_can_be_appended_to_itself() -> None:
    cord = Cord(b"ab")

    cord.append(cord)

    assert bytes(cord) == b"abab"
    cord.check_invariants()


def test_adding_makes_a_new_cord() -> None:
    cord = Cord(b"b")

    assert bytes(cord + b"c") == b"bc"
    assert bytes(b"a" + cord) == b"ab"
    assert bytes(cord + cord) == b"bb"
    assert bytes(cord) == b"b"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_grows_on_its_own(duplicate: Callable[[Cord], Cord]) -> None:
    cord = Cord(b"a")

    other = duplicate(cord)
    cord.append(b"b")
    other.append(b"c")

    assert (bytes(cord), bytes(other)) == (b"ab", b"ac")
    assert cord._chunks[0] is other._chunks[0]


def test_a_cord_is_not_iterated_byte_by_byte() -> None:
    with pytest.raises(TypeError, match=r"chunks\(\)"):
        iter(Cord(b"abc"))


def test_a_cord_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Cord(b"abc"))


def test_a_cord_is_not_pickled() -> None:
    with pytest.raises(TypeError, match=r"pickle bytes\(cord\)"):
        pickle.dumps(Cord(b"abc"))


def test_a_cord_says_what_it_is() -> None:
    assert repr(Cord(b"ab") + b"c") == "<Cord of 3 bytes in 2 chunks>"


# Which buffers it takes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"abc",
        bytearray(b"abc"),
        memoryview(b"abcdef")[2:4],
        memoryview(b"abcdef").cast("B", (2, 3)),
        array.array("d", [1.5, -2.5]),
        (ctypes.c_uint16 * 3)(1, 2, 3),
        (ctypes.c_float.__ctype_be__ * 2)(1.0, 2.0),
        ((ctypes.c_int32 * 2) * 2)(),
        array.array("d"),
        (ctypes.c_int32 * 0)(),
    ],
    ids=lambda data: f"{type(data).__name__} of {memoryview(data).nbytes}",
)
def test_any_contiguous_buffer_is_taken_as_its_bytes(data: bytes) -> None:
    cord = Cord(data)

    assert bytes(cord) == memoryview(data).tobytes()
    assert cord == data
    cord.check_invariants()


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3), (3, 1, 2)])
@pytest.mark.parametrize("dtype", ["u1", "<f4", ">f4", "?", "f2", "i4,f8", "S3"])
def test_a_numpy_array_is_taken_as_its_bytes(shape: tuple[int, ...], dtype: str) -> None:
    numpy = pytest.importorskip("numpy")
    made = numpy.zeros(shape, dtype)

    cord = Cord(made)

    assert bytes(cord) == made.tobytes()
    cord.check_invariants()


def test_a_buffer_is_taken_without_a_copy() -> None:
    data = bytearray(b"abc")
    cord = Cord(data)

    data[1] = ord("X")

    assert bytes(cord) == b"aXc"


@pytest.mark.parametrize(
    "data",
    [memoryview(b"abcdef")[::2], memoryview(b"abcdef")[::-1]],
    ids=["gaps", "backwards"],
)
def test_a_buffer_with_gaps_is_refused(data: memoryview) -> None:
    with pytest.raises(LayoutError, match="not C-contiguous") as caught:
        Cord(data)

    assert str(data.strides) in str(caught.value)


def test_a_transposed_array_is_refused() -> None:
    numpy = pytest.importorskip("numpy")

    with pytest.raises(LayoutError, match=r"not C-contiguous: found shape \(4, 3\)"):
        Cord(numpy.zeros((3, 4)).T)


def test_an_array_of_objects_is_refused() -> None:
    """Its buffer holds addresses, which no file should."""
    numpy = pytest.importorskip("numpy")

    with pytest.raises(LayoutError, match="references to Python objects"):
        Cord(numpy.array([object()]))


@pytest.mark.parametrize("data", ["text", 5, [1, 2], 1.5])
def test_what_is_no_buffer_is_refused(data: object) -> None:
    with pytest.raises(TypeError):
        Cord(data)  # type: ignore[arg-type]


def test_a_cord_is_taken_as_it_is_and_a_buffer_as_a_cord() -> None:
    cord = Cord(b"abc")

    assert as_cord(cord) is cord
    assert bytes(as_cord(b"abc")) == b"abc"


def test_flat_bytes_are_in_the_order_of_memory() -> None:
    numpy = pytest.importorskip("numpy")
    square = numpy.arange(4, dtype=">u2").reshape(2, 2)

    assert flat_bytes(square).tobytes() == square.tobytes()
    assert flat_bytes(square.T).tobytes() == square.tobytes()
    assert flat_bytes(numpy.asfortranarray(square)).tobytes() == square.T.tobytes()


def test_flat_bytes_of_a_part_in_a_format_that_cannot_be_cast_are_refused() -> None:
    part = memoryview((ctypes.c_uint16.__ctype_be__ * 3)(1, 2, 3))[1:]

    with pytest.raises(LayoutError, match="found 4 bytes of 6"):
        flat_bytes(part)


def test_flat_bytes_with_gaps_are_refused() -> None:
    with pytest.raises(LayoutError, match="gaps between its elements"):
        flat_bytes(memoryview(b"abcdef")[::2])


@pytest.mark.parametrize("kind", [ctypes.c_uint16, ctypes.c_uint16.__ctype_be__])
def test_flat_bytes_can_be_written_only_where_the_buffer_can(kind: type[ctypes.c_uint16]) -> None:
    numbers = (kind * 2)()

    assert not flat_bytes(numbers).readonly
    assert flat_bytes(memoryview(numbers).toreadonly()).readonly


# What is held stays --------------------------------------------------------------------------


def test_a_bytearray_cannot_be_resized_while_a_cord_or_a_slice_of_it_lives() -> None:
    data = bytearray(b"hello")
    part = Cord(data)[1:3]

    with pytest.raises(BufferError):
        data.append(1)
    assert bytes(part) == b"el"

    del part
    data.append(1)
    assert data == b"hello\x01"


def test_an_array_cannot_be_resized_while_a_cord_lives() -> None:
    data = array.array("i", [1, 2])
    cord = Cord(data)

    with pytest.raises(BufferError):
        data.append(3)
    assert len(cord) == 2 * data.itemsize


def test_a_mapping_cannot_be_closed_while_a_cord_lives(path: Path, content: bytes) -> None:
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cord = Cord(mapping)

    with pytest.raises(BufferError):
        mapping.close()
    assert cord == content

    del cord
    mapping.close()
    assert mapping.closed


def test_a_released_view_does_not_take_the_bytes_along() -> None:
    view = memoryview(bytearray(b"hello"))
    cord = Cord(view)

    view.release()

    assert bytes(cord) == b"hello"


def test_a_cord_keeps_alive_what_it_refers_to() -> None:
    cord = Cord(bytearray(b"x" * 100_000))
    gc.collect()

    assert bytes(cord) == b"x" * 100_000


def test_views_outlive_cord_source_and_the_name_of_the_file(path: Path, content: bytes) -> None:
    cord = Cord.from_file(path, 5, 100_000)
    (view,) = cord.chunks()

    del cord
    path.unlink()
    gc.collect()

    assert view == content[5:100_005]


def test_views_are_read_only(mixed: tuple[Cord, bytes]) -> None:
    cord, _ = mixed

    views = list(cord.chunks())

    assert all(view.readonly and view.nbytes and view.format == "B" for view in views)
    assert len(views) == 7  # the first fill takes two


# Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, None), (0, 5), (5, None), (MEBIBYTE - 1, MEBIBYTE + 2), (100, 0), (2109497, None)],
)
def test_a_range_of_a_file_is_those_bytes(
    path: Path, content: bytes, offset: int, size: int | None
) -> None:
    cord = Cord.from_file(path, offset, size)

    expected = content[offset:] if size is None else content[offset : offset + size]
    assert bytes(cord) == expected
    assert cord == expected
    cord.check_invariants()


def test_the_paths_of_a_file_may_be_text_bytes_or_path_objects(path: Path, content: bytes) -> None:
    for name in (path, str(path), os.fsencode(path)):
        assert Cord.from_file(name) == content  # type: ignore[arg-type]


def test_an_empty_file_is_an_empty_cord(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    cord = Cord.from_file(tmp_path / "empty")

    assert len(cord) == 0
    assert list(cord.chunks()) == []
    assert flat(cord) == b""


@pytest.mark.parametrize(
    ("offset", "size", "end"),
    [(2109498, None, 2109498), (0, 2109498, 2109498), (2109497, 1, 2109498), (1 << 62, 0, 1 << 62)],
)
def test_a_range_past_the_end_is_truncated(
    path: Path, offset: int, size: int | None, end: int
) -> None:
    with pytest.raises(TruncatedError, match="range passes the end of the file") as caught:
        Cord.from_file(path, offset, size)

    assert (caught.value.source, caught.value.offset) == (str(path), offset)
    assert caught.value.expected == f"{end} bytes"
    assert caught.value.actual == "2109497 bytes"


@pytest.mark.parametrize(("offset", "size"), [(-1, None), (0, -1), (5, -5)])
def test_a_negative_range_is_refused(path: Path, offset: int, size: int | None) -> None:
    with pytest.raises(LayoutError, match="negative range"):
        Cord.from_file(path, offset, size)


def test_a_missing_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Cord.from_file(tmp_path / "missing")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="found a folder, expected a regular file"):
        Cord.from_file(tmp_path)


def test_a_range_beyond_4_gib_is_read_where_it_is(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse.bin"
    with sparse.open("wb") as file:
        file.truncate(5 << 30)
        file.seek((5 << 30) - 3)
        file.write(b"end")

    cord = Cord.from_file(sparse)

    assert len(cord) == 5 << 30
    assert bytes(cord[-5:]) == b"\0\0end"
    assert cord.find(b"end", -100) == (5 << 30) - 3
    (view,) = cord.chunks()
    assert bytes(view[-3:]) == b"end"


# Comparing and finding -----------------------------------------------------------------------


def test_equal_bytes_are_equal_however_they_are_cut_and_held(path: Path, content: bytes) -> None:
    whole = Cord.from_file(path)
    pieces = Cord(content[:1000]) + Cord.from_file(path, 1000, MEBIBYTE)
    pieces += Cord.of(Produced(content[MEBIBYTE + 1000 :]))

    assert whole == pieces
    assert pieces == content
    assert content == pieces
    assert pieces == memoryview(content)
    assert (whole != pieces) is False


@pytest.mark.parametrize("place", [0, MEBIBYTE - 1, MEBIBYTE, 2 * MEBIBYTE, -1])
def test_one_other_byte_makes_two_cords_differ(path: Path, content: bytes, place: int) -> None:
    other = bytearray(content)
    other[place] ^= 1

    assert Cord.from_file(path) != Cord(other)
    assert (Cord.from_file(path) == other) is False


def test_a_longer_cord_is_not_equal() -> None:
    assert Cord(b"abc") != Cord(b"abcd")
    assert Cord(b"abcd") != b"abc"
    assert Cord(bytes(MEBIBYTE)) != Cord(bytes(MEBIBYTE + 1))


def test_a_cord_is_compared_with_the_bytes_of_an_array() -> None:
    assert Cord(array.array("H", [1, 2])) == array.array("H", [1, 2])
    assert Cord(b"\x01\x02") != array.array("H", [1, 2])


@pytest.mark.parametrize("other", [None, 5, "abc", ["a"], memoryview(b"aXbXcX")[::2]], ids=str)
def test_a_cord_is_not_equal_to_what_is_no_flat_buffer(other: object) -> None:
    cord = Cord(b"abc")

    assert (cord == other) is False
    assert (cord != other) is True


def test_comparing_deferred_bytes_produces_them_once() -> None:
    chunk = Produced(bytes(3 * MEBIBYTE))

    assert Cord.of(chunk) == bytes(3 * MEBIBYTE)
    assert chunk.times == 1


def test_the_same_references_are_equal_without_being_read() -> None:
    chunk = Produced(b"abc")
    cord = Cord.of(chunk, Fill(1 << 60))

    assert cord == copy.copy(cord)
    assert chunk.times == 0


def test_one_identity_means_one_range_of_one_buffer(path: Path) -> None:
    data = bytes(range(100))
    whole = Cord(data)

    assert whole.identity() == Cord(data).identity()
    assert whole[10:20].identity() == Cord(memoryview(data)[10:20]).identity()
    assert Cord.from_file(path, 5, 9).identity() == Cord.from_file(path)[5:14].identity()
    assert Cord.of(Fill(9, 1)).identity() == Cord.of(Fill(10, 1))[1:].identity()


def test_other_bytes_never_have_the_same_identity(path: Path) -> None:
    data = bytes(100)
    view = memoryview(data)
    others = [
        Cord(data),
        Cord(bytearray(100)),
        Cord(view[:50]),
        Cord(view[50:]),
        Cord(view[1:51]),
        Cord(view[:50]) + view[:50],
        Cord(memoryview(bytearray(200))[::1][:100]),
        Cord.from_file(path, 0, 100),
        Cord.from_file(path, 1, 100),
        Cord.from_file(path, 0, 99),
        Cord.of(Fill(100)),
        Cord.of(Fill(100, 1)),
        Cord.of(Fill(99)),
        Cord.of(Produced(data)),
        Cord.of(Produced(data)),
        Cord.of(Produced(data))[:50],
        Cord(),
    ]

    assert len({cord.identity() for cord in others}) == len(others)


def test_a_transposed_square_does_not_have_the_identity_of_the_square() -> None:
    numpy = pytest.importorskip("numpy")
    square = numpy.arange(9, dtype="u1").reshape(3, 3)
    copied = numpy.ascontiguousarray(square.T)

    assert Cord(square).identity() == Cord(square.reshape(9)).identity()
    assert Cord(square).identity() != Cord(copied).identity()
    assert Cord(square) != Cord(copied)


@pytest.mark.parametrize("size", [1, 2, 7, 1000, MEBIBYTE, MEBIBYTE + 1])
@pytest.mark.parametrize("place", [0, 1, MEBIBYTE - 500, MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1])
def test_bytes_are_found_across_blocks_and_chunks(
    path: Path, content: bytes, size: int, place: int
) -> None:
    cord = Cord.from_file(path, 0, place + size // 2) + content[place + size // 2 :]
    wanted = content[place : place + size]

    assert cord.find(wanted) == content.find(wanted)
    assert cord.find(wanted, place) == place
    assert cord.find(wanted, place + 1) == content.find(wanted, place + 1)


@pytest.mark.parametrize("start", [0, 1, 3, 5, 6, 7, -1, -3, -6, -100])
@pytest.mark.parametrize("wanted", [b"", b"a", b"b", b"ba", b"abcabc", b"abcabca", b"x"])
def test_find_answers_as_bytes_do(wanted: bytes, start: int) -> None:
    assert (Cord(b"abc") + b"abc").find(wanted, start) == b"abcabc".find(wanted, start)


def test_membership_is_that_of_a_part() -> None:
    cord = Cord(b"ab") + b"cd"

    assert b"bc" in cord
    assert b"ac" not in cord


@pytest.mark.parametrize("wanted", [2, "ab", None])
def test_only_bytes_can_be_found(wanted: object) -> None:
    cord = Cord(bytes(10))

    with pytest.raises(TypeError):
        cord.find(wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prefix", "is_one"),
    [
        (b"", True),
        (b"a", True),
        (b"abcd", True),
        (b"abcde", False),
        (b"ac", False),
        (Cord(b"ab") + b"c", True),
        (bytearray(b"b"), False),
    ],
    ids=repr,
)
def test_a_prefix_is_recognised(prefix: bytes | Cord, is_one: bool) -> None:
    assert (Cord(b"ab") + b"cd").startswith(prefix) is is_one


# Reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5, 6, 7, 100])
def test_parts_are_of_exactly_the_size_asked_for_but_the_last(size: int) -> None:
    cord = Cord(b"abc") + b"def"

    parts = [bytes(part) for part in cord.parts(size)]

    assert parts == [b"abcdef"[at : at + size] for at in range(0, 6, size)]


@pytest.mark.parametrize("size", [0, -1])
def test_parts_of_no_bytes_are_refused_when_asked_for(size: int) -> None:
    with pytest.raises(ValueError, match=f"parts of {size} bytes"):
        Cord(b"abc").parts(size)


def test_a_file_object_reads_seeks_and_tells(mixed: tuple[Cord, bytes]) -> None:
    cord, data = mixed
    theirs = io.BytesIO(data)

    with cord.open() as mine:
        for offset, whence, size in [
            (0, os.SEEK_SET, 10),
            (MEBIBYTE - 3, os.SEEK_SET, 7),
            (100, os.SEEK_CUR, MEBIBYTE),
            (-20, os.SEEK_END, 5),
            (-5, os.SEEK_CUR, 100),
            (10, os.SEEK_END, 5),
        ]:
            assert mine.seek(offset, whence) == theirs.seek(offset, whence)
            assert mine.read(size) == theirs.read(size)
            assert mine.tell() == theirs.tell()
        assert (mine.readable(), mine.seekable(), mine.writable()) == (True, True, False)


def test_a_file_object_reads_lines() -> None:
    cord = Cord(b"one\ntw") + b"o\nthree"

    assert list(cord.open()) == [b"one\n", b"two\n", b"three"]


@pytest.mark.parametrize(("offset", "whence"), [(-1, 0), (-4, 2), (0, 7)])
def test_a_file_object_refuses_to_seek_before_its_begin(offset: int, whence: int) -> None:
    reader = Cord(b"abc").open()

    with pytest.raises((ValueError, OSError)):
        reader.seek(offset, whence)
    assert reader.read() == b"abc"


def test_a_file_object_produces_a_deferred_chunk_once_for_many_small_reads() -> None:
    first, second = Produced(bytes(100_000)), Produced(b"x" * 100_000)
    reader = Cord.of(first, second).open()

    while reader.read(1000):
        pass

    assert (first.times, second.times) == (1, 1)


@pytest.mark.parametrize("offset", [0, 5, 6, MEBIBYTE, 3 * MEBIBYTE + 20])
@pytest.mark.parametrize("size", [0, 1, 3, MEBIBYTE + 5])
def test_readinto_copies_what_there_is_and_fits(
    mixed: tuple[Cord, bytes], offset: int, size: int
) -> None:
    cord, data = mixed
    buffer = bytearray(b"\xee" * size)

    count = cord.readinto(buffer, offset)

    expected = data[offset : offset + size]
    assert count == len(expected)
    assert buffer == expected + b"\xee" * (size - count)


def test_readinto_fills_any_flat_writable_buffer() -> None:
    numbers = array.array("H", [0, 0])
    swapped = (ctypes.c_uint16.__ctype_be__ * 2)()

    assert Cord(b"\x01\x02\x03\x04").readinto(numbers) == 4
    assert Cord(b"\x01\x02\x03\x04").readinto(swapped) == 4
    assert Cord(b"\x01\x02\x03\x04").readinto(array.array("d")) == 0

    assert numbers.tobytes() == b"\x01\x02\x03\x04"
    assert list(swapped) == [0x0102, 0x0304]


def test_readinto_at_or_after_the_end_copies_nothing() -> None:
    buffer = bytearray(b"x")

    assert Cord(b"abc").readinto(buffer, 3) == 0
    assert Cord(b"abc").readinto(buffer, 1 << 60) == 0
    assert buffer == b"x"


def test_readinto_refuses_a_negative_offset() -> None:
    with pytest.raises(ValueError, match="negative offset -1"):
        Cord(b"abc").readinto(bytearray(2), -1)


def test_readinto_refuses_a_buffer_that_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="read-only"):
        Cord(b"abc").readinto(b"xyz")


def test_readinto_refuses_a_buffer_with_gaps() -> None:
    with pytest.raises(LayoutError, match="not C-contiguous"):
        Cord(b"abc").readinto(memoryview(bytearray(6))[::2])


def test_one_run_of_memory_is_flat_and_not_copied() -> None:
    data = bytearray(b"abc")
    view = Cord(data).try_flat()

    assert view is not None
    data[0] = ord("X")
    assert bytes(view) == b"Xbc"
    assert view.readonly


def test_one_range_of_a_file_is_flat(path: Path, content: bytes) -> None:
    assert flat(Cord.from_file(path, 3, 100)) == content[3:103]


@pytest.mark.parametrize(
    "cord",
    [Cord(b"a") + b"b", Cord.of(Fill(3)), Cord.of(Produced(b"abc"))],
    ids=["two chunks", "fill", "deferred"],
)
def test_nothing_else_is_flat(cord: Cord) -> None:
    assert flat(cord) is None


def test_a_stream_reads_a_file_through_one_buffer_of_one_mebibyte(
    path: Path, content: bytes
) -> None:
    cord = Cord.from_file(path) + b"x" + Cord.from_file(path, 5, 10)

    owners = {id(run.obj) for run in cord.stream() if run.nbytes > 1}

    assert len(owners) == 1
    assert [run.nbytes for run in cord.stream()] == [MEBIBYTE, MEBIBYTE, 12345, 1, 10]


def test_write_to_file_writes_all_bytes(mixed: tuple[Cord, bytes], tmp_path: Path) -> None:
    cord, data = mixed

    with (tmp_path / "out").open("wb") as file:
        cord.write_to_file(file)

    assert (tmp_path / "out").read_bytes() == data


def test_write_to_file_goes_on_after_a_short_write() -> None:
    taken = bytearray()

    class SevenAtATime:
        def write(self, data: memoryview) -> int:
            taken.extend(data[:7])
            return min(7, data.nbytes)

    (Cord(b"0123456789") + b"abcdefghij").write_to_file(SevenAtATime())

    assert taken == b"0123456789abcdefghij"


@pytest.mark.parametrize("answer", [None, 0])
def test_write_to_file_fails_where_nothing_is_taken(answer: int | None) -> None:
    class Refusing:
        def write(self, data: memoryview) -> int | None:
            return answer

    with pytest.raises(WriteError, match="Refusing took no bytes"):
        Cord(b"abc").write_to_file(Refusing())


# Fills and deferred chunks -------------------------------------------------------------------


def test_a_fill_of_any_size_takes_no_memory() -> None:
    cord = Cord.of(Fill(1 << 60, 7)) + b"end"

    assert len(cord) == (1 << 60) + 3
    assert bytes(cord[(1 << 60) - 2 :]) == b"\x07\x07end"
    assert cord[1 << 59] == 7
    assert cord.find(b"end", (1 << 60) - 10) == 1 << 60
    cord.check_invariants()


@pytest.mark.parametrize("byte", [0, 1, 255])
@pytest.mark.parametrize("rest", [[], [1]])
def test_a_fill_is_seen_as_views_of_at_most_one_mebibyte(byte: int, rest: list[int]) -> None:
    views = list(Cord.of(Fill(2 * MEBIBYTE + sum(rest), byte)).chunks())

    assert [view.nbytes for view in views] == [MEBIBYTE, MEBIBYTE, *rest]
    assert all(bytes(view) == bytes([byte]) * view.nbytes for view in views)


def test_deferred_bytes_are_produced_when_read_and_not_kept() -> None:
    chunk = Produced(b"abcdef")
    cord = Cord.of(chunk)
    part = cord[2:4]
    assert chunk.times == 0

    assert bytes(cord) == b"abcdef"
    assert bytes(part) == b"cd"
    assert bytes(part[1:]) == b"d"

    assert chunk.times == 3


def test_reading_behind_a_deferred_chunk_does_not_produce_it() -> None:
    first, second = Produced(b"abc"), Produced(b"def")
    cord = Cord.of(first, second)

    assert cord[3] == ord("d")
    assert bytes(cord[3:]) == b"def"
    assert cord[2] == ord("c")

    assert (first.times, second.times) == (1, 2)


@pytest.mark.parametrize("size", [2, 4])
def test_deferred_bytes_of_another_size_than_promised_are_an_error(size: int) -> None:
    chunk = Produced(bytes(3))
    cord = Cord.of(chunk)
    chunk.data = bytes(size)

    for read in (bytes, Cord.xxh3_128, lambda one: list(one.chunks()), lambda one: one[0]):
        with pytest.raises(CordBundleError, match="Produced produced another number") as caught:
            read(cord)
        assert (caught.value.expected, caught.value.actual) == (3, size)


# Scale ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd() -> tuple[Cord, bytes]:
    """Return a Cord of 100,000 chunks, and its bytes."""
    pieces = [number.to_bytes(3 + number % 7, "little") for number in range(100_000)]
    cord = Cord()
    for piece in pieces:
        cord.append(piece)
    return cord, b"".join(pieces)


def test_a_hundred_thousand_chunks_are_one_cord(crowd: tuple[Cord, bytes]) -> None:
    cord, data = crowd

    assert len(cord._chunks) == 100_000
    assert cord == data
    assert cord.xxh3_128() == xxhash.xxh3_128(data).digest()
    assert b"".join(bytes(part) for part in cord.parts(997)) == data
    assert cord.find(data[-300:]) == data.find(data[-300:])
    cord.check_invariants()


def watch_sizes(monkeypatch: pytest.MonkeyPatch) -> list[Chunk]:
    """Return a list that grows by each chunk whose size is looked at."""
    looked_at: list[Chunk] = []
    size_of = chunks_module.size_of

    def watched(chunk: Chunk) -> int:
        looked_at.append(chunk)
        return size_of(chunk)

    monkeypatch.setattr(cord_module, "size_of", watched)
    return looked_at


def test_a_slice_looks_only_at_its_own_chunks(
    crowd: tuple[Cord, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    cord, data = crowd
    looked_at = watch_sizes(monkeypatch)

    for start in range(0, len(data), len(data) // 1000):
        assert cord[start : start + 20] == data[start : start + 20]

    assert len(looked_at) < 1001 * 80


def test_appending_a_chunk_does_not_look_at_the_others(
    crowd: tuple[Cord, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    cord = copy.copy(crowd[0])
    looked_at = watch_sizes(monkeypatch)

    cord.append(b"abc")

    assert len(looked_at) == 1


def test_threads_read_one_cord_at_once(mixed: tuple[Cord, bytes]) -> None:
    cord, data = mixed
    wrong: list[str] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        reader = cord.open()
        for _ in range(100):
            start = chance.randrange(len(data))
            stop = start + chance.randrange(10_000)
            reader.seek(start)
            if bytes(cord[start:stop]) != data[start:stop]:
                wrong.append(f"slice {start}:{stop}")
            if reader.read(stop - start) != data[start:stop]:
                wrong.append(f"read {start}:{stop}")

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


# The checker itself --------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [[4, 6], [3, 5], [3, 6, 6], [3]])
def test_wrong_ends_are_found(ends: list[int]) -> None:
    cord = Cord(b"abc") + b"def"
    cord._ends = ends

    with pytest.raises(CordBundleError, match="chunk ends are wrong"):
        cord.check_invariants()


@pytest.mark.parametrize(
    ("view", "ok"),
    [
        (memoryview(b"abcd"), True),
        (memoryview(bytearray(b"abcd")), False),
        (memoryview(b"abcdefgh")[::2], False),
        (memoryview(b"abcd").cast("B", (2, 2)), False),
        (memoryview(b"abcd").cast("c"), False),
    ],
    ids=["flat", "writable", "gaps", "two dimensions", "another format"],
)
def test_a_memory_chunk_that_is_not_flat_read_only_bytes_is_found(
    view: memoryview, ok: bool
) -> None:
    cord = Cord.of(view)

    if ok:
        cord.check_invariants()
        assert bytes(cord) == b"abcd"
    else:
        with pytest.raises(CordBundleError, match="not flat read-only bytes"):
            cord.check_invariants()


def test_a_range_past_the_end_of_its_file_is_found(path: Path) -> None:
    (chunk,) = Cord.from_file(path)._chunks
    assert isinstance(chunk, FileRange)
    cord = Cord.of(FileRange(chunk.source, 1, chunk.size))

    with pytest.raises(CordBundleError, match="passes the end"):
        cord.check_invariants()


def test_a_file_cut_after_planning_is_an_error_and_not_zeros(path: Path) -> None:
    cord = Cord.from_file(path)
    os.truncate(path, MEBIBYTE + 1)

    for read in (bytes, Cord.xxh3_128, lambda one: list(one.chunks()), lambda one: one[-1]):
        with pytest.raises(SourceChangedError, match="the size changed") as caught:
            read(cord)
        assert (caught.value.expected, caught.value.actual) == (2109497, MEBIBYTE + 1)


def test_plus_equals_appends_in_place() -> None:
    cord = alias = Cord(b"a")

    cord += b"b"

    assert alias is cord
    assert cord == b"ab"


def test_reading_to_the_end_gives_the_rest_in_one_piece() -> None:
    reader = (Cord(b"abc") + b"def").open()
    reader.seek(2)

    assert reader.read() == b"cdef"
    assert (reader.read(), reader.tell()) == (b"", 6)


def test_collecting_views_and_their_exporters_together_is_safe() -> None:
    """A PickleBuffer over a memoryview breaks the interpreter here, before Python 3.13."""
    code = """
import gc
from array import array
from cordbundle.cord import Cord
class Ring:
    pass
gc.set_threshold(1)
for _ in range(3000):
    view = memoryview(array("f", range(6))).cast("B").cast("f", (2, 3))
    cord = Cord(view)
    ring = Ring()
    ring.ring = ring
    ring.chunk = next(cord.chunks())
    ring.view = view
    ring.part = ring.chunk[2:5]
    del ring, view, cord
print("alive")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )

    assert (done.stdout, done.stderr) == ("alive\n", "")


# Many at once --------------------------------------------------------------------------------


def test_bytes_are_held_themselves() -> None:
    data = b"never changes"
    cord = Cord()

    cord.append(data)
    cord.extend([data])

    assert [chunk is data for chunk in cord.raw_chunks] == [True, True]
    assert Cord(data).raw_chunks[0] is data
    assert cord[3:].raw_chunks[1] is data


@pytest.mark.parametrize(
    "pieces",
    [
        [b"abc", b"", b"de"],
        [b"abc", bytearray(b"de"), memoryview(b"fgh")[1:]],
        [Cord(b"ab") + b"cd", b"", Cord(), Cord.of(Fill(3))],
        [b"", b""],
        [],
    ],
    ids=str,
)
@pytest.mark.parametrize("start", [b"", b"before"])
def test_extending_is_appending_one_after_the_other(start: bytes, pieces: list[bytes]) -> None:
    extended, appended = Cord(start), Cord(start)

    extended.extend(iter(pieces))
    for piece in pieces:
        appended.append(piece)

    assert bytes(extended) == bytes(appended)
    assert extended.chunk_ends == appended.chunk_ends
    assert extended.is_memory == appended.is_memory
    extended.check_invariants()


@pytest.mark.parametrize("bad", ["text", 5, None])
def test_extending_by_what_is_no_bytes_takes_nothing(bad: object) -> None:
    cord = Cord(b"as it was")

    with pytest.raises(TypeError):
        cord.extend([b"abc", bad])  # type: ignore[list-item]

    assert cord == b"as it was"


@pytest.mark.parametrize("piece", [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc", Cord()])
def test_a_single_piece_is_no_iterable_of_pieces(piece: object) -> None:
    with pytest.raises(TypeError, match=r"one piece; use append\(\)"):
        Cord().extend(piece)  # type: ignore[arg-type]


def test_a_cord_knows_whether_all_of_it_is_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"file")
    memory = Cord(b"a") + bytearray(b"b")
    mixed = memory + Cord.from_file(tmp_path / "file")

    assert memory.is_memory and copy.copy(memory).is_memory and memory[1:].is_memory
    assert not (mixed.is_memory or copy.copy(mixed).is_memory or mixed[1:].is_memory)
    assert not Cord.of(b"a", Fill(1)).is_memory


def test_a_part_of_a_part_of_a_deferred_chunk_is_a_part_of_the_whole() -> None:
    whole = Produced(b"0123456789")

    (part,) = Cord.of(whole)[2:9][3:5].raw_chunks

    assert isinstance(part, chunks_module.Slice)
    assert part.whole is whole
    assert bytes(part.produce()) == b"56"


def test_the_same_bytes_are_one_by_identity_however_they_are_held() -> None:
    data = b"held twice"

    assert Cord(data).identity() == Cord(memoryview(data)).identity()
    assert Cord(data)[2:5].identity() == Cord(memoryview(data)[2:5]).identity()
