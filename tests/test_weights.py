"""Weights: safetensors files as `.ptd` files, split, merged, and compared with a program."""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.cord import FileRange
from cordbundle.flatbuffer import encode
from cordbundle.weights import (
    ptd_weights,
    read_weights,
    serialize_weights,
    shard_paths,
    unique,
)
from cordbundle.weights_check import WeightsCheck, check_weights
from tests.support import bytes_read

ITEM_SIZES = {"U8": 1, "BF16": 2, "F32": 4, "I64": 8}
Tensors = Mapping[str, tuple[str, Sequence[int], bytes]]


def save(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Path:
    """Write a safetensors file of (dtype, shape, bytes) by name, in this order."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def save_sparse(path: Path, shapes: Mapping[str, Sequence[int]]) -> Path:
    """Write a safetensors file of bytes by shape, all of them a hole."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + prod(shape)
        header[name] = {"dtype": "U8", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(file.tell() + end)
    return path


def f32(*values: float) -> tuple[str, list[int], bytes]:
    return "F32", [len(values)], struct.pack(f"<{len(values)}f", *values)


def save_index(folder: Path, files: Mapping[str, object]) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": files}))
    return path


def facts(file: cb.Cord) -> dict[str, tuple[object, ...]]:
    """Return what a `.ptd` file holds."""
    return {
        key: (blob.scalar_type.name, blob.sizes, bytes(blob.cord))
        if isinstance(blob, cb.TensorView)
        else (bytes(blob),)
        for key, blob in cb.load_ptd(file).items()
    }


def tensor(sizes: Sequence[int], data: bytes, scalar_type: cb.ScalarType) -> cb.TensorView:
    return cb.TensorView(scalar_type, sizes, None, cb.Cord(data))


# from safetensors


def test_the_file_is_the_one_that_the_arrays_themselves_give(tmp_path: Path) -> None:
    long, brain = struct.pack("<2q", 1, -1), b"\0\1\2\3\4\5\6\7\x08\x09\x0a\x0b"
    path = save(tmp_path / "w.safetensors", {"b": ("BF16", [2, 3], brain), "a": ("I64", [2], long)})

    file = cb.ptd_from_safetensors(path)

    assert bytes(file) == bytes(
        cb.serialize_ptd(
            {
                "a": tensor([2], long, cb.ScalarType.LONG),
                "b": tensor([2, 3], brain, cb.ScalarType.BFLOAT16),
            }
        )
    )


def test_the_order_in_the_files_and_the_number_of_files_do_not_change_the_bytes(
    tmp_path: Path,
) -> None:
    tensors = {"c": f32(3), "a": f32(1), "b": f32(2)}
    one = save(tmp_path / "one", tensors)
    turned = save(tmp_path / "turned", dict(reversed(tensors.items())), {"format": "pt"})
    parts = [save(tmp_path / name, {name: tensors[name]}) for name in tensors]

    expected = bytes(cb.ptd_from_safetensors(one))

    assert list(cb.load_ptd(expected)) == ["a", "b", "c"]
    assert bytes(cb.ptd_from_safetensors([turned])) == expected
    assert bytes(cb.ptd_from_safetensors(iter(parts))) == expected


def test_every_tensor_is_a_range_of_its_file(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", {"a": f32(1, 2), "b": f32(3)})

    file = cb.ptd_from_safetensors(str(path))

    ranges = [chunk for chunk in file._chunks if isinstance(chunk, FileRange)]
    end = path.stat().st_size
    assert {chunk.source.path for chunk in ranges} == {str(path)}
    assert [(chunk.offset, chunk.size) for chunk in ranges] == [(end - 12, 8), (end - 4, 4)]


@pytest.mark.parametrize("max_bytes", [None, 4 << 30])
def test_no_tensor_is_read_not_even_to_find_equal_ones(
    tmp_path: Path, max_bytes: int | None
) -> None:
    path = save_sparse(tmp_path / "w.safetensors", {"a": [4, 1 << 30], "b": [4, 1 << 30]})

    before = bytes_read()
    if max_bytes is None:
        files: Sequence[cb.Cord] = [cb.ptd_from_safetensors(path)]
    else:
        files = cb.ptd_from_safetensors(path, max_bytes=max_bytes)
    after = bytes_read()

    assert sum(map(len, files)) > 8 << 30
    assert after - before < 1 << 16


def test_tensors_without_elements_and_without_dimensions_are_kept(tmp_path: Path) -> None:
    path = save(
        tmp_path / "w.safetensors",
        {"empty": ("F32", [2, 0], b""), "scalar": ("U8", [], b"\7"), "last": ("F32", [0], b"")},
    )

    assert facts(cb.ptd_from_safetensors(path)) == {
        "empty": ("FLOAT", (2, 0), b""),
        "last": ("FLOAT", (0,), b""),
        "scalar": ("BYTE", (), b"\7"),
    }


def test_a_file_without_tensors_is_a_file_without_keys(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", {}, {"format": "pt"})

    assert facts(cb.ptd_from_safetensors(path)) == {}
    assert [facts(file) for file in cb.ptd_from_safetensors(path, max_bytes=1)] == [{}]


def test_tensors_stand_where_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", {"a": f32(1), "b": f32(2)})

    with cb.PtdFile(cb.ptd_from_safetensors(path, segment_alignment=4096), "w") as file:
        assert [place.offset for place in file.segment_ranges] == [4096, 8192]
    with cb.PtdFile(cb.ptd_from_safetensors(path), "w") as file:
        assert [place.offset % 128 for place in file.segment_ranges] == [0, 0]
    with pytest.raises(cb.LayoutError, match="alignment"):
        cb.ptd_from_safetensors(path, segment_alignment=0)


def test_what_the_safetensors_package_saves_comes_out_as_it_went_in(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    dtypes = ["float32", "bfloat16", "float16", "int8", "uint16", "bool", "float8_e4m3fn"]
    tensors = {
        f"layer.{name}": torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in dtypes
    }
    save_file(tensors, tmp_path / "w.safetensors", {"format": "pt"})

    cb.write(cb.ptd_from_safetensors(tmp_path / "w.safetensors"), tmp_path / "w.ptd")

    loaded = cb.load_ptd(tmp_path / "w.ptd")
    assert list(loaded) == sorted(tensors)
    for name, expected in tensors.items():
        view = loaded[name]
        assert isinstance(view, cb.TensorView)
        assert view.torch().dtype == expected.dtype
        assert torch.equal(view.torch().view(torch.uint8), expected.view(torch.uint8))


# what cannot be


def test_a_name_in_two_files_is_refused_with_both(tmp_path: Path) -> None:
    one = save(tmp_path / "one.safetensors", {"w": f32(1)})
    two = save(tmp_path / "two.safetensors", {"w": f32(1)})

    with pytest.raises(cb.DuplicateKeyError) as error:
        cb.ptd_from_safetensors([one, two])
    with pytest.raises(cb.DuplicateKeyError, match=r"'w': stands twice in .*one\.safetensors"):
        cb.ptd_from_safetensors([one, one])

    assert str(error.value) == f"key 'w': stands in {one} and in {two}"


@pytest.mark.parametrize(("dtype", "size"), [("C64", 8), ("F8_E8M0", 1), ("F4", 1), (None, 1)])
def test_a_data_type_that_executorch_lacks_is_refused_by_name(
    tmp_path: Path, dtype: Any, size: int
) -> None:
    path = save(tmp_path / "w.safetensors", {"fine": f32(1), "odd": (dtype, [1], bytes(size))})

    with pytest.raises(cb.LayoutError, match=r"w\.safetensors: tensor 'odd' has a data type"):
        cb.ptd_from_safetensors(path)


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_a_name_that_no_file_can_hold_is_refused(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / "w.safetensors", {name: f32(1)})

    with pytest.raises(cb.LayoutError, match=r"w\.safetensors: key cannot be stored"):
        cb.ptd_from_safetensors(path)


def test_a_dimension_of_two_to_the_31_is_refused_by_its_name(tmp_path: Path) -> None:
    path = save_sparse(tmp_path / "w.safetensors", {"fits": [2**31 - 1], "wide": [2**31]})

    with pytest.raises(cb.LayoutError, match=r"key 'wide': dimension 0 is too large"):
        cb.ptd_from_safetensors(path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x10\0\0\0ET12" + bytes(40), r"found ExecuTorch program \(\.pte\)"),
        (b"", "found 0 bytes"),
        (b"<!doctype html><html>", "an HTML page"),
    ],
)
def test_what_is_no_safetensors_file_is_refused_by_what_it_is(
    tmp_path: Path, content: bytes, text: str
) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)

    with pytest.raises(cb.FormatError, match=rf"w\.safetensors: no weights: .*{text}"):
        cb.ptd_from_safetensors(path)


def test_a_ptd_file_is_no_safetensors_file(tmp_path: Path) -> None:
    cb.write(cb.serialize_ptd({"k": b"abc"}), tmp_path / "w.ptd")

    with pytest.raises(cb.FormatError, match=r"found ExecuTorch weights \(\.ptd\)"):
        cb.ptd_from_safetensors(tmp_path / "w.ptd")


def test_a_file_that_is_short_of_its_header_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", {"w": f32(1)})
    os.truncate(path, path.stat().st_size - 1)

    with pytest.raises(cb.TruncatedError, match="data passes the end of the file"):
        cb.ptd_from_safetensors(path)


def test_a_file_that_changes_before_the_write_leaves_the_old_target(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", {"w": f32(1)})
    target = tmp_path / "w.ptd"
    target.write_bytes(b"old")
    file = cb.ptd_from_safetensors(path)
    os.truncate(path, path.stat().st_size - 1)

    with pytest.raises(cb.SourceChangedError):
        cb.write(file, target)

    assert target.read_bytes() == b"old"


# splitting


def test_files_are_filled_in_the_order_of_the_keys(tmp_path: Path) -> None:
    sizes = {"d": 3, "a": 2, "b": 2, "e": 1, "c": 2}
    path = save(tmp_path / "w", {key: ("U8", [size], bytes(size)) for key, size in sizes.items()})

    files = cb.ptd_from_safetensors(path, max_bytes=4)

    assert [list(cb.load_ptd(file)) for file in files] == [["a", "b"], ["c"], ["d", "e"]]


def test_the_packing_is_that_of_a_store(tmp_path: Path) -> None:
    tensors = {
        f"k{number:02}": ("U8", [number + 1], bytes([number] * (number + 1)))
        for number in range(20)
    }
    store = cb.NamedDataStore()
    for key, (_, _, content) in tensors.items():
        store.add_named_data(key, content)
    store.externalize_pte_data(30, "weights")

    files = cb.ptd_from_safetensors(save(tmp_path / "w", tensors), max_bytes=30)

    assert [list(cb.load_ptd(file)) for file in files] == [
        list(entries) for entries in store.external_data.values()
    ]


def test_a_tensor_larger_than_a_file_may_be_is_refused_by_name(tmp_path: Path) -> None:
    path = save(tmp_path / "w", {"a": f32(1), "wide": f32(1, 2, 3)})

    with pytest.raises(cb.LayoutError, match=r"'wide': .*found 12 bytes, expected at most 11"):
        cb.ptd_from_safetensors(path, max_bytes=11)
    assert len(cb.ptd_from_safetensors(path, max_bytes=12)) == 2


@pytest.mark.parametrize("max_bytes", [0, -1, True, 1.5])
def test_a_cap_that_cannot_be_is_refused(tmp_path: Path, max_bytes: Any) -> None:
    path = save(tmp_path / "w", {"a": f32(1)})

    with pytest.raises(cb.LayoutError, match="positive integer"):
        cb.ptd_from_safetensors(path, max_bytes=max_bytes)


def test_shards_are_numbered_behind_the_name() -> None:
    assert shard_paths("d.x/w.ptd", 2) == ["d.x/w-00001-of-00002.ptd", "d.x/w-00002-of-00002.ptd"]
    assert shard_paths("d.x/w", 2) == ["d.x/w-00001-of-00002", "d.x/w-00002-of-00002"]
    assert shard_paths("w.ptd", 1) == ["w.ptd"]


# the index of shards


def test_an_index_stands_for_its_shards(tmp_path: Path) -> None:
    one = save(tmp_path / "1.safetensors", {"b": f32(1), "c": f32(2)})
    two = save(tmp_path / "2.safetensors", {"a": f32(3)})
    index = save_index(tmp_path, {"a": two.name, "b": one.name, "c": one.name})

    assert bytes(cb.ptd_from_safetensors(index)) == bytes(cb.ptd_from_safetensors([one, two]))


@pytest.mark.parametrize(
    "file",
    [
        "../w.safetensors",
        "",
        ".",
        "..",
        "a/../w.safetensors",
        "a\\w",
        "C:w",
        "a\0b",
        "\ud800",
        1,
        None,
    ],
)
def test_a_shard_that_is_not_a_name_in_the_folder_is_refused(tmp_path: Path, file: object) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save(tmp_path / "w.safetensors", {"w": f32(1)})
    save(folder / "w.safetensors", {"w": f32(1)})

    with pytest.raises(cb.FormatError, match="shard of tensor 'w' is not in the folder"):
        cb.ptd_from_safetensors(save_index(folder, {"w": file}))


def test_an_absolute_shard_is_refused_even_in_the_folder(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", {"w": f32(1)})

    with pytest.raises(cb.FormatError, match="not in the folder"):
        cb.ptd_from_safetensors(save_index(tmp_path, {"w": str(path)}))


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_shard_may_be_a_link_inside_the_folder_but_not_out_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    outside = save(tmp_path / "w.safetensors", {"w": f32(1)})
    inside = save(folder / "w.safetensors", {"w": f32(2)})
    (folder / "out").symlink_to(outside)
    (folder / "in").symlink_to(inside)
    (tmp_path / "link").symlink_to(folder)  # the folder itself may be reached by one

    with pytest.raises(cb.FormatError, match=r"'out' is a link that leads out .*name the shards"):
        cb.ptd_from_safetensors(save_index(folder, {"w": "out"}))
    index = save_index(folder, {"w": "in"})
    file = cb.ptd_from_safetensors(tmp_path / "link" / index.name)

    assert bytes(file) == bytes(cb.ptd_from_safetensors(inside))


@pytest.mark.parametrize(
    ("names", "text"), [(["a"], "holds tensor 'b'"), (["a", "b", "c"], "does not hold tensor 'c'")]
)
def test_an_index_that_is_at_odds_with_a_shard_is_refused(
    tmp_path: Path, names: Iterable[str], text: str
) -> None:
    save(tmp_path / "w", {"a": f32(1), "b": f32(2)})

    with pytest.raises(cb.FormatError, match=f"shard 'w' {text}"):
        cb.ptd_from_safetensors(save_index(tmp_path, dict.fromkeys(names, "w")))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"[]", "no JSON object"),
        (b"{", "no JSON"),
        (b"{}", "an object 'weight_map'"),
        (b'{"weight_map": []}', "found list"),
        (b'{"weight_map": {"a": "w", "a": "v"}}', "'a' stands twice"),
    ],
)
def test_what_is_no_index_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(content)

    with pytest.raises(cb.CordBundleError, match=text) as error:
        cb.ptd_from_safetensors(path)
    assert isinstance(error.value, cb.FormatError | cb.DuplicateKeyError)


def test_a_shard_that_is_missing_is_the_systems_own_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        cb.ptd_from_safetensors(save_index(tmp_path, {"w": "gone.safetensors"}))

    assert error.value.filename == str(tmp_path / "gone.safetensors")


def test_an_index_of_an_absurd_size_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    with open(path, "wb") as file:
        file.truncate(100_000_001)

    with pytest.raises(cb.TooLargeError, match="too large for an index"):
        cb.ptd_from_safetensors(path)


# merging


def test_merged_files_keep_what_they_shared_and_what_is_no_tensor(tmp_path: Path) -> None:
    one = cb.serialize_ptd(
        {"b": b"blob", "twin": b"blob", "w": tensor([1], b"\1", cb.ScalarType.BYTE)}
    )
    two = cb.serialize_ptd({"a": b"blob"})

    weights = unique([*ptd_weights(one, "one"), *ptd_weights(two, "two")])
    (merged,) = serialize_weights(weights).values()

    assert facts(merged) == {
        "a": (b"blob",),
        "b": (b"blob",),
        "twin": (b"blob",),
        "w": ("BYTE", (1,), b"\1"),
    }
    with cb.PtdFile(merged, "merged") as file:
        assert len(file.segment_ranges) == 3  # a stays apart: no blob is compared
        assert file.verify() == []


def test_splitting_and_merging_again_gives_the_same_file(tmp_path: Path) -> None:
    path = save(tmp_path / "w", {f"k{number}": f32(number, number) for number in range(9)})
    whole = cb.ptd_from_safetensors(path)

    files = cb.ptd_from_safetensors(path, max_bytes=20)
    weights = unique(
        weight for number, file in enumerate(files) for weight in ptd_weights(file, str(number))
    )
    (merged,) = serialize_weights(weights).values()

    assert len(files) == 5
    assert bytes(merged) == bytes(whole)


def test_a_key_that_stands_twice_in_one_ptd_file_is_refused() -> None:
    file = bytes(cb.serialize_ptd({"k1": b"a", "k2": b"b"})).replace(b"k2", b"k1")

    weights = ptd_weights(cb.Cord(file), "w.ptd")

    assert [weight.key for weight in weights] == ["k1", "k1"]
    with pytest.raises(cb.DuplicateKeyError, match=r"key 'k1': stands twice in w\.ptd"):
        unique(weights)


# compared with a program


def external(
    name: str | None,
    sizes: Sequence[int],
    scalar_type: cb.ScalarType = cb.ScalarType.FLOAT,
    dim_order: Sequence[int] | None = None,
    location: int = 1,
) -> schema.Tensor:
    return schema.Tensor(
        scalar_type=int(scalar_type),
        sizes=list(sizes),
        dim_order=list(range(len(sizes)) if dim_order is None else dim_order),
        extra_tensor_info=schema.ExtraTensorInfo(fully_qualified_name=name, location=location),
    )


def program_of(*methods: Sequence[schema.Tensor], backends: Sequence[str] = ()) -> cb.PteFile:
    plans = [
        schema.ExecutionPlan(
            name=f"method{number}",
            values=[schema.EValue(schema.Int(1)), *map(schema.EValue, values)],
            delegates=[schema.BackendDelegate(id=name) for name in backends],
        )
        for number, values in enumerate(methods)
    ]
    program = encode(schema.Program(execution_plan=plans), schema.PROGRAM_IDENTIFIER).cord
    return cb.PteFile(program, "m.pte")


def compared(program: cb.PteFile, *files: Mapping[str, object]) -> WeightsCheck:
    names = [f"{number}.ptd" for number in range(1, len(files) + 1)]
    return check_weights(
        program,
        [
            weight
            for name, file in zip(names, files, strict=True)
            for weight in ptd_weights(cb.serialize_ptd(file), name)
        ],
    )


W = tensor([2, 1], bytes(8), cb.ScalarType.FLOAT)


def test_a_program_whose_keys_are_all_there_has_no_findings() -> None:
    program = program_of(
        [external("b", [2, 1]), external("here", [1], location=0)],
        [external("a", [2, 1]), external("b", [2, 1])],
    )

    result = compared(program, {"a": W}, {"b": W})

    assert result.keys == ("a", "b")
    assert (result.findings, result.unneeded, result.backends) == ((), (), ())


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (external("v", [2, 1]), "key 'v': missing: expected FLOAT [2, 1]"),
        (
            external("w", [2, 1], cb.ScalarType.HALF),
            "1.ptd: key 'w': another scalar type: found FLOAT [2, 1], expected HALF [2, 1]",
        ),
        (
            external("w", [1, 2]),
            "1.ptd: key 'w': another shape: found FLOAT [2, 1], expected FLOAT [1, 2]",
        ),
        (
            external("w", [2, 1, 1]),
            "1.ptd: key 'w': another shape: found FLOAT [2, 1], expected FLOAT [2, 1, 1]",
        ),
        (
            external("w", [2, 1], dim_order=[1, 0]),
            "1.ptd: key 'w': another dim order: found FLOAT [2, 1],"
            " expected FLOAT [2, 1] in dim order [1, 0]",
        ),
        (
            external("blob", [8], cb.ScalarType.BYTE),
            "1.ptd: key 'blob': has no tensor layout: found 8 bytes, expected BYTE [8]",
        ),
        (external(None, [1]), "key '': missing: expected FLOAT [1]"),
    ],
)
def test_a_key_that_the_runtime_would_refuse_is_a_finding(wanted: schema.Tensor, line: str) -> None:
    result = compared(program_of([wanted]), {"w": W, "blob": b"8 bytes!"})

    assert [str(finding) for finding in result.findings] == [line]


