"""Case files: keys, `.npz` and `.safetensors`, sound and damaged."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cordbundle.cases import read_case_files
from cordbundle.cord import FileRange
from cordbundle.errors import (
    CaseMismatchError,
    CordBundleError,
    DuplicateKeyError,
    FormatError,
    LayoutError,
    TruncatedError,
)
from cordbundle.npz import read_npz
from cordbundle.safetensors import read_safetensors
from cordbundle.scalar_types import ScalarType
from cordbundle.tensor_view import TensorView


def npy(descr: str, shape: Sequence[int], data: bytes, *, fortran: bool = False) -> bytes:
    """Return an `.npy` file as NumPy writes it, without its alignment."""
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}\n"
    return with_npy_header(text, data)


def with_npy_header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin-1") + data


def save_npz(path: Path, members: Sequence[tuple[str, bytes]], method: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return path


def save_safetensors(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def described(dtype: object, shape: object, begin: object, end: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def save_keys(path: Path, keys: Sequence[str]) -> Path:
    """Save a tensor of one byte under each key; the byte is the key's place."""
    header = {key: described("U8", [1], place, place + 1) for place, key in enumerate(keys)}
    return save_safetensors(path, header, bytes(range(len(keys))))


def contents(values: Sequence[TensorView]) -> list[bytes]:
    return [bytes(value.cord) for value in values]


def facts(tensors: Mapping[str, TensorView]) -> dict[str, tuple[object, ...]]:
    return {
        key: (view.scalar_type, view.sizes, view.dim_order, bytes(view.cord))
        for key, view in tensors.items()
    }


# Keys


def test_keys_without_a_prefix_are_one_case_of_no_named_method(tmp_path: Path) -> None:
    path = save_keys(tmp_path / "a.safetensors", ["outputs.0", "inputs.1", "inputs.0"])

    (case,) = read_case_files([path])

    assert (case.method, case.index, case.path) == (None, None, str(path))
    assert contents(case.inputs) == [b"\x02", b"\x01"]
    assert contents(case.outputs) == [b"\x00"]


def test_values_are_ordered_by_number_not_as_text(tmp_path: Path) -> None:
    path = save_keys(tmp_path / "a.safetensors", sorted(f"inputs.{i}" for i in range(12)))

    (case,) = read_case_files([path])

    assert contents(case.inputs) == [bytes([i]) for i in (0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3)]


def test_several_files_are_several_cases_in_the_order_of_the_files(tmp_path: Path) -> None:
    second = save_npz(tmp_path / "b.npz", [("inputs.0.npy", npy("|u1", [1], b"b"))])
    first = save_npz(tmp_path / "c.npz", [("inputs.0.npy", npy("|u1", [1], b"c"))])

    cases = read_case_files([first, second])

    assert [contents(case.inputs) for case in cases] == [[b"c"], [b"b"]]


def test_prefixed_keys_are_read_from_the_right_so_that_methods_may_hold_dots(
    tmp_path: Path,
) -> None:
    keys = ["net.2.10.inputs.0", "net.2.9.inputs.0", "inputs.0.0.inputs.0", "größe\n1.0.outputs.0"]
    path = save_keys(tmp_path / "a.safetensors", keys)

    cases = read_case_files([path])

    assert [(case.method, case.index) for case in cases] == [
        ("größe\n1", 0),
        ("inputs.0", 0),
        ("net.2", 9),
        ("net.2", 10),
    ]


def test_a_case_may_have_outputs_alone(tmp_path: Path) -> None:
    (case,) = read_case_files([save_keys(tmp_path / "a.safetensors", ["outputs.0"])])

    assert (case.inputs, len(case.outputs)) == ([], 1)


def test_a_value_of_rank_0_stays_of_rank_0(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "a.npz", [("inputs.0.npy", npy("<i8", [], struct.pack("<q", -3)))])

    (case,) = read_case_files([path])

    assert case.inputs[0].sizes == ()
    assert case.inputs[0].scalar_type is ScalarType.LONG


