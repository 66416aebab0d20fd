"""Files made to blow up when they are rewritten, and names made to lead out of a folder."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle.headers import FLAT_TENSOR_HEADER, PROGRAM_HEADER, HeaderFormat
from cordbundle.rewriting import rewrite
from cordbundle.rewriting.relayout import MAX_GAP
from cordbundle.tags import tensor_data_paths
from cordbundle.weights import read_weights, serialize_weights
from tests.support import bytes_read, program
from tests.test_rewriting import editor, with_payloads

MIB = 1 << 20
FAR = 1 << 40


def pte(*blobs: bytes, alignment: int = 4096) -> bytearray:
    """Return a program with these blobs as segments."""
    edit = editor(program([]))
    edit.move_in({f"key {n}": blob for n, blob in enumerate(blobs)}, alignment=alignment)
    return bytearray(bytes(edit.finish().cord))


def ptd() -> bytearray:
    """Return weights with two blobs, 4096 bytes apart."""
    return bytearray(bytes(cb.serialize_ptd({"a": b"one", "b": b"two"}, segment_alignment=4096)))


def write_spread(path: Path, data: bytearray, form: HeaderFormat, gap: int, where: str) -> None:
    """Write a file whose first or second blob stands `gap` bytes further on, behind a hole."""
    at = form.offset_of("segment_base_offset")
    base, size = struct.unpack_from("<QQ", data, at)
    split = base + (4096 if where == "second" else 0)
    if where == "first":
        struct.pack_into("<Q", data, at, base + gap)
    else:
        slot = data.index(struct.pack("<Q", 4096), 64)  # in the segment table
        struct.pack_into("<Q", data, slot, 4096 + gap)
        struct.pack_into("<Q", data, at + 8, size + gap)
    with path.open("wb") as file:
        file.write(data[:split])
        file.seek(split + gap)
        file.write(data[split:])


CRAFTED = [(pte(b"one", b"two"), PROGRAM_HEADER), (ptd(), FLAT_TENSOR_HEADER)]


@pytest.mark.parametrize("where", ["first", "second"])
@pytest.mark.parametrize(("data", "form"), CRAFTED, ids=["pte", "ptd"])
def test_a_hole_of_a_tebibyte_before_a_segment_is_neither_read_nor_made_again(
    tmp_path: Path, data: bytearray, form: HeaderFormat, where: str
) -> None:
    path = tmp_path / "crafted"
    write_spread(path, bytearray(data), form, FAR, where)
    before = bytes_read()

    with cb.open(path) as file, pytest.raises(cb.FormatError, match="is no padding") as caught:
        rewrite(file)

    assert str(FAR)[:4] in str(caught.value.actual)
    assert bytes_read() - before < MIB


@pytest.mark.parametrize("where", ["first", "second"])
@pytest.mark.parametrize(("data", "form"), CRAFTED, ids=["pte", "ptd"])
def test_a_gap_that_some_alignment_may_have_made_is_kept(
    tmp_path: Path, data: bytearray, form: HeaderFormat, where: str
) -> None:
    path = tmp_path / "padded"
    gap = MAX_GAP - 4096
    write_spread(path, bytearray(data), form, gap, where)

    with cb.open(path) as file:
        result = rewrite(file)
        assert result.cord == file.cord
    assert result.changes == ()


def test_an_editor_refuses_a_hole_of_a_tebibyte(tmp_path: Path) -> None:
    path = tmp_path / "crafted.pte"
    write_spread(path, pte(b"one", b"two"), PROGRAM_HEADER, FAR, "second")

    with cb.open(path) as file, pytest.raises(cb.FormatError, match="gap before segment 1"):
        cb.PteEditor(file)


def test_merged_weights_are_as_large_as_their_blobs_however_far_these_stood(
    tmp_path: Path,
) -> None:
    path = tmp_path / "crafted.ptd"
    write_spread(path, ptd(), FLAT_TENSOR_HEADER, FAR, "second")

    (merged,) = serialize_weights({w.key: w for w in read_weights(path)}, None, 16, "x").values()

    assert len(merged) < 1000


def test_an_alignment_of_the_file_is_not_given_to_what_would_be_mostly_padding() -> None:
    edit = editor(bytes(pte(b"one", b"two", alignment=MIB)))
    blobs = {f"new {n}": bytes([n]) for n in range(64)}

    with pytest.raises(cb.LayoutError, match="would waste space") as caught:
        edit.move_in(blobs)
    assert "64 new segments" in str(caught.value)
    assert edit.finish().changes == ()

    edit.move_in(blobs, alignment=MIB)  # who asks for it gets it
    assert len(edit.finish()) > 64 * MIB


@pytest.mark.parametrize("more", [0, 1])
def test_padding_up_to_the_size_of_all_data_and_the_largest_gap_is_no_waste(more: int) -> None:
    source = bytes(pte(b"one", b"two", alignment=MIB))
    edit = editor(source)
    count = (len(source) + MAX_GAP) // MIB + 1
    missing = count * MIB - len(source) - MAX_GAP - more
    blobs = {f"new {n}": bytes([n]) for n in range(count - 1)}
    blobs["large"] = bytes(missing - len(blobs))

    if more:
        with pytest.raises(cb.LayoutError, match="would waste space"):
            edit.move_in(blobs)
    else:
        edit.move_in(blobs)
        assert len(edit.finish()) > count * MIB


def test_payloads_do_not_get_an_alignment_of_the_file_that_would_be_mostly_padding() -> None:
    edit = editor(with_payloads(*(bytes([n]) * 9 for n in range(64))))
    edit.align_segments(MIB)
    wide = editor(edit.finish().cord)

    with pytest.raises(cb.LayoutError, match="would waste space"):
        wide.extract_delegates()
    assert wide.finish().changes == ()


# Names.


def test_a_link_in_the_folder_does_not_lead_external_data_out_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (folder / "weights.ptd").symlink_to(victim)

    with pytest.raises(cb.LayoutError, match="a link that leads out of its folder"):
        cb.write_all(tensor_data_paths({"weights": cb.Cord(b"new")}, folder))
    assert victim.read_bytes() == b"precious"


def test_a_link_to_nothing_outside_makes_no_file_there(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "weights.ptd").symlink_to(tmp_path / "new")

    with pytest.raises(cb.LayoutError, match="a link that leads out of its folder"):
        tensor_data_paths({"weights": cb.Cord(b"new")}, folder)


def test_links_to_the_folder_and_inside_of_it_are_followed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    (folder / "weights.ptd").symlink_to("real.ptd")

    cb.write_all(tensor_data_paths({"weights": cb.Cord(b"new")}, tmp_path / "link"))

    assert (folder / "real.ptd").read_bytes() == b"new"


@pytest.mark.parametrize("tag", ["CON", "nul", "Aux.ptd", "com1.x.ptd", "lpt9 "])
def test_a_tag_that_names_a_device_on_windows_is_refused_there(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(tensor_data_paths({tag: cb.Cord()}, tmp_path)) == 1

    monkeypatch.setattr(os, "name", "nt")
    with pytest.raises(cb.LayoutError, match="is no file name"):
        tensor_data_paths({tag: cb.Cord()}, str(tmp_path))
