"""Writing `.ptd` files: golden bytes, alignment, sharing, and reading them back."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.cord import Cord, Fill
from cordbundle.layout import MAX_ALIGNMENT

GOLDEN = (
    b"D\0\0\0FT01FH01(\0\0\0"
    b"0\0\0\0\0\0\0\0\xd0\0\0\0\0\0\0\0"  # flatbuffer: offset 48, 208 bytes
    b"\0\1\0\0\0\0\0\0\x13\0\0\0\0\0\0\0"  # segments: offset 256, 19 bytes
    b"\0\0\0\0\0\0\0\0\0\0\n\0\f\0\0\0"
    b"\4\0\b\0\n\0\0\0x\0\0\0\4\0\0\0"
    b"\2\0\0\0,\0\0\0\f\0\0\0\b\0\f\0"
    b"\4\0\b\0\b\0\0\0\b\0\0\0\1\0\0\0"
    b"\1\0\0\0k\0\n\0\x0e\0\4\0\0\0\b\0"
    b"\n\0\0\0004\0\0\0\x10\0\0\0\0\0\n\0"
    b"\x10\0\7\0\b\0\f\0\n\0\0\0\0\0\0\6"
    b"\x10\0\0\0\4\0\0\0\1\0\0\0\0\0\0\0"
    b"\1\0\0\0\2\0\0\0\1\0\0\0w\0\0\0"
    b"\2\0\0\0000\0\0\0\f\0\0\0\b\0\x18\0"
    b"\4\0\f\0\b\0\0\0\x10\0\0\0\0\0\0\0"
    b"\3\0\0\0\0\0\0\0\0\0\0\0\b\0\f\0"
    b"\0\0\4\0\b\0\0\0\b\0\0\0\0\0\0\0"
    b"\0\0\x80?\0\0\0@\0\0\0\0\0\0\0\0"  # w, padded to 16
    b"abc"
)


def floats(*values: float) -> array[float]:
    return array("f", values)


def test_a_tensor_and_a_blob_have_these_bytes() -> None:
    cord = cb.serialize_ptd({"w": floats(1, 2), "k": b"abc"}, segment_alignment=16)

    assert bytes(cord) == GOLDEN


def test_a_file_reads_back_as_what_was_written() -> None:
    loaded = cb.load_ptd(GOLDEN)

    weight, blob = loaded["w"], loaded["k"]
    assert list(loaded) == ["w", "k"]
    assert isinstance(weight, cb.TensorView)
    assert (weight.scalar_type, weight.sizes) == (cb.ScalarType.FLOAT, (2,))
    assert weight.data == floats(1, 2).tobytes()
    assert blob == b"abc"


def test_saving_sorts_names_and_serializing_keeps_their_order(tmp_path: Path) -> None:
    tensors = {"b": floats(1), "a": floats(2)}
    path = tmp_path / "weights.ptd"

    report = cb.save_ptd(tensors, path)

    assert report.nbytes == path.stat().st_size
    assert list(cb.load_ptd(path)) == ["a", "b"]
    assert list(cb.load_ptd(cb.serialize_ptd(tensors))) == ["b", "a"]


def test_what_was_loaded_stays_as_it_was_when_its_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "weights.ptd"
    cb.save_ptd({"w": floats(1, 2, 3)}, path)

    loaded = cb.load_ptd(path)
    cb.save_ptd({"w": floats(9)}, path)

    weight = loaded["w"]
    assert isinstance(weight, cb.TensorView)
    assert weight.data == floats(1, 2, 3).tobytes()


def test_equal_blobs_are_stored_once() -> None:
    file = cb.open(cb.serialize_ptd({"a": b"same", "b": floats(1), "c": b"same"}))

    assert isinstance(file, cb.PtdFile)
    assert len(file.segment_ranges) == 2
    assert bytes(file["c"].cord if isinstance(file["c"], cb.TensorView) else file["c"]) == b"same"


def test_no_payload_is_copied_and_a_change_before_the_write_counts() -> None:
    weights = floats(*range(5000))
    cord = cb.serialize_ptd({"w": weights})

    weights[0] = 7

    assert bytes(cord).endswith(weights.tobytes())


@pytest.mark.parametrize(
    ("segment", "asked"), [(1, 1), (3, 1), (100, 16), (128, 4096), (65536, 3), (16, 65536)]
)
def test_every_blob_is_aligned_from_the_start_of_the_file(segment: int, asked: int) -> None:
    store = cb.NamedDataStore()
    store.add_named_data("a", b"first", 1, "file")
    store.add_named_data("b", b"second", asked, "file")
    store.add_named_data("c", b"second", 5, "file")

    payload = store.get_named_data_store_output().payload("file")
    file = cb.open(cb.serialize_ptd(payload, segment_alignment=segment))

    assert isinstance(file, cb.PtdFile)
    first, second = file.segment_ranges
    assert first.offset % segment == 0
    assert second.offset % segment == second.offset % asked == second.offset % 5 == 0
    assert second.offset + second.size == len(file.cord)
    file.check()


@pytest.mark.parametrize("alignment", [0, -1, True, 1.5, MAX_ALIGNMENT + 1])
def test_a_segment_alignment_that_cannot_be_honoured_is_refused(alignment: object) -> None:
    with pytest.raises(cb.LayoutError, match="alignment of segments"):
        cb.serialize_ptd({"a": b"x"}, segment_alignment=alignment)  # type: ignore[arg-type]  # meant


def test_alignments_whose_common_multiple_is_absurd_are_refused() -> None:
    store = cb.NamedDataStore()
    store.add_named_data("a", b"one", 65536)
    store.add_named_data("b", b"two", 65537)

    with pytest.raises(cb.LayoutError, match="least common multiple of at most 1048576"):
        cb.serialize_ptd(cb.DataPayload(store.buffers, store.pte_data), segment_alignment=1)


def test_a_dimension_of_two_to_the_31_is_refused_by_its_key() -> None:
    layout = cb.TensorLayout(cb.ScalarType.BYTE, (2**31,), (0,))
    store = cb.NamedDataStore()
    store.add_named_data("fits", floats(1))
    store.add_named_data("huge", b"", tensor_layout=layout)

    with pytest.raises(cb.LayoutError, match=r"key 'huge': .*2147483648"):
        cb.serialize_ptd(cb.DataPayload(store.buffers, store.pte_data))


def test_empty_blobs_keep_their_keys() -> None:
    loaded = cb.load_ptd(cb.serialize_ptd({"empty": b"", "none": floats()}))

    assert list(loaded) == ["empty", "none"]
    assert loaded["empty"] == b""
    assert isinstance(loaded["none"], cb.TensorView)


def test_a_first_blob_of_size_0_shares_its_offset_with_the_second() -> None:
    file = cb.open(cb.serialize_ptd({"empty": b"", "full": b"x"}))

    assert isinstance(file, cb.PtdFile)
    assert [(place.offset % 128, place.size) for place in file.segment_ranges] == [(0, 0), (0, 1)]
    assert file.segment_ranges[0].offset == file.segment_ranges[1].offset


def test_nothing_at_all_is_a_file_too() -> None:
    cord = cb.serialize_ptd({})

    assert cb.load_ptd(cord) == {}
    assert len(cord) % 128 == 0


def test_keys_that_begin_with_each_other_and_long_ones_are_kept() -> None:
    names = ["a", "ab", "k" * 70_000, "größe"]

    assert list(cb.load_ptd(cb.serialize_ptd({name: name.encode() for name in names}))) == names


def test_a_large_blob_takes_no_memory() -> None:
    cord = cb.serialize_ptd({"zeros": Cord.of(Fill(1 << 40)), "w": floats(1)})

    loaded = cb.load_ptd(cord)

    assert len(loaded["zeros"]) == 1 << 40  # type: ignore[arg-type]  # a Cord


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.ptd"
    path.write_bytes(GOLDEN[:-1])
    with pytest.raises(cb.TruncatedError, match="1 byte short"):
        cb.load_ptd(path)
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(cb.FormatError, match="git lfs pull"):
        cb.load_ptd(path)
    with pytest.raises(cb.FormatError, match="another kind of file"):
        cb.load_ptd(cb.serialize_pte(schema.Program(execution_plan=[])))


def test_thousands_of_file_backed_blobs_need_few_descriptors(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    blobs = {}
    for number in range(1500):
        path = tmp_path / str(number)
        path.write_bytes(b"%d" % number)
        blobs[f"k{number}"] = path
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
    try:
        data = bytes(cb.serialize_ptd(blobs))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert cb.load_ptd(data)["k1499"] == b"1499"
    assert os.path.getsize(tmp_path / "1499") == 4


def content(blob: object) -> object:
    """Return what a loaded blob is, comparable."""
    if isinstance(blob, cb.TensorView):
        return blob.scalar_type, blob.sizes, blob.dim_order, blob.nbytes, bytes(blob.cord)
    return bytes(blob)  # type: ignore[call-overload]  # a Cord


def outcome(load: Callable[[], Mapping[str, object]]) -> object:
    """Return what loading gives, or class and text of its error."""
    try:
        return {key: content(blob) for key, blob in load().items()}
    except cb.CordBundleError as error:
        return type(error), str(error)


def one_by_one(data: bytes) -> Mapping[str, object]:
    with cb.open(data) as file:
        assert isinstance(file, cb.PtdFile)
        return {key: file[key] for key in file}


def test_loading_all_gives_what_each_key_gives_whatever_byte_is_damaged() -> None:
    shapes = {"a": (2, 3), "b": (2, 3), "longer": (), "tensor": (1, 0)}
    tensors: dict[str, object] = {
        key: cb.TensorView(cb.ScalarType.CHAR, sizes, None, cb.Cord(bytes(math.prod(sizes))))
        for key, sizes in shapes.items()
    }
    sound = bytes(cb.serialize_ptd({**tensors, "blob": b"no tensor"}, segment_alignment=16))
    failed = 0

    for at in range(len(sound)):
        for change in (0x01, 0x04, 0x80, 0xFF):
            damaged = sound[:at] + bytes([sound[at] ^ change]) + sound[at + 1 :]
            together = outcome(lambda damaged=damaged: cb.load_ptd(damaged))  # type: ignore[misc]
            apart = outcome(lambda damaged=damaged: one_by_one(damaged))  # type: ignore[misc]
            assert together == apart, (at, change)
            failed += isinstance(together, tuple)
    assert failed > 100


def test_a_loaded_tensor_cuts_its_bytes_out_once() -> None:
    view = cb.load_ptd(bytes(cb.serialize_ptd({"a": array("f", [1.0, 2.0])})))["a"]

    assert isinstance(view, cb.TensorView)
    assert view.cord is view.cord
    assert (view.nbytes, bytes(view.cord)) == (8, array("f", [1.0, 2.0]).tobytes())