@pytest.mark.parametrize(
    "key",
    [
        "",
        "input.0",
        "inputs",
        "inputs.",
        "inputs.00",
        "inputs.-1",
        "inputs.1234567890",
        "inputs.٣",
        "inputs.0\n",
        "inputs.0.x",
        "0.inputs.0",
        ".0.inputs.0",
        "forward.01.inputs.0",
        "forward.inputs.0",
    ],
)
def test_a_key_outside_the_grammar_is_refused_by_name(tmp_path: Path, key: str) -> None:
    path = save_keys(tmp_path / "a.safetensors", ["inputs.0", key])

    with pytest.raises(CaseMismatchError) as caught:
        read_case_files([path])

    assert caught.value.source == str(path)
    assert repr(key) in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        (["inputs.0", "inputs.2"], "'inputs.1'"),
        (["inputs.0", "outputs.1"], "'outputs.0'"),
        (["a.b.3.inputs.0", "a.b.3.inputs.2"], "'a.b.3.inputs.1'"),
    ],
)
def test_a_gap_in_the_numbers_is_refused_with_the_missing_key(
    tmp_path: Path, keys: list[str], missing: str
) -> None:
    path = save_keys(tmp_path / "a.safetensors", keys)

    with pytest.raises(CaseMismatchError, match=missing) as caught:
        read_case_files([path])

    assert caught.value.source == str(path)


def test_prefixed_and_unprefixed_keys_in_one_file_are_refused(tmp_path: Path) -> None:
    path = save_keys(tmp_path / "a.safetensors", ["inputs.0", "forward.0.inputs.0"])

    with pytest.raises(CaseMismatchError, match=r"'forward\.0\.inputs\.0' has a prefix") as caught:
        read_case_files([path])

    assert caught.value.source == str(path)


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaseMismatchError, match="no cases"):
        read_case_files([save_safetensors(tmp_path / "a.safetensors", {})])


def test_a_file_of_another_kind_is_refused_by_its_suffix(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"found '\.pkl', expected \.npz or \.safetensors"):
        read_case_files([tmp_path / "a.pkl"])


def test_a_missing_file_is_the_systems_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_case_files([tmp_path / "a.npz"])


# .npz

TWO_BY_THREE = bytes(range(12))


def test_a_stored_array_stays_a_range_of_the_file(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "a.npz", [("x.npy", npy("<i2", [2, 3], TWO_BY_THREE))])

    view = read_npz(path)["x"]

    (chunk,) = view.cord._chunks
    assert isinstance(chunk, FileRange)
    assert path.read_bytes()[chunk.offset : chunk.offset + chunk.size] == TWO_BY_THREE


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_arrays_keep_type_shape_order_and_bytes(tmp_path: Path, method: int) -> None:
    members = [
        ("row.npy", npy("<i2", [2, 3], TWO_BY_THREE)),
        ("column.npy", npy("<i2", [2, 3], TWO_BY_THREE, fortran=True)),
        ("empty.npy", npy("<f8", [0, 4], b"")),
        ("flag.npy", npy("|b1", [], b"\x01")),
    ]

    arrays = read_npz(save_npz(tmp_path / "a.npz", members, method))

    assert facts(arrays) == {
        "row": (ScalarType.SHORT, (2, 3), (0, 1), TWO_BY_THREE),
        "column": (ScalarType.SHORT, (2, 3), (1, 0), TWO_BY_THREE),
        "empty": (ScalarType.DOUBLE, (0, 4), (0, 1), b""),
        "flag": (ScalarType.BOOL, (), (), b"\x01"),
    }


@pytest.mark.parametrize(
    "header",
    [
        "{'shape': (2, 3), 'descr': '<i2', 'fortran_order': False}",
        "{'descr':'<i2','fortran_order':False,'shape':(2,3,),}    \n",
    ],
)
def test_a_header_in_any_order_and_spacing_is_read(tmp_path: Path, header: str) -> None:
    path = save_npz(tmp_path / "a.npz", [("x.npy", with_npy_header(header, TWO_BY_THREE))])

    assert facts(read_npz(path))["x"] == (ScalarType.SHORT, (2, 3), (0, 1), TWO_BY_THREE)


def test_a_header_of_version_2_is_read(tmp_path: Path) -> None:
    old = npy("<i2", [2, 3], TWO_BY_THREE)
    new = b"\x93NUMPY\x02\x00" + old[8:10] + b"\0\0" + old[10:]

    assert read_npz(save_npz(tmp_path / "a.npz", [("x.npy", new)]))["x"].sizes == (2, 3)


