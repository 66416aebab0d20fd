"""Opening files: what each kind is, what strangers are, and how long things live."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb
from cordbundle import bpte_schema, ptd_schema
from cordbundle import program as pte_schema
from cordbundle import program as schema
from cordbundle.flatbuffer import Reader, VectorView, encode
from cordbundle.headers import (
    FLAT_TENSOR_HEADER,
    PROGRAM_HEADER,
    ExtendedHeader,
    flatbuffer_with_header,
)
from tests.support import bundle_file, bytes_read, floats, program, sparse_program, suite, tensor

STRANGERS = {
    "Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    ),
    "HTML page": b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>",
    "zip archive": b"PK\x03\x04" + bytes(60),
    "safetensors": b"\x40\0\0\0\0\0\0\0{" + bytes(80),
    "JSON": b'{"error": "not found", "code": 404}',
    "zeros": bytes(4096),
    "gzip": b"\x1f\x8b\x08\0" + bytes(60),
}


@pytest.mark.parametrize("word", STRANGERS)
def test_a_stranger_is_refused_saying_what_it_looks_like(tmp_path: Path, word: str) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(STRANGERS[word])
    for attempt in (lambda: cb.open(path), lambda: cb.bundle(path, [])):
        with pytest.raises(cb.FormatError) as caught:
            attempt()
        assert str(path) in str(caught.value)
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("data", "text"), [(b"", "an empty file"), (b"abc", "3 bytes"), (b"ab\0\0ET1", "7 bytes")]
)
def test_a_file_too_short_for_anything_is_refused(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "short.pte"
    path.write_bytes(data)
    with pytest.raises(cb.TruncatedError, match=f"found {text}, expected at least 8 bytes"):
        cb.open(path)


def test_a_program_cut_to_30_bytes_is_refused_with_what_is_missing(examples: Path) -> None:
    data = (examples / "mlp.pte").read_bytes()
    text = r"extended header.*found 30 bytes, expected at least 40"
    with pytest.raises(cb.TruncatedError, match=text):
        cb.open(data[:30])


def test_a_download_that_is_short_is_told_by_how_much(examples: Path) -> None:
    data = (examples / "mlp.pte").read_bytes()
    with pytest.raises(cb.TruncatedError, match="a download or copy is 1 byte short"):
        cb.open(data[:-1])


def test_a_bundle_given_as_a_program_is_refused(tmp_path: Path, examples: Path) -> None:
    path = tmp_path / "m.bpte"
    cb.bundle(examples / "mlp.pte", []).write(path)
    with pytest.raises(cb.FormatError) as caught:
        cb.bundle(path, [])
    assert "m.bpte" in str(caught.value)
    assert "b'BP08', a bundled program (.bpte)" in str(caught.value)


@pytest.mark.parametrize("identifier", [b"ET11", b"ET13", b"FT02", b"BP07", b"BPS2"])
def test_another_version_of_a_known_kind_is_told_from_a_stranger(identifier: bytes) -> None:
    with pytest.raises(cb.UnsupportedVersionError, match="unknown version of"):
        cb.open(b"\x20\0\0\0" + identifier + bytes(100))


def test_a_folder_and_a_missing_file_keep_the_systems_words(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cb.open(tmp_path / "nothing.pte")
    with pytest.raises(cb.FormatError, match="found a folder, expected a regular file"):
        cb.open(tmp_path)


def test_the_kind_of_a_file_is_told_by_its_bytes_and_not_by_its_name(
    tmp_path: Path, examples: Path
) -> None:
    data = (examples / "mlp.pte").read_bytes()
    (tmp_path / "weights.ptd").write_bytes(data)
    assert isinstance(cb.open(tmp_path / "weights.ptd"), cb.PteFile)
    assert isinstance(cb.open(data), cb.PteFile)
    assert isinstance(cb.open(cb.Cord(data)), cb.PteFile)
    assert isinstance(cb.open(bytes(cb.bundle(data, []).cord)), cb.BundleFile)


def test_views_and_cords_outlive_the_file_object(tmp_path: Path) -> None:
    pte, sizes = program([tensor([64, 64])]), [64, 64]
    cb.bundle(pte, [suite(cb.MethodTestCase([floats(sizes)]))]).write(tmp_path / "b.bpte")
    with cb.open(tmp_path / "b.bpte") as file:
        assert isinstance(file, cb.BundleFile)
        view, cord = file.suites[0].test_cases[0].inputs[0], file.program
    assert file.closed
    os.remove(tmp_path / "b.bpte")
    del file
    gc.collect()
    assert isinstance(view, cb.TensorView)
    assert view.data == floats(sizes).tobytes()
    assert cord == pte


def test_a_closed_file_says_so(examples: Path) -> None:
    file = cb.open(examples / "mlp.pte")
    file.close()
    file.close()
    with pytest.raises(ValueError, match=r"mlp\.pte is closed"):
        file.verify()


def test_an_open_file_is_not_pickled(examples: Path) -> None:
    import pickle

    with pytest.raises(TypeError, match="pickle its path"):
        pickle.dumps(cb.open(examples / "mlp.pte"))


def test_a_thousand_opens_leave_no_descriptor(examples: Path) -> None:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("the system does not list descriptors")
    before = len(list(folder.iterdir()))
    for _ in range(1000):
        with cb.open(examples / "mlp.pte") as file:
            assert isinstance(file, cb.PteFile)
            assert len(file.methods) == 1
    del file
    gc.collect()
    assert len(list(folder.iterdir())) == before


def test_a_users_buffer_refuses_to_be_resized_while_views_hold_it(examples: Path) -> None:
    data = bytearray((examples / "mlp.pte").read_bytes())
    file = cb.open(data)
    with pytest.raises(BufferError):
        data.append(0)
    file.close()
    del file
    gc.collect()
    data.append(0)
    assert len(data) == (examples / "mlp.pte").stat().st_size + 1


def test_threads_may_read_one_file_object(tmp_path: Path) -> None:
    pte = program([tensor([64, 64])] * 20)
    case = cb.MethodTestCase([floats([64, 64], 100.0 * i) for i in range(20)])
    cb.bundle(pte, [suite(case)]).write(tmp_path / "b.bpte")
    file = cb.open(tmp_path / "b.bpte")
    assert isinstance(file, cb.BundleFile)
    found: list[list[bytes]] = []

    def read() -> None:
        inputs: Any = file.suites[0].test_cases[0].inputs
        found.append([bytes(view.cord) for view in inputs])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[floats([64, 64], 100.0 * i).tobytes() for i in range(20)]] * 8


def test_opening_a_bundle_of_4_gib_reads_less_than_1_mib(tmp_path: Path) -> None:
    head = program([tensor([2, 3])])
    sparse_program(tmp_path / "big.pte", head, 4 << 30)
    case = cb.MethodTestCase([floats([2, 3])])
    bundle = cb.bundle(
        tmp_path / "big.pte", [suite(*[case] * 100)], form="segmented", check=False, digest=False
    )
    bundle.write(tmp_path / "big.bpte", durability="none")
    before = bytes_read()
    with cb.open(tmp_path / "big.bpte") as file:
        assert isinstance(file, cb.BundleFile)
        assert [len(found.test_cases) for found in file.suites] == [100]
        assert len(file.program) == 4 << 30
    assert bytes_read() - before < 1 << 20


def test_the_header_of_before_executorch_1_0_is_read(examples: Path) -> None:
    data = bytearray((examples / "mlp.pte").read_bytes())
    data[12:16] = (24).to_bytes(4, "little")
    file = cb.open(bytes(data))
    assert isinstance(file, cb.PteFile)
    assert file.header is not None
    assert (file.header.length, file.header.segment_data_size) == (24, None)
    assert [len(segment) for segment in file.segments] == [848]


@pytest.mark.parametrize("length", [0, 8, 23])
def test_a_header_shorter_than_any_version_is_refused(examples: Path, length: int) -> None:
    data = bytearray((examples / "mlp.pte").read_bytes())
    data[12:16] = length.to_bytes(4, "little")
    with pytest.raises(cb.FormatError, match=f"eh00 is too small at offset 12: found {length}"):
        cb.open(bytes(data))


def test_segments_past_the_end_and_in_the_metadata_are_found(examples: Path) -> None:
    data = bytearray((examples / "mlp.pte").read_bytes())
    header = ExtendedHeader(flatbuffer_size=2400, segment_base_offset=1024, segment_data_size=2256)
    packed = PROGRAM_HEADER.pack(header, PROGRAM_HEADER.length)
    data[8 : 8 + len(packed)] = packed
    findings = cb.open(bytes(data)).verify()
    assert [(finding.offset, finding.what) for finding in findings] == [
        (24, "segment base is inside the metadata"),
        (1024, "segment 0 begins inside the metadata"),
    ]


def test_what_a_bundle_says_of_itself(examples: Path) -> None:
    file = bundle_file(cb.bundle(examples / "mlp.pte", []))
    assert repr(file).startswith("<BundleFile ")
    assert file.form == "bp08"
    assert [place.name for place in file.layout.placements] == ["program"]
    with pytest.raises(KeyError):
        file.suite("forward")


def weights_file(root: ptd_schema.FlatTensor) -> cb.PtdFile:
    """Open weights whose metadata is as given, without a byte of data."""
    metadata = encode(root, ptd_schema.FLAT_TENSOR_IDENTIFIER).cord
    header = ExtendedHeader(flatbuffer_offset=48, flatbuffer_size=len(metadata))
    file = cb.open(flatbuffer_with_header(metadata, FLAT_TENSOR_HEADER.pack(header, 48)))
    assert isinstance(file, cb.PtdFile)
    return file


def program_blob() -> object:
    root = pte_schema.Program(named_data=[pte_schema.NamedData("k", 1)])
    file = cb.open(encode(root, pte_schema.PROGRAM_IDENTIFIER).cord)
    assert isinstance(file, cb.PteFile)
    return file.named_data


def weights_blob() -> object:
    return weights_file(ptd_schema.FlatTensor(named_data=[ptd_schema.NamedData("k", 1)]))["k"]


def bundle_blob() -> object:
    root = bpte_schema.BundledProgram(named_data=[bpte_schema.NamedData("k", 1)])
    file = cb.open(encode(root, bpte_schema.BUNDLED_PROGRAM_IDENTIFIER).cord)
    assert isinstance(file, cb.BundleFile)
    return file.named_data


@pytest.mark.parametrize("read", [program_blob, weights_blob, bundle_blob])
def test_a_key_without_a_segment_is_refused_in_every_format(read: Callable[[], object]) -> None:
    text = "segment of key 'k' does not exist: found 1, expected an index below 0"
    with pytest.raises(cb.FormatError, match=text):
        read()


def test_a_scalar_type_that_the_schema_lacks_is_refused_with_those_it_has() -> None:
    entry = ptd_schema.NamedData("k", 0, ptd_schema.TensorLayout(scalar_type=9))
    root = ptd_schema.FlatTensor(segments=[ptd_schema.DataSegment()], named_data=[entry])
    text = r"key 'k' has an unknown scalar type: found 9, expected one of \[0, 1, .*, 29\]"
    with pytest.raises(cb.FormatError, match=text):
        weights_file(root)["k"]


def point_to_first(data: bytearray, vector: object) -> None:
    """Make all elements of a vector of tables point to the first one's table."""
    assert isinstance(vector, VectorView)
    first = vector._first
    target = first + int.from_bytes(data[first : first + 4], "little")
    for at in range(first, first + 4 * len(vector), 4):
        data[at : at + 4] = (target - at).to_bytes(4, "little")