def test_a_key_that_two_methods_take_for_different_things_is_a_finding() -> None:
    program = program_of([external("w", [2, 1])], [external("w", [2])])

    (finding,) = compared(program, {"w": W}).findings

    assert (finding.key, finding.expected) == ("w", "FLOAT [2]")


def test_a_key_in_two_files_is_a_finding_and_one_too_many_is_none() -> None:
    result = compared(program_of([external("w", [2, 1])]), {"w": W, "more": W}, {"w": W})

    assert [str(finding) for finding in result.findings] == [
        "key 'w': ambiguous: found 2, in 1.ptd and 2.ptd, expected one blob"
    ]
    assert [(weight.file, weight.key) for weight in result.unneeded] == [("1.ptd", "more")]


def test_many_of_one_key_on_both_sides_are_compared_with_one_of_the_other() -> None:
    program = program_of([external("w", [size]) for size in range(1, 41)])
    files = [{"w": tensor([3], bytes(12), cb.ScalarType.FLOAT)}] * 30

    findings = [str(it) for it in compared(program, *files).findings]

    assert len(findings) == 1 + 39 + 29
    assert findings[1] == "1.ptd: key 'w': another shape: found FLOAT [3], expected FLOAT [1]"
    assert findings[-1] == "30.ptd: key 'w': another shape: found FLOAT [3], expected FLOAT [1]"