def test_what_numpy_saves_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    dtypes = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
    saved = {name: np.arange(24).reshape(2, 3, 4).astype(name) for name in dtypes}
    saved["fortran"] = np.asfortranarray(saved["f4"])
    saved["scalar"] = np.float64(0.5)
    saved["none"] = np.zeros((3, 0), "f4")

    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **saved)
        read = read_npz(tmp_path / "a.npz")

        assert list(read) == list(saved)
        for name, array in saved.items():
            view = read[name].numpy()
            assert (view.dtype, view.shape) == (array.dtype, array.shape)
            assert view.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("content", "error", "match"),
    [
        (npy("|O", [1], b"\x80\x04."), LayoutError, "pickled objects are never read"),
        (npy(">f4", [1], bytes(4)), LayoutError, "big-endian"),
        (npy("|V2", [1], bytes(2)), LayoutError, r"use a \.safetensors file"),
        (npy("<c8", [1], bytes(8)), LayoutError, "'<c8'"),
        (npy("<U1", [1], bytes(4)), LayoutError, "'<U1'"),
        (npy("<f4", [3], bytes(8)), FormatError, r"found 8 bytes, expected 12 bytes"),
        (npy("<f4", [1], bytes(8)), FormatError, r"found 8 bytes, expected 4 bytes"),
        (npy("<f4", [10**18, 10**18], bytes(8)), FormatError, "another size than its shape"),
        (npy("<f4", [1] * 65, bytes(4)), FormatError, "plain array"),
        (npy("<f4", [-1], b""), FormatError, "plain array"),
        (with_npy_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}"),
         FormatError, "plain array"),
        (with_npy_header("{'descr': '<f4', 'descr': '<f4', 'shape': ()}"), FormatError, "plain"),
        (with_npy_header("{'descr': True, 'fortran_order': False, 'shape': ()}"),
         FormatError, "plain array"),
        (with_npy_header("__import__('os').abort()"), FormatError, "plain array"),
        (b"\x93NUMPY\x01\x00\xff\xff{", FormatError, "plain array"),
        (npy("<f4", [0], b"").replace(b"\x3a\x00", b"\x3b\x00", 1), FormatError, "plain array"),
        (npy("<f4", [0], b"").replace(b"NUMPY", b"numpy"), FormatError, r"no \.npy file"),
        (b"\x93NUMPY\x03\x00", FormatError, "version 1 or 2"),
        (b"", FormatError, r"no \.npy file"),
    ],
)  # fmt: skip
def test_an_array_that_cannot_be_taken_is_refused_by_file_and_key(
    tmp_path: Path, content: bytes, error: type[CordBundleError], match: str
) -> None:
    path = save_npz(tmp_path / "a.npz", [("inputs.0.npy", content)])

    with pytest.raises(error, match=match) as caught:
        read_npz(path)

    assert caught.value.source == f"{path}: inputs.0.npy"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_key_that_stands_twice_in_an_archive_is_refused(tmp_path: Path) -> None:
    member = ("x.npy", npy("|u1", [1], b"a"))

    with pytest.raises(DuplicateKeyError, match="'x' stands twice"):
        read_npz(save_npz(tmp_path / "a.npz", [member, member]))


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"'notes\.txt' is no \.npy file"):
        read_npz(save_npz(tmp_path / "a.npz", [("notes.txt", b"hello")]))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_that_numpy_does_not_write_is_refused(tmp_path: Path, method: int) -> None:
    path = save_npz(tmp_path / "a.npz", [("x.npy", npy("|u1", [1], b"a"))], method)

    with pytest.raises(FormatError, match=f"method {method}"):
        read_npz(path)


def test_a_size_that_no_compression_reaches_is_refused_before_it_is_unpacked(
    tmp_path: Path,
) -> None:
    path = save_npz(tmp_path / "a.npz", [("x.npy", bytes(100))], zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 1 << 31)
    path.write_bytes(content)

    with pytest.raises(FormatError, match="stored in an unknown way"):
        read_npz(path)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_stored_member_of_two_sizes_is_refused(tmp_path: Path, change: int) -> None:
    path = save_npz(tmp_path / "a.npz", [("x.npy", bytes(100))])
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 100 + change)
    path.write_bytes(content)

    with pytest.raises(FormatError, match=f"100 bytes for {100 + change}"):
        read_npz(path)


def test_a_member_name_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "a.npz", [("é.npy", npy("|u1", [1], b"a"))])
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xff", 1))

    with pytest.raises(FormatError, match=r"no NumPy archive, or a damaged one .*utf-8"):
        read_npz(path)


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "a.npz", [("x.npy", npy("|u1", [1000], bytes(1000)))])
    content = path.read_bytes()
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    entry = content[start:end]
    ending = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 9, 9, 9 * len(entry), start, 0)
    path.write_bytes(content[:start] + 9 * entry + ending)

    with pytest.raises(FormatError):
        read_npz(path)


