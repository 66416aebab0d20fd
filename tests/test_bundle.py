"""Bundling: what the bytes of a bundle are, in each form."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import xxhash

import cordbundle as cb
from cordbundle import bpte_schema
from cordbundle.flatbuffer import Reader, byte_range
from tests.support import bundle_file, bytes_read, floats, program, sparse_program, suite, tensor

FORMS: tuple[Literal["bp08", "segmented", "detached"], ...] = ("bp08", "segmented", "detached")
LARGE = (32, 64)  # 8 KiB of float32: a segment
SMALL = (2, 3)


def large_case(start: float = 0.0) -> cb.MethodTestCase:
    return cb.MethodTestCase([floats(LARGE, start), floats(SMALL)], [floats(LARGE, start + 1)])


def large_program() -> bytes:
    return program([tensor(LARGE), tensor(SMALL)], [tensor(LARGE)])


@pytest.mark.parametrize("alignment", [16, 64, 4096, 16384, 65536])
def test_the_program_stands_untouched_at_its_alignment(examples: Path, alignment: int) -> None:
    pte = (examples / "mlp.pte").read_bytes()
    bundle = cb.bundle(examples / "mlp.pte", [], alignment=alignment)
    data = bytes(bundle.cord)
    offset = data.index(pte)
    assert offset % alignment == 0
    assert data.count(pte) == 1
    (place,) = [p for p in bundle.layout.placements if p.name == "program"]
    assert (place.offset, place.size) == (offset, len(pte))
    assert place.alignment == max(alignment, 32)  # the schema's, where it is a flatbuffer vector


@pytest.mark.parametrize("digest", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_what_was_bundled_comes_out_again(
    form: Literal["bp08", "segmented", "detached"], digest: bool
) -> None:
    pte, case = large_program(), large_case()
    bundle = cb.bundle(
        pte, [suite(case)], form=form, digest=digest, named_data={"b": b"blob", "a": floats(LARGE)}
    )
    file = bundle_file(bundle)
    assert file.form == form
    assert file.program == (b"" if form == "detached" else pte)
    assert {key: bytes(blob) for key, blob in file.named_data.items()} == {
        "a": floats(LARGE).tobytes(),
        "b": b"blob",
    }
    (stored,) = file.suite("forward").test_cases
    views = [*stored.inputs, *stored.expected_outputs]
    assert [bytes(view.cord) for view in views if isinstance(view, cb.TensorView)] == [
        floats(LARGE).tobytes(),
        floats(SMALL).tobytes(),
        floats(LARGE, 1.0).tobytes(),
    ]
    assert file.verify() == []
    assert len(bundle) == len(bundle.cord) == bundle.layout.end


def test_a_tensor_becomes_a_segment_from_4096_bytes_on() -> None:
    pte = program([tensor([1023]), tensor([1024])])
    bundle = cb.bundle(pte, [suite(cb.MethodTestCase([floats([1023]), floats([1024])]))])
    names = [place.name for place in bundle.layout.placements]
    assert names == ["forward/0/input 1", "program"]
    assert bundle.layout.placements[0].alignment == 64


def test_in_bp08_a_large_vector_is_reached_by_the_flatbuffer_field_alone() -> None:
    pte, case = large_program(), large_case()
    data = bytes(cb.bundle(pte, [suite(case)]).cord)
    root = Reader(data).root(bpte_schema.BundledProgram)
    place = byte_range(root, "program")
    assert place is not None
    assert data[place.offset : place.offset + place.size] == pte
    assert int.from_bytes(data[place.offset - 4 : place.offset], "little") == len(pte)
    assert root.program == pte


def test_in_the_segmented_form_data_fields_are_present_and_empty() -> None:
    data = bytes(cb.bundle(large_program(), [suite(large_case())], form="segmented").cord)
    root = Reader(data).root(bpte_schema.BundledProgram)
    assert data[4:8] == b"BPS1"
    assert byte_range(root, "program") is not None
    assert root.program == b""
    assert root.method_test_suites is not None
    cases = root.method_test_suites[0].test_cases
    assert cases is not None and cases[0].inputs is not None
    large = cases[0].inputs[0].val
    assert isinstance(large, bpte_schema.Tensor)
    assert byte_range(large, "data") is not None
    assert large.data == b""
    assert large.data_segment == 1


def test_the_extended_header_says_where_everything_is() -> None:
    bundle = cb.bundle(large_program(), [suite(large_case())], digest=False)
    data = bytes(bundle.cord)
    assert data[4:16] == b"BP08bh00\x38\0\0\0"
    numbers = [int.from_bytes(data[at : at + 8], "little") for at in range(16, 48, 8)]
    layout = bundle.layout
    assert numbers == [64, layout.head_size - 64, layout.base, layout.end - layout.base]
    assert data[48:72] == bytes(24)


def test_digests_are_of_the_bytes_they_say() -> None:
    bundle = cb.bundle(large_program(), [suite(large_case())], named_data={"k": b"v" * 100})
    data = bytes(bundle.cord)
    root = Reader(data).root(bpte_schema.BundledProgram)
    assert root.segments is not None
    assert len(root.segments) == 4
    for segment, place in zip(root.segments, bundle.layout.placements, strict=True):
        assert segment.xxh3_128 == xxhash.xxh3_128_digest(data[place.offset : place.end])
    covered = data[:48] + bytes(16) + data[64 : bundle.layout.base]
    assert data[48:64] == xxhash.xxh3_128_digest(covered)


def test_a_bundle_without_segments_digests_all_of_itself() -> None:
    bundle = cb.bundle(program([]), [], form="detached")
    data = bytes(bundle.cord)
    assert bundle.layout.placements == ()
    assert data[48:64] == xxhash.xxh3_128_digest(data[:48] + bytes(16) + data[64:])


def test_equal_blobs_stand_once_at_a_common_alignment() -> None:
    pte, same = large_program(), floats(LARGE)
    case = cb.MethodTestCase([same, floats(SMALL)], [floats(LARGE)])
    bundle = cb.bundle(pte, [suite(case, case)], named_data={"again": pte, "w": same.tobytes()})
    assert [(p.name, p.alignment) for p in bundle.layout.placements] == [
        ("forward/0/input 0", 64),
        ("program", 4096),
    ]
    file = bundle_file(bundle)
    assert file.named_data["again"] == pte
    assert file.verify() == []


def test_blobs_that_differ_in_their_last_byte_stay_apart() -> None:
    blobs = {"a": b"x" * 9999 + b"a", "b": b"x" * 9999 + b"b"}
    file = bundle_file(cb.bundle(program([]), [], named_data=blobs))
    assert {key: bytes(blob) for key, blob in file.named_data.items()} == blobs


def test_named_data_comes_from_files_buffers_cords_and_arrays_in_the_order_of_keys(
    tmp_path: Path,
) -> None:
    (tmp_path / "f").write_bytes(b"file")
    blobs = {"z": tmp_path / "f", "é": b"bytes", "a": cb.Cord(b"co") + b"rd", "M": floats([2])}
    file = bundle_file(cb.bundle(program([]), [], named_data=blobs))
    assert [(key, bytes(blob)) for key, blob in file.named_data.items()] == [
        ("M", floats([2]).tobytes()),
        ("a", b"cord"),
        ("z", b"file"),
        ("é", b"bytes"),
    ]


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800"])
def test_a_key_that_no_c_string_can_hold_is_refused(key: str) -> None:
    with pytest.raises(cb.LayoutError, match="key cannot be stored"):
        cb.bundle(program([]), [], named_data={key: b""})


@pytest.mark.parametrize("alignment", [0, -1, True, 1.5, 8, 24, 100, 1 << 21, "4096"], ids=repr)
def test_an_alignment_that_is_no_power_of_two_from_16_is_refused(alignment: object) -> None:
    with pytest.raises(cb.LayoutError, match="alignment of the program"):
        cb.bundle(program([]), [], alignment=alignment)  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize("alignment", [3, 8, 1 << 21])
def test_a_refused_alignment_is_told_with_the_whole_range(alignment: int) -> None:
    with pytest.raises(cb.LayoutError) as caught:
        cb.bundle(program([]), [], alignment=alignment)

    assert caught.value.expected == "a power of two from 16 to 1048576"
    assert caught.value.actual == str(alignment)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(cb.LayoutError, match="unknown form: found zip, expected bp08"):
        cb.bundle(program([]), [], form="zip")  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize("form", ["bp08", "auto"])
def test_a_program_of_4_gib_is_refused_unread_with_the_forms_that_fit(
    tmp_path: Path, form: Literal["bp08", "auto"]
) -> None:
    sparse_program(tmp_path / "big.pte", program([]), 4 << 30)
    before = bytes_read()
    with pytest.raises(cb.TooLargeError) as caught:
        cb.bundle(tmp_path / "big.pte", [], form=form, check=False)
    assert bytes_read() - before < 1 << 20
    text = str(caught.value)
    assert str(4 << 30) in text
    assert "detached" in text and "segmented" in text
    assert isinstance(caught.value, ValueError)


def test_a_bp08_bundle_may_reach_up_to_4_gib_and_no_byte_further(tmp_path: Path) -> None:
    size = (4 << 30) - 4096 - 1
    sparse_program(tmp_path / "big.pte", program([]), size)
    bundle = cb.bundle(tmp_path / "big.pte", [], digest=False)
    assert bundle.layout.end == (4 << 30) - 1
    sparse_program(tmp_path / "big.pte", program([]), size + 1)
    with pytest.raises(cb.TooLargeError):
        cb.bundle(tmp_path / "big.pte", [], digest=False)


def test_named_data_beyond_4_gib_does_not_hinder_bp08(tmp_path: Path) -> None:
    sparse_program(tmp_path / "weights", b"w", 5 << 30)
    bundle = cb.bundle(program([]), [], named_data={"w": tmp_path / "weights"}, digest=False)
    assert bundle.form == "bp08"
    file = bundle_file(bundle)
    assert len(file.named_data["w"]) == 5 << 30
    assert file.program == program([])


def test_a_bundle_can_be_written_more_than_once(tmp_path: Path, examples: Path) -> None:
    bundle = cb.bundle(examples / "mlp.pte", [])
    for name in ("one", "two"):
        assert bundle.write(tmp_path / name).nbytes == len(bundle)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() == bytes(bundle.cord)


def test_the_bytes_depend_on_the_inputs_alone(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import cordbundle as cb\n"
        "from tests.test_bundle import large_case, large_program\n"
        "from tests.support import suite\n"
        "blobs = dict.fromkeys(sorted({'a', 'b', 'c', 'd'}, key=hash), b'x' * 9)\n"
        "b = cb.bundle(large_program(), [suite(large_case())], named_data=blobs)\n"
        "print(b.cord.xxh3_128().hex())\n"
    )
    root = str(Path(__file__).resolve().parent.parent)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script, root],
            env={"PYTHONHASHSEED": str(seed), "PATH": ""},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in range(3)
    }
    assert len(outputs) == 1


def test_chunking_of_the_program_does_not_change_the_bytes() -> None:
    pte = large_program()
    whole = cb.bundle(pte, [suite(large_case())])
    pieces = cb.Cord()
    for at in range(0, len(pte), 7):
        pieces.append(pte[at : at + 7])
    assert bytes(cb.bundle(pieces, [suite(large_case())]).cord) == bytes(whole.cord)


def test_a_file_that_became_another_after_planning_is_not_bundled(
    tmp_path: Path, examples: Path
) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes((examples / "mlp.pte").read_bytes())
    bundle = cb.bundle(path, [])
    path.write_bytes(b"another")
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(cb.SourceChangedError, match=r"m\.pte"):
        bundle.write(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"old"


@pytest.mark.parametrize("form", FORMS)
def test_every_changed_bit_is_found(form: Literal["bp08", "segmented", "detached"]) -> None:
    blobs = {"k": b"v"}
    bundle = cb.bundle(
        large_program(), [suite(large_case())], form=form, alignment=16, named_data=blobs
    )
    data = bytearray(bytes(bundle.cord))
    choices = random.Random(1)
    for at in [*range(600), *choices.sample(range(600, len(data)), 400)]:
        bit = 1 << choices.randrange(8)
        data[at] ^= bit
        with pytest.raises(cb.CordBundleError):
            cb.open(bytes(data)).check()
        data[at] ^= bit
    cb.open(bytes(data)).check()


@pytest.mark.parametrize("form", FORMS)
def test_a_bundle_cut_anywhere_is_refused(
    form: Literal["bp08", "segmented", "detached"],
) -> None:
    data = bytes(cb.bundle(program([tensor(SMALL)]), [], form=form, alignment=16).cord)
    for size in range(len(data)):
        with pytest.raises(cb.FormatError):
            cb.open(data[:size]).check()
    cb.open(data).check()


def test_a_small_tensor_is_part_of_the_metadata_and_no_chunk_of_its_own() -> None:
    pte = program([tensor([2, 3])], [tensor([2, 3])])
    cases = [cb.MethodTestCase([floats([2, 3], i)], [floats([2, 3], -i)]) for i in range(100)]

    bundle = cb.bundle(pte, [suite(*cases)], form="detached", digest=False)

    assert len(bundle.cord.raw_chunks) < 5
    stored = bundle_file(bundle).suite("forward").test_cases
    assert [bytes(case.inputs[0].cord) for case in stored] == [  # type: ignore[attr-defined]
        floats([2, 3], i).tobytes() for i in range(100)
    ]