def test_a_bundle_that_reuses_one_case_a_million_times_is_refused_not_walked() -> None:
    values = [bpte_schema.Value(bpte_schema.Int(7)) for _ in range(100)]
    cases = [bpte_schema.BundledMethodTestCase(values)]
    cases += [bpte_schema.BundledMethodTestCase() for _ in range(99)]
    suites = [bpte_schema.BundledMethodTestSuite("f", cases)]
    suites += [bpte_schema.BundledMethodTestSuite("f") for _ in range(99)]
    root = bpte_schema.BundledProgram(method_test_suites=suites, program=b"")
    data = bytearray(bytes(encode(root, b"BP08").cord))
    view = Reader(bytes(data)).root(bpte_schema.BundledProgram)
    assert view.method_test_suites is not None
    inner = view.method_test_suites[0].test_cases
    assert inner is not None
    for vector in (view.method_test_suites, inner, inner[0].inputs):
        point_to_first(data, vector)
    file = cb.open(bytes(data))
    assert isinstance(file, cb.BundleFile)
    for attempt in (lambda: file.suites, lambda: file.layout, file.check):
        with pytest.raises(cb.FormatError, match="used too often"):
            attempt()


def test_a_program_that_reuses_one_method_a_million_times_is_refused_not_walked() -> None:
    operators = [schema.Operator("aten::add", "out") for _ in range(300)]
    plans = [schema.ExecutionPlan(name="f", operators=operators)]
    plans += [schema.ExecutionPlan(name="f") for _ in range(3000)]
    data = bytearray(bytes(encode(schema.Program(execution_plan=plans), b"ET12").cord))
    view = Reader(bytes(data)).root(schema.Program)
    assert view.execution_plan is not None
    for vector in (view.execution_plan, view.execution_plan[0].operators):
        point_to_first(data, vector)
    file = cb.open(bytes(data))
    assert isinstance(file, cb.PteFile)
    for attempt in (lambda: file.methods, file.check, lambda: cb.bundle(bytes(data), [])):
        with pytest.raises(cb.FormatError, match="used too often"):
            attempt()


def test_a_file_may_be_asked_the_same_thing_any_number_of_times(examples: Path) -> None:
    file = bundle_file(cb.bundle(examples / "mlp.pte", [], named_data={"k": b"v"}))
    for _ in range(3000):
        assert [place.name for place in file.layout.placements] == ["program", "named data 'k'"]
