"""Named data: keys, sharing, what counts when several are added, and external files."""

from __future__ import annotations

import copy
import hashlib
import os
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle.cord import Cord, Deferred
from cordbundle.inputs import blob_cord
from cordbundle.named_data import blob_segments, check_key

LAYOUT = cb.TensorLayout(cb.ScalarType.FLOAT, (2,), (0,))
OTHER = cb.TensorLayout(cb.ScalarType.FLOAT, (1, 2), (0, 1))


class Unreadable(Deferred):
    """A blob whose bytes must not be looked at."""

    def produce(self) -> memoryview:
        raise RuntimeError("the bytes were looked at")


class FileBackedData:
    """As ExecuTorch's: a file whose size was noted, deleted when the object dies."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._size = path.stat().st_size

    def __len__(self) -> int:
        return self._size

    def __del__(self) -> None:
        Path(self._path).unlink(missing_ok=True)


def store(**blobs: object) -> cb.NamedDataStore:
    made = cb.NamedDataStore()
    for key, blob in blobs.items():
        made.add_named_data(key, blob)
    return made


# Adding --------------------------------------------------------------------------------------


def test_blobs_are_kept_as_they_were_added_and_entries_say_what_was_asked() -> None:
    first, second = b"one", Cord(b"two")
    made = cb.NamedDataStore()

    made.add_named_data("a", first)
    made.add_named_data("b", second, 16, "weights", LAYOUT)

    output = made.get_named_data_store_output()
    assert output.buffers[0] is first
    assert output.buffers[1] is second
    assert output.pte_data == {"a": cb.DataEntry(0, 1, None)}
    assert output.external_data == {"weights": {"b": cb.DataEntry(1, 16, LAYOUT)}}


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, Cord, lambda data: array("B", data)]
)
def test_buffers_hold_what_was_added_and_an_output_what_can_be_copied_deeply(
    kind: Callable[[bytes], object],
) -> None:
    added = kind(b"data")
    made = store(key=added)

    assert made.buffers[0] is added
    output = copy.deepcopy(made.get_named_data_store_output())
    assert output.buffers == [b"data"]


def test_a_path_is_kept_as_it_was_added_and_put_out_as_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"x" * 1000)
    made = store(a=path, b=b"y")

    assert made.buffers == [path, b"y"]
    made.externalize_pte_data(1000, "shard")  # counted by its size, not by the length of its name
    output = made.get_named_data_store_output()
    assert output.buffers == [b"x" * 1000, b"y"]
    assert [len(entries) for entries in output.external_data.values()] == [1, 1]


def test_equal_blobs_are_kept_once_whatever_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"same")

    made = store(a=b"same", b=bytearray(b"same"), c=path, d=Cord(b"sa") + b"me", e=b"else")

    assert [entry.buffer_index for entry in made.pte_data.values()] == [0, 0, 0, 0, 1]
    assert len(made.buffers) == 2


def test_blobs_that_agree_in_size_and_first_bytes_alone_stay_apart() -> None:
    made = store(a=b"A" * 64 + b"x", b=b"A" * 64 + b"y", c=b"A" * 64 + b"x")

    assert [entry.buffer_index for entry in made.pte_data.values()] == [0, 1, 0]


def test_no_byte_is_read_of_blobs_of_different_sizes() -> None:
    made = store(**{f"k{n}": Cord.of(Unreadable(n)) for n in range(1, 100)})

    assert len(made.buffers) == 99


def test_an_array_is_held_by_reference_with_its_layout() -> None:
    numbers = array("f", [1.0, 2.0])
    made = store(weight=numbers)

    assert made.pte_data["weight"].tensor_layout == LAYOUT
    numbers[0] = 3.0
    assert made.buffers[0] is numbers
    output = made.get_named_data_store_output()
    assert output.buffers[0] == array("f", [3.0, 2.0]).tobytes()


def test_a_layout_that_is_not_the_arrays_is_refused() -> None:
    with pytest.raises(cb.LayoutError, match=r"key 'w': .*layout.*FLOAT \[1, 2\].*FLOAT \[2\]"):
        cb.NamedDataStore().add_named_data("w", array("f", [1.0, 2.0]), 1, None, OTHER)


def test_an_array_that_cannot_be_stored_is_refused_by_its_key() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(cb.LayoutError, match=r"key 'spectrum': .*complex64"):
        store(spectrum=numpy.zeros(3, "c8"))


@pytest.mark.parametrize("blob", [None, 3, "missing", [b"x"]])
def test_what_is_no_blob_is_an_error_and_changes_nothing(blob: object) -> None:
    made = store(a=b"one")

    with pytest.raises((TypeError, OSError)):
        made.add_named_data("b", blob)

    assert (made.buffers, list(made.pte_data)) == ([b"one"], ["a"])


# Keys and alignments -------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", b"a", None, 3])
def test_a_key_that_no_file_can_hold_is_refused(key: object) -> None:
    with pytest.raises(cb.LayoutError, match="key cannot be stored"):
        cb.NamedDataStore().add_named_data(key, b"")  # type: ignore[arg-type]  # meant


@pytest.mark.parametrize("key", ["k" * 70_000, "a", "ab", " ", "größe", "😀", "../x"])
def test_any_other_key_is_kept(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("alignment", [0, -1, True, 1.5, "16", (1 << 20) + 1])
def test_an_alignment_that_is_no_positive_number_is_refused_by_the_key(alignment: object) -> None:
    with pytest.raises(cb.LayoutError, match="alignment of key 'w'"):
        cb.NamedDataStore().add_named_data("w", b"x", alignment)  # type: ignore[arg-type]  # meant


# The same key again --------------------------------------------------------------------------


def test_the_same_key_with_other_data_is_an_error_that_names_it() -> None:
    made = store(key=b"data")

    with pytest.raises(cb.DuplicateKeyError, match=r"key 'key'.*found 5 bytes, expected 4 bytes"):
        made.add_named_data("key", b"data1")
    with pytest.raises(cb.DuplicateKeyError, match="4 bytes that differ"):
        made.add_named_data("key", b"Data")

    assert made.buffers == [b"data"]


def test_the_same_key_with_the_same_data_takes_alignment_and_missing_layout() -> None:
    made = cb.NamedDataStore()
    made.add_named_data("key", b"12345678", 16)
    before = made.pte_data["key"]

    made.add_named_data("key", b"12345678", 6, None, LAYOUT)
    made.add_named_data("key", b"12345678", 1)

    assert made.pte_data["key"] == cb.DataEntry(0, 48, LAYOUT)
    assert before == cb.DataEntry(0, 16, None)


@pytest.mark.parametrize(
    ("tag", "layout", "text"),
    [
        pytest.param("file", OTHER, r"FLOAT \[1, 2\].*FLOAT \[2\]", id="layout"),
        pytest.param("other", None, "external tag 'other'.*external tag 'file'", id="tag"),
        pytest.param(None, None, "found the program, expected external tag 'file'", id="program"),
    ],
)
def test_another_layout_or_tag_is_an_error_with_both(
    tag: str | None, layout: cb.TensorLayout | None, text: str
) -> None:
    made = cb.NamedDataStore()
    made.add_named_data("key", b"12345678", 16, "file", LAYOUT)

    with pytest.raises(cb.DuplicateKeyError, match=text):
        made.add_named_data("key", b"12345678", 16, tag, layout)

    assert made.external_data == {"file": {"key": cb.DataEntry(0, 16, LAYOUT)}}
    assert made.pte_data == {}


def test_an_absurd_common_alignment_is_refused_and_changes_nothing() -> None:
    made = cb.NamedDataStore()
    made.add_named_data("key", b"x", 65536)

    with pytest.raises(cb.LayoutError, match="alignment of key 'key'"):
        made.add_named_data("key", b"x", 65537)

    assert made.pte_data["key"].alignment == 65536


# Merging and copying -------------------------------------------------------------------------


def test_merging_adds_keys_and_shares_equal_blobs() -> None:
    one, two = store(a=b"same"), cb.NamedDataStore()
    two.add_named_data("b", b"other", 8)
    two.add_named_data("c", b"same", 32, "file", LAYOUT)

    one.merge_named_data_store(two.get_named_data_store_output())

    assert one.buffers == [b"same", b"other"]
    assert one.pte_data == {"a": cb.DataEntry(0, 1), "b": cb.DataEntry(1, 8)}
    assert one.external_data == {"file": {"c": cb.DataEntry(0, 32, LAYOUT)}}


def test_a_deep_copy_shares_blobs_and_is_independent() -> None:
    original = store(a=memoryview(b"one"), b=array("f", [1.0]))

    copied = copy.deepcopy(original)
    copied.add_named_data("c", b"one")
    copied.add_named_data("a", b"one", 64)
    copied.add_named_data("d", b"new")

    assert list(original.pte_data) == ["a", "b"]
    assert len(original.buffers) == 2
    assert original.pte_data["a"].alignment == 1
    assert [entry.buffer_index for entry in copied.pte_data.values()] == [0, 1, 0, 2]
    assert copied.buffers[1] is original.buffers[1]
    assert copied.get_named_data_store_output().buffers == [
        b"one",
        array("f", [1.0]).tobytes(),
        b"new",
    ]


def test_buffers_that_were_set_by_hand_are_known_to_what_is_added_later() -> None:
    made = store(a=b"one")
    made.buffers = [b"zero", b"zero", b"two"]
    made.pte_data, made.key_to_buffer_idx = {"z": cb.DataEntry(1, 1)}, {"z": 1}

    made.add_named_data("b", b"two")
    made.add_named_data("c", b"one")

    assert made.buffers == [b"zero", b"zero", b"two", b"one"]
    assert made.pte_data["b"].buffer_index == 2
    assert made.pte_data["c"].buffer_index == 3


def test_an_output_leaves_out_tags_without_keys() -> None:
    made = cb.NamedDataStore()
    made.external_data["empty"] = {}

    assert made.get_named_data_store_output().external_data == {}


# Externalizing -------------------------------------------------------------------------------


def test_blobs_are_packed_in_key_order_into_files_below_the_cap() -> None:
    blobs = {"d": b"4" * 4, "a": b"1" * 6, "c": b"3" * 5, "b": b"2" * 4, "z": b"1" * 6}
    forward, backward = store(**blobs), store(**dict(reversed(blobs.items())))

    forward.externalize_pte_data(10, "w")
    backward.externalize_pte_data(10, "w")

    assert [list(entries) for entries in forward.external_data.values()] == [
        ["a", "b", "z"],
        ["c", "d"],
    ]
    assert list(forward.external_data) == list(backward.external_data)
    assert list(forward.external_data)[1] == "w_" + hashlib.sha256(b"c\0d").hexdigest()
    assert forward.pte_data == {}


def test_a_blob_above_the_cap_changes_nothing() -> None:
    made = store(a=b"1" * 6, b=b"2" * 11)
    made.add_named_data("e", b"e", 1, "file")
    before = copy.deepcopy((made.pte_data, made.external_data))

    with pytest.raises(cb.LayoutError, match="key 'b': buffer 1 exceeds external data shard cap"):
        made.externalize_pte_data(10, "w")

    assert (made.pte_data, made.external_data) == before


def test_a_tag_that_is_there_with_other_contents_changes_nothing() -> None:
    tag = "w_" + hashlib.sha256(b"a").hexdigest()
    made = store(a=b"1")
    made.add_named_data("e", b"e", 1, tag)

    with pytest.raises(cb.LayoutError, match="external data tag collision"):
        made.externalize_pte_data(10, "w")

    assert list(made.pte_data) == ["a"]
    assert list(made.external_data[tag]) == ["e"]


@pytest.mark.parametrize(("cap", "prefix"), [(0, "w"), (True, "w"), (1.5, "w"), (10, "")])
def test_a_cap_or_prefix_of_another_kind_is_refused(cap: object, prefix: str) -> None:
    with pytest.raises(cb.LayoutError, match=r"positive integer|nonempty"):
        store(a=b"1").externalize_pte_data(cap, prefix)  # type: ignore[arg-type]  # meant


# Segments ------------------------------------------------------------------------------------


def test_a_blob_is_one_segment_aligned_for_all_of_its_keys() -> None:
    entries = {"a": cb.DataEntry(1, 3), "b": cb.DataEntry(0, 0), "c": cb.DataEntry(1, 4)}

    named = blob_segments([b"zero", b"one", b"unnamed"], entries, 8)

    assert [(s.name, bytes(s.data), s.alignment) for s in named.segments] == [
        ("key 'a'", b"one", 24),
        ("key 'b'", b"zero", 8),
    ]
    assert named.index == {"a": 0, "b": 1, "c": 0}


def test_blobs_at_two_places_are_two_segments_even_if_they_are_equal() -> None:
    entries = {"a": cb.DataEntry(0, 1), "b": cb.DataEntry(1, 1)}

    assert len(blob_segments([b"same", b"same"], entries).segments) == 2


@pytest.mark.parametrize("index", [2, -1])
def test_an_entry_without_a_blob_is_refused_by_its_key(index: int) -> None:
    with pytest.raises(cb.LayoutError, match="key 'a': no such blob"):
        blob_segments([b"", b""], {"a": cb.DataEntry(index, 1)})


# File-backed data ----------------------------------------------------------------------------


def test_file_backed_data_is_a_range_of_its_file_and_kept_alive_by_it(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"payload")
    made = store(key=FileBackedData(path))
    assert isinstance(made.buffers[0], FileBackedData)

    cord = blob_cord(made.buffers[0])
    del made

    assert path.exists()
    assert bytes(cord) == b"payload"
    del cord
    assert not path.exists()


def test_file_backed_data_that_changed_size_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"payload")
    data = FileBackedData(path)
    made = store(key=data)
    os.truncate(path, 3)

    with pytest.raises(cb.SourceChangedError, match="found 3, expected 7"):
        cb.serialize_ptd(cb.DataPayload(made.buffers, made.pte_data))


def test_executorchs_cord_of_bytes_and_files_is_taken_by_reference(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"file")

    class ExecuTorchCord:
        def __init__(self) -> None:
            self._buffers = [b"head ", FileBackedData(path), b" tail"]

    assert bytes(blob_cord(ExecuTorchCord())) == b"head file tail"