def test_an_end_record_too_near_the_beginning_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(
        bytes(17) + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0, 0, 0, 0, 60) + bytes(60)
    )

    with pytest.raises(FormatError, match="no NumPy archive"):
        read_npz(path)


def test_a_flipped_bit_of_a_stored_array_is_found_by_its_checksum(tmp_path: Path) -> None:
    data = bytes(3_000_000) + b"hello"
    path = save_npz(tmp_path / "a.npz", [("x.npy", npy("|u1", [len(data)], data))])
    path.write_bytes(path.read_bytes().replace(b"hello", b"hellp"))

    with pytest.raises(FormatError, match="CRC"):
        read_npz(path)


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"<!DOCTYPE html>", bytes(99)]
)
def test_a_file_that_is_no_archive_is_refused_with_its_first_bytes(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)

    with pytest.raises(FormatError) as caught:
        read_npz(path)

    assert repr(content[:16]) in str(caught.value)


# .safetensors

ONE = described("F32", [1], 0, 4)


def test_a_safetensors_file_gives_ranges_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(
        b"\x5c\x00\x00\x00\x00\x00\x00\x00"
        b'{"__metadata__":{"k":"v"},"x":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}'
        b"         " + TWO_BY_THREE
    )

    tensors = read_safetensors(path)

    assert facts(tensors) == {"x": (ScalarType.BFLOAT16, (2, 3), (0, 1), TWO_BY_THREE)}
    (chunk,) = tensors["x"].cord._chunks
    assert isinstance(chunk, FileRange)
    assert (chunk.offset, chunk.size) == (100, 12)


@pytest.mark.parametrize(
    ("dtype", "scalar_type"),
    [
        ("BOOL", ScalarType.BOOL),
        ("U8", ScalarType.BYTE),
        ("I8", ScalarType.CHAR),
        ("I16", ScalarType.SHORT),
        ("U16", ScalarType.UINT16),
        ("I32", ScalarType.INT),
        ("U32", ScalarType.UINT32),
        ("I64", ScalarType.LONG),
        ("U64", ScalarType.UINT64),
        ("F16", ScalarType.HALF),
        ("BF16", ScalarType.BFLOAT16),
        ("F32", ScalarType.FLOAT),
        ("F64", ScalarType.DOUBLE),
        ("F8_E4M3", ScalarType.FLOAT8E4M3FN),
        ("F8_E5M2", ScalarType.FLOAT8E5M2),
        ("F8_E4M3FNUZ", ScalarType.FLOAT8E4M3FNUZ),
        ("F8_E5M2FNUZ", ScalarType.FLOAT8E5M2FNUZ),
    ],
)
def test_each_data_type_of_safetensors_has_its_scalar_type(
    tmp_path: Path, dtype: str, scalar_type: ScalarType
) -> None:
    size = scalar_type.itemsize
    path = save_safetensors(
        tmp_path / "a.safetensors", {"x": described(dtype, [], 0, size)}, bytes(size)
    )

    assert read_safetensors(path)["x"].scalar_type is scalar_type


def test_what_the_safetensors_library_saves_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    dtypes = [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64, torch.bool]
    saved = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in dtypes}
    library.save_file(saved, tmp_path / "a.safetensors")

    read = read_safetensors(tmp_path / "a.safetensors")

    assert read.keys() == saved.keys()
    for name, tensor in saved.items():
        assert read[name].sizes == (2, 3)
        assert bytes(read[name].cord) == bytes(tensor.view(torch.uint8).flatten().tolist())