def test_what_a_tensor_of_many_dimensions_is_taken_for_is_shortened() -> None:
    (finding,) = compared(program_of([external("w", [1] * 100)]), {"w": W}).findings

    assert finding.expected == f"FLOAT {[1] * 17}"


def test_the_backends_that_may_look_up_keys_are_told() -> None:
    program = program_of([], [], backends=["XnnpackBackend", "CoreMLBackend"])

    assert compared(program, {}).backends == ("CoreMLBackend", "XnnpackBackend")


def test_safetensors_are_compared_without_being_converted(tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", {"w": f32(1, 2)})

    (finding,) = check_weights(program_of([external("w", [3])]), read_weights(path)).findings

    assert (finding.file, finding.actual, finding.expected) == (str(path), "FLOAT [2]", "FLOAT [3]")


# on the runtime


@pytest.mark.executorch
@pytest.mark.parametrize("max_bytes", [None, 600])
def test_the_runtime_runs_a_program_on_weights_from_safetensors(
    tmp_path: Path, max_bytes: int | None
) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    runtime = pytest.importorskip("executorch.extension.pybindings._C")
    model, x, program = exported(torch)
    (tmp_path / "m.pte").write_bytes(program)
    save_file(model.state_dict(), tmp_path / "w.safetensors")

    files = serialize_weights(
        unique(read_weights(tmp_path / "w.safetensors")), max_bytes, tag="model"
    )
    weights = unique(weight for tag, file in files.items() for weight in ptd_weights(file, tag))
    (merged,) = serialize_weights(weights).values()
    cb.write(merged, tmp_path / "w.ptd")
    with cb.PteFile(cb.Cord(program), "m.pte") as file:
        result = check_weights(file, weights.values())
    loaded = runtime._load_program(str(tmp_path / "m.pte"), data_path=str(tmp_path / "w.ptd"))
    (output,) = loaded.load_method("forward")([x])

    assert len(files) == (1 if max_bytes is None else 3)
    assert (result.findings, result.unneeded) == ((), ())
    assert set(result.keys) == set(model.state_dict())
    torch.testing.assert_close(output, model(x))


@pytest.mark.executorch
@pytest.mark.parametrize("wrong", ["missing", "another scalar type", "another shape"])
def test_what_is_found_wrong_is_what_the_runtime_refuses(tmp_path: Path, wrong: str) -> None:
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    runtime = pytest.importorskip("executorch.extension.pybindings._C")
    model, _, program = exported(torch)
    (tmp_path / "m.pte").write_bytes(program)
    tensors = dict(model.state_dict())
    weight = tensors.pop("linear.weight")
    if wrong != "missing":
        tensors["linear.weight"] = weight.double() if "type" in wrong else weight[:, :4].clone()
    save_file(tensors, tmp_path / "w.safetensors")

    cb.write(cb.ptd_from_safetensors(tmp_path / "w.safetensors"), tmp_path / "w.ptd")
    with cb.PteFile(cb.Cord(program), "m.pte") as file:
        findings = check_weights(file, read_weights(tmp_path / "w.ptd")).findings
    loaded = runtime._load_program(str(tmp_path / "m.pte"), data_path=str(tmp_path / "w.ptd"))
    with pytest.raises(RuntimeError, match="forward"):
        loaded.load_method("forward")

    assert [(finding.key, finding.what) for finding in findings] == [("linear.weight", wrong)]


def exported(torch: Any) -> tuple[Any, Any, bytes]:
    """Return a model, an input, and the model's program without its constants."""
    from executorch.exir import ExecutorchBackendConfig, to_edge

    class Model(torch.nn.Module):  # type: ignore[misc]  # its base is not known without torch
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(16, 8)
            self.linear = torch.nn.Linear(8, 8)
            self.convolution = torch.nn.Conv1d(8, 4, 3)
            self.register_buffer("scale", torch.rand(4, 1))

        def forward(self, x: Any) -> Any:
            hidden = torch.relu(self.linear(self.embedding(x)))
            return self.convolution(hidden.transpose(1, 2)) * self.scale

    torch.manual_seed(0)
    model = Model().eval()
    x = torch.randint(0, 16, (1, 6))
    edge = to_edge(torch.export.export(model, (x,), strict=True))
    manager = edge.to_executorch(ExecutorchBackendConfig(external_constants=True))
    stream = io.BytesIO()
    manager.write_to_file(stream)
    return model, x, stream.getvalue()
