"""What readers say of records that cannot be: each error with its file, its place and its facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import bpte_schema, ptd_schema
from cordbundle import program as schema
from cordbundle.artifact import SegmentRange
from cordbundle.bpte import BundleFile
from cordbundle.ptd_old_schema import OldFlatTensor, TensorMetadata
from cordbundle.record_check import Overflow, Problem, Shapes, nbytes_of
from cordbundle.tensor_view import TensorShape
from tests.attacks.surgery import bundle, findings, metadata, weights_of, weights_with, whole_plan

MOST = 2**63 - 1

SHAPES = [
    (6, [2, -4], [0, 1], "negative size: found [2, -4], expected 0 or more"),
    (6, [2, -4], None, "negative size: found [2, -4], expected 0 or more"),
    (
        6,
        [2, 3],
        [0, 2],
        "dim order is no permutation of the dimensions: found [0, 2], expected each below 2 once",
    ),
    (
        6,
        [2**31 - 1] * 3,
        None,
        f"sizes of the tensor overflow: found sizes {[2**31 - 1] * 3}, expected at most {MOST}"
        " bytes",
    ),
    (
        6,
        [2, 3],
        None,
        "tensor of FLOAT with sizes (2, 3) has other bytes: found 0 bytes, expected 24 bytes",
    ),
]
"""Scalar type, sizes and dim order of a tensor without bytes, and what is said of it."""


def first(path: Path) -> object:
    with cb.open(path) as file:
        assert isinstance(file, cb.PtdFile)
        return file["k"]


@pytest.mark.parametrize(("kind", "sizes", "order", "text"), SHAPES)
def test_weights_that_cannot_be_are_refused_by_file_and_key(
    kind: int, sizes: list[int], order: list[int] | None, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "weights.ptd"
    path.write_bytes(weights_of(ptd_schema.TensorLayout(kind, sizes, order)))

    with pytest.raises(cb.FormatError) as one:
        first(path)
    with pytest.raises(cb.FormatError) as of_all:
        cb.load_ptd(path)

    assert str(one.value) == str(of_all.value) == f"{path}: key 'k': {text}"


@pytest.mark.parametrize("load", [first, cb.load_ptd])
def test_weights_of_an_unknown_type_are_refused_by_file_and_key(
    load: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "weights.ptd"
    path.write_bytes(weights_of(ptd_schema.TensorLayout(8, [0], [0])))

    with pytest.raises(cb.FormatError) as caught:
        load(path)

    assert str(caught.value).startswith(f"{path}: key 'k' has an unknown scalar type: found 8, ")


def test_weights_of_more_dimensions_than_a_runtime_takes_are_read_and_found() -> None:
    data = weights_of(ptd_schema.TensorLayout(6, [0] * 17, list(range(17))))

    view = cb.load_ptd(bytes(data))["k"]
    assert isinstance(view, cb.TensorView)
    assert view.sizes == (0,) * 17
    assert [one[1] for one in findings(data)] == ["key 'k': too many dimensions"]


@pytest.mark.parametrize(("kind", "sizes", "order", "text"), SHAPES)
def test_a_bundled_tensor_that_cannot_be_is_refused_by_file_and_place(
    kind: int, sizes: list[int], order: list[int] | None, text: str, tmp_path: Path
) -> None:
    tensor = bpte_schema.Tensor(kind, sizes, b"", order)
    case = bpte_schema.BundledMethodTestCase([bpte_schema.Value(bpte_schema.Int(1))], [])
    bad = bpte_schema.BundledMethodTestCase([], [bpte_schema.Value(tensor)])
    suite = bpte_schema.BundledMethodTestSuite("forward", [case, bad])
    path = tmp_path / "model.bpte"
    path.write_bytes(metadata(bpte_schema.BundledProgram(0, [suite], b""), b"BP08"))

    with cb.open(path) as file:
        assert isinstance(file, cb.BundleFile)
        with pytest.raises(cb.FormatError) as caught:
            _ = file.suites

    assert str(caught.value) == f"{path}: method 'forward', case 1, output 0: {text}"


@pytest.mark.parametrize(
    ("kind", "sizes", "text"),
    [
        (8, [3], " has an unknown scalar type: found 8, expected one of [0, 1, 2, 3, "),
        (0, [-3], ": negative size: found [-3], expected 0 or more"),
        (7, [2**31 - 1] * 2, ": sizes of the tensor overflow: found sizes [2147483647, "),
    ],
)
def test_a_constant_of_tensors_that_cannot_be_is_refused_by_file_and_value(
    kind: int, sizes: list[int], text: str, tmp_path: Path
) -> None:
    values = [
        schema.EValue(schema.Tensor(0, 0, [3], [0], data_buffer_idx=1)),
        schema.EValue(schema.Tensor(kind, 0, sizes, [0], data_buffer_idx=1)),
    ]
    buffers = [schema.Buffer(b""), schema.Buffer(b"abc")]
    record = schema.Program(execution_plan=[whole_plan(values=values)], constant_buffer=buffers)
    path = tmp_path / "model.pte"
    path.write_bytes(metadata(record))

    with cb.open(path) as file, pytest.raises(cb.FormatError) as caught:
        cb.PteEditor(file).replace_constant(1, b"xyz")

    assert str(caught.value).startswith(f"{path}: value 1 of method 'f'{text}")


def test_a_key_without_a_segment_is_refused_before_anything_is_edited() -> None:
    named = [schema.NamedData("a", 0), schema.NamedData("a", 7)]
    record = schema.Program(segments=[schema.DataSegment()], named_data=named)

    with cb.open(bytes(metadata(record))) as file, pytest.raises(cb.FormatError) as caught:
        cb.PteEditor(file)

    assert str(caught.value) == (
        "<memory>: segment of key 'a' does not exist: found 7, expected an index below 1"
    )


def test_of_two_equal_keys_the_first_is_taken_in_a_bundle_too() -> None:
    named = [bpte_schema.NamedData("a", 1), bpte_schema.NamedData("a", 0)]
    places = [bpte_schema.DataSegment(0, 4), bpte_schema.DataSegment(4, 4)]
    record = bpte_schema.BundledProgram(segments=places, named_data=named)

    with cb.open(bytes(metadata(record, b"BP08"))) as file:
        assert isinstance(file, cb.BundleFile)
        assert file.named_data == {"a": b"BP08"}


# Shapes --------------------------------------------------------------------------------------


def test_a_shape_is_looked_up_by_the_fields_of_a_record() -> None:
    shapes = Shapes()

    assert shapes.of(ptd_schema.TensorLayout(6, [2, 3], [1, 0])) == (24, None)
    assert shapes.of(bpte_schema.Tensor(6, [2, 3], b"", [1, 0])) == (24, None)
    assert list(shapes) == [(6, (2, 3), (1, 0))]
    for layout, word in (
        (ptd_schema.TensorLayout(6, None, [0]), "sizes"),
        (ptd_schema.TensorLayout(6, [1], None), "dim order"),
    ):
        assert shapes.of(layout).problem == (f"{word} missing", "a vector", "none")


def test_only_a_product_that_is_too_large_overflows() -> None:
    shapes = Shapes()
    large = ptd_schema.TensorLayout(6, [2**31 - 1] * 3, [0, 1, 2])

    assert shapes.of(large).overflows
    assert not shapes.of(ptd_schema.TensorLayout(6, [2**31 - 1], [0])).overflows
    assert not shapes.of(ptd_schema.TensorLayout(6, [2**31 - 1, -1], [0, 1])).overflows


def test_the_bytes_of_a_tensor_of_any_rank_are_told() -> None:
    assert nbytes_of(4, (1,) * 17, None) == 4
    assert nbytes_of(1, (MOST,), (0,)) == MOST
    assert nbytes_of(1, (2**40, 2**40, 0), None) == 0
    assert isinstance(nbytes_of(1, (MOST, 2), None), Overflow)
    assert nbytes_of(4, (2, 3), (0,)) == (
        "dim order is no permutation of the dimensions",
        "each below 2 once",
        "[0]",
    )


def test_of_too_many_sizes_the_first_are_shown() -> None:
    first = str([2**31] * 17)

    assert nbytes_of(1, (2**31,) * 10_000, None) == (
        "sizes of the tensor overflow",
        f"at most {MOST} bytes",
        f"sizes {first}",
    )


def test_a_problem_names_its_place_and_file_where_there_are_any() -> None:
    problem = Problem("negative size", "0 or more", "[-1]")

    assert str(problem.error()) == "negative size: found [-1], expected 0 or more"
    assert str(problem.error("input 0", "m.bpte")) == (
        "m.bpte: input 0: negative size: found [-1], expected 0 or more"
    )
    assert TensorShape.of(cb.ScalarType.FLOAT, [2], None, "input 0", "m.bpte").nbytes == 8


# Weights of the older schema -----------------------------------------------------------------


def old_weights() -> bytes:
    tensors = [TensorMetadata("w", 6, [4], [0], 0, 0)]
    record = OldFlatTensor(0, 16, tensors, [ptd_schema.DataSegment(0, 16)])
    return bytes(weights_with(record, b"abcd" * 4))


def test_weights_of_the_older_schema_are_refused_with_what_to_do() -> None:
    with pytest.raises(cb.UnsupportedVersionError) as caught:
        cb.load_ptd(old_weights())

    assert str(caught.value).endswith(
        ": found that of before, which has the same identifier,"
        " expected the schema of ExecuTorch 0.7 or later; export the weights again"
    )


def test_weights_of_the_older_schema_are_rewritten_as_they_are() -> None:
    data = old_weights()
    base = len(data) - 16

    with cb.open(data) as file:
        assert isinstance(file, cb.PtdFile)
        assert file.stored_ranges == (SegmentRange(base, 16),)
        found = cb.rewrite(file)

    assert bytes(found.cord) == data
    assert [(p.name, p.offset, p.size) for p in found.layout.placements] == [
        ("segment 0", base, 16)
    ]


# Walks ---------------------------------------------------------------------------------------


class Walked(BundleFile):
    """A bundle that counts the walks through its values."""

    walks = 0

    def values(self) -> Iterator[tuple[bpte_schema.Value, str]]:
        self.walks += 1
        return super().values()


def test_a_check_walks_the_values_of_a_bundle_once_for_them_and_once_for_segments() -> None:
    file = Walked(cb.Cord(bytes(bundle())), "m.bpte")

    assert file.verify() == []
    assert file.walks == 2
    _ = file.layout
    assert file.walks == 2