@pytest.mark.parametrize(
    ("header", "data", "error", "match"),
    [
        (b"\xff{}", b"", FormatError, "no safetensors file"),
        (b"{\xff}", b"", FormatError, "no JSON"),
        (b"{", b"", FormatError, "no JSON"),
        (b'{"a":' + b'{"a":' * 100_000, b"", FormatError, "no JSON"),
        (b'{"x":{"dtype":"U8","shape":[' + b"9" * 5000 + b"]}}", b"", FormatError, "no JSON"),
        (b'{"x":1,"x":1}', b"", DuplicateKeyError, "'x' stands twice"),
        ({"x": []}, b"", FormatError, "'x' is not described"),
        ({"x": {"dtype": "F32", "shape": [1]}}, b"", FormatError, "'x' is not described"),
        ({"x": {**ONE, "more": 1}}, bytes(4), FormatError, "'x' is not described"),
        ({"x": described("F4", [1], 0, 4)}, bytes(4), LayoutError, "found 'F4'"),
        ({"x": described([], [1], 0, 4)}, bytes(4), LayoutError, r"found \[\]"),
        ({"x": described("F32", 1, 0, 4)}, bytes(4), FormatError, "no sizes"),
        ({"x": described("F32", [True], 0, 4)}, bytes(4), FormatError, "no sizes"),
        ({"x": described("F32", [1.0], 0, 4)}, bytes(4), FormatError, "no sizes"),
        ({"x": described("F32", [-1], 0, 4)}, bytes(4), FormatError, "no sizes"),
        ({"x": described("F32", [1 << 63], 0, 4)}, bytes(4), FormatError, "no sizes"),
        ({"x": described("F32", [1] * 65, 0, 4)}, bytes(4), FormatError, "no sizes"),
        ({"x": {**ONE, "data_offsets": [0, 2, 4]}}, bytes(4), FormatError, "no sizes"),
        ({"x": {**ONE, "data_offsets": [0]}}, bytes(4), FormatError, "no sizes"),
        ({"x": described("F32", [2], 0, 4)}, bytes(4), FormatError, "found 4 bytes, expected 8"),
        ({"x": described("F32", [1 << 62, 1 << 62], 0, 4)}, bytes(4), FormatError, "another size"),
        ({"x": described("F32", [1], 1, 5)}, bytes(5), FormatError, "gap or overlaps"),
        ({"x": ONE, "y": ONE}, bytes(4), FormatError, "'y' leaves a gap or overlaps"),
        ({"x": ONE, "y": described("F32", [0], 4, 2)}, bytes(4), FormatError, "gap or overlaps"),
        ({"x": ONE}, bytes(3), TruncatedError, "found 3 bytes, expected 4 bytes"),
        ({"x": ONE}, bytes(5), FormatError, "bytes after the last tensor"),
    ],
)
def test_a_hostile_header_is_refused_with_what_is_wrong(
    tmp_path: Path, header: object, data: bytes, error: type[CordBundleError], match: str
) -> None:
    path = save_safetensors(tmp_path / "a.safetensors", header, data)

    with pytest.raises(error, match=match) as caught:
        read_safetensors(path)

    assert caught.value.source == str(path)


def test_a_header_that_is_longer_than_the_file_is_refused_before_it_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 99_999_999) + b"{}")

    with pytest.raises(TruncatedError, match="found 2 bytes, expected 99999999 bytes"):
        read_safetensors(path)


def test_a_file_shorter_than_its_first_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"\x02\x00\x00")

    with pytest.raises(TruncatedError, match="found 3 bytes, expected at least 8 bytes"):
        read_safetensors(path)


def test_a_header_length_above_the_limit_of_the_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 100_000_001) + b"{}")

    with pytest.raises(FormatError, match="no safetensors file"):
        read_safetensors(path)


# Damage


def sound_files(folder: Path) -> list[Path]:
    members = [
        ("inputs.0.npy", npy("<i2", [2, 3], TWO_BY_THREE)),
        ("outputs.0.npy", npy("<f4", [], bytes(4))),
    ]
    header = {"inputs.0": ONE, "outputs.0": described("BF16", [2, 2], 4, 12)}
    return [
        save_npz(folder / "stored.npz", members),
        save_npz(folder / "deflated.npz", members, zipfile.ZIP_DEFLATED),
        save_safetensors(folder / "a.safetensors", header, bytes(12)),
    ]


@pytest.mark.parametrize("which", range(3))
def test_a_file_cut_at_any_byte_is_an_error_of_the_tree(tmp_path: Path, which: int) -> None:
    path = sound_files(tmp_path)[which]
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])

        with pytest.raises(FormatError):
            read_case_files([path])


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_file_with_any_byte_changed_is_read_or_an_error_of_the_tree(
    tmp_path: Path, which: int, mask: int
) -> None:
    path = sound_files(tmp_path)[which]
    content = bytearray(path.read_bytes())
    outcomes = {"read": 0, "refused": 0}
    for place in range(len(content)):
        content[place] ^= mask
        path.write_bytes(content)
        try:
            read_case_files([path])
            outcomes["read"] += 1
        except CordBundleError as error:
            assert str(path) in str(error)
            outcomes["refused"] += 1
        content[place] ^= mask

    assert sum(outcomes.values()) == len(content)
    assert outcomes["refused"] > len(content) // 3
