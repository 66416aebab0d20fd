"""Arrays described and tensors viewed, with the standard library and NumPy."""

from __future__ import annotations

import array
import ctypes
import gc
import itertools
import mmap
import re
import struct
import subprocess
import sys
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from cordbundle import dlpack
from cordbundle.cord import Cord, FileRange
from cordbundle.errors import FormatError, LayoutError, TooLargeError
from cordbundle.scalar_types import ScalarType, scalar_type_of_format, scalar_type_of_name
from cordbundle.strided import contiguous_strides, dim_order_of
from cordbundle.tensors import (
    Gather,
    TensorView,
    describe,
    flatten,
    scalar_of,
)

FLOATS = bytes.fromhex("0000803f 00000040 00004040 00008040 0000a040 0000c040")
"""1.0 to 6.0 in float32."""

TURNED = bytes.fromhex("0000803f 00008040 00000040 0000a040 00004040 0000c040")
"""The same as two rows of three, column by column."""


@pytest.fixture
def np() -> Any:
    """Return NumPy, or skip."""
    return pytest.importorskip("numpy")


@pytest.fixture
def no_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as if nobody had imported NumPy or PyTorch, nor could."""
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Refuse(), *sys.meta_path])


class _Refuse:
    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        if name in {"numpy", "torch"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def view_of(data: bytes, *sizes: int, order: tuple[int, ...] | None = None) -> TensorView:
    return TensorView(ScalarType.FLOAT, sizes, order, Cord(data))


# The table.


def test_the_table_is_that_of_the_installed_schema() -> None:
    executorch = pytest.importorskip("executorch")
    path = Path(next(iter(executorch.__path__))) / "schema" / "scalar_type.fbs"
    body = re.sub(r"//.*", "", path.read_text())
    schema = {name: int(value) for name, value in re.findall(r"([A-Z]\w*) = (\d+),", body)}

    assert {kind.name: kind.value for kind in ScalarType} == schema


@pytest.mark.parametrize("kind", [kind for kind in ScalarType if kind.format])
def test_a_format_has_the_size_of_its_scalar_type(kind: ScalarType) -> None:
    assert struct.calcsize(f"={kind.format}") == kind.itemsize


@pytest.mark.parametrize("kind", ScalarType)
def test_a_scalar_type_is_found_by_its_name_and_number(kind: ScalarType) -> None:
    assert scalar_type_of_name(kind.torch_dtype) is kind
    assert ScalarType.get(kind.value) is kind


@pytest.mark.parametrize("number", [-1, 8, 9, 10, 18, 21, 30, 2**40])
def test_a_number_that_the_schema_does_not_have_is_no_scalar_type(number: int) -> None:
    assert ScalarType.get(number) is None


@pytest.mark.parametrize(
    ("format", "itemsize", "expected"),
    [
        ("f", 4, ScalarType.FLOAT),
        ("<d", 8, ScalarType.DOUBLE),
        ("=e", 2, ScalarType.HALF),
        ("l", 8, ScalarType.LONG),
        ("l", 4, ScalarType.INT),
        ("<l", 4, ScalarType.INT),
        ("@N", 8, ScalarType.UINT64),
        ("c", 1, ScalarType.BYTE),
        (">b", 1, ScalarType.CHAR),
        ("?", 1, ScalarType.BOOL),
        (">f", 4, None),
        ("!q", 8, None),
        ("g", 16, None),
        ("Zd", 16, None),
        ("P", 8, None),
        ("O", 8, None),
        ("u", 4, None),
        ("w", 4, None),
        ("4s", 4, None),
        ("2f", 8, None),
        ("T{i:a:i:b:}", 8, None),
        ("", 1, None),
    ],
)
def test_a_format_means_the_scalar_type_of_its_kind_and_size(
    format: str, itemsize: int, expected: ScalarType | None
) -> None:
    assert scalar_type_of_format(format, itemsize) is expected


# Buffers.


def test_an_array_is_described_by_reference() -> None:
    numbers = array.array("f", [1, 2, 3, 4, 5, 6])

    found = describe(numbers)
    numbers[0] = 7

    assert (found.scalar_type, found.sizes, found.dim_order) == (ScalarType.FLOAT, (6,), (0,))
    assert not found.gathered
    assert bytes(found.cord) == array.array("f", [7, 2, 3, 4, 5, 6]).tobytes()


def test_a_described_array_cannot_be_resized_while_its_cord_lives() -> None:
    numbers = array.array("f", [1, 2])
    found = describe(numbers)

    with pytest.raises(BufferError):
        numbers.append(3)
    assert found.sizes == (2,)


def test_a_shaped_memoryview_keeps_its_sizes() -> None:
    found = describe(memoryview(FLOATS).cast("f", (2, 3)))

    assert (found.sizes, found.dim_order, found.gathered) == ((2, 3), (0, 1), False)
    assert bytes(found.cord) == FLOATS


def test_a_ctypes_array_of_arrays_is_a_matrix() -> None:
    row = ctypes.c_int16 * 3
    matrix = (row * 2)(row(1, 2, 3), row(4, 5, 6))

    found = describe(matrix)

    assert (found.scalar_type, found.sizes) == (ScalarType.SHORT, (2, 3))
    assert bytes(found.cord) == b"\1\0\2\0\3\0\4\0\5\0\6\0"


def test_bytes_are_a_tensor_of_uint8() -> None:
    found = describe(b"abc")

    assert (found.scalar_type, found.sizes, bytes(found.cord)) == (ScalarType.BYTE, (3,), b"abc")


def test_every_second_element_of_a_buffer_is_gathered() -> None:
    found = describe(memoryview(array.array("H", [1, 2, 3, 4, 5]))[::2])

    assert (found.scalar_type, found.sizes, found.gathered) == (ScalarType.UINT16, (3,), True)
    assert bytes(found.cord) == b"\1\0\3\0\5\0"


def test_a_buffer_backwards_is_gathered_without_numpy(no_numpy: None) -> None:
    found = describe(memoryview(array.array("H", [1, 2, 3]))[::-1])

    assert found.gathered
    assert bytes(found.cord) == b"\3\0\2\0\1\0"


def test_another_dim_order_is_gathered_without_numpy(no_numpy: None) -> None:
    found = describe(memoryview(FLOATS).cast("f", (2, 3)), dim_order=(1, 0))

    assert (found.dim_order, found.gathered) == ((1, 0), True)
    assert bytes(found.cord) == TURNED


def test_a_buffer_in_neither_c_nor_fortran_order_is_gathered_without_numpy(
    np: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = memoryview(np.arange(24, dtype=np.uint8).reshape(2, 3, 4).transpose(0, 2, 1))
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    found = describe(cube)

    assert (found.sizes, found.dim_order) == ((2, 4, 3), (0, 2, 1))
    assert bytes(found.cord) == bytes(range(24))


def test_a_view_outlives_the_array_it_was_taken_from() -> None:
    found = describe(array.array("f", [1.0]))
    gc.collect()

    assert bytes(found.cord) == FLOATS[:4]


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (memoryview((ctypes.c_int32.__ctype_be__ * 2)()), ">i"),
        (memoryview((ctypes.c_void_p * 2)()), "P"),
        (memoryview((ctypes.c_longdouble * 2)()), "g"),
    ],
)
def test_a_format_that_cannot_be_stored_is_refused_by_name(thing: memoryview, name: str) -> None:
    with pytest.raises(LayoutError, match=name):
        describe(thing)


@pytest.mark.parametrize("thing", [None, 1, 1.5, True, "text", [1.0], (1,), {}, object()])
def test_what_is_no_tensor_is_a_type_error(thing: Any) -> None:
    with pytest.raises(TypeError, match=f"{type(thing).__qualname__} is no tensor"):
        describe(thing)


@pytest.mark.parametrize("order", [(0,), (0, 0), (1, 2), (0, 1, 2), ()])
def test_a_dim_order_that_is_no_permutation_is_refused(order: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError, match="no permutation"):
        describe(memoryview(FLOATS).cast("f", (2, 3)), dim_order=order)


# NumPy.


def test_a_numpy_array_is_described_by_reference(np: Any) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3) + 1

    found = describe(matrix)

    assert (found.scalar_type, found.sizes, found.dim_order) == (ScalarType.FLOAT, (2, 3), (0, 1))
    (held,) = found.cord.chunks()
    assert np.shares_memory(np.frombuffer(held, np.uint8), matrix)
    assert held.readonly
    assert bytes(held) == FLOATS


def test_a_transposed_numpy_array_is_dense_in_its_own_dim_order(np: Any) -> None:
    matrix = np.frombuffer(FLOATS, np.float32).reshape(2, 3).T

    found = describe(matrix)

    assert (found.sizes, found.dim_order, found.gathered) == ((3, 2), (1, 0), False)
    assert bytes(found.cord) == FLOATS


def test_a_slice_of_a_numpy_array_holds_no_byte_of_its_neighbours(np: Any) -> None:
    whole = np.arange(100, dtype=np.uint8).reshape(10, 10)

    rows, columns = describe(whole[2:4]), describe(whole[2:4, 3:5])

    assert not rows.gathered
    assert bytes(rows.cord) == bytes(range(20, 40))
    assert columns.gathered
    assert bytes(columns.cord) == bytes([23, 24, 33, 34])


@pytest.mark.parametrize("dtype", sorted({k.numpy_dtype for k in ScalarType if k.numpy_dtype}))
def test_every_dtype_of_numpy_is_stored_as_it_is(np: Any, dtype: str) -> None:
    numbers = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)

    found = describe(numbers, dim_order=(1, 0))

    assert found.scalar_type.numpy_dtype == dtype
    assert bytes(found.cord) == numbers.T.tobytes()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda np: np.zeros(2, np.complex64), "complex64"),
        (lambda np: np.array(["a", "b"]), "U1"),
        (lambda np: np.array([b"ab"]), "S2"),
        (lambda np: np.array([None]), "object"),
        (lambda np: np.array(["2024-01-01"], "M8[D]"), re.escape("datetime64[D]")),
        (lambda np: np.array([1], "m8[s]"), re.escape("timedelta64[s]")),
        (lambda np: np.zeros(2, "i4,f4"), "f1"),
        (lambda np: np.zeros(2, np.longdouble), "float128|float96|longdouble"),
        (lambda np: np.zeros(2, ">f4"), "big-endian float32"),
        (lambda np: np.complex64(1), "complex64"),
        (lambda np: np.ma.masked_array([1, 2], [True, False]), "masked"),
    ],
)
def test_a_numpy_array_that_cannot_be_stored_is_refused_by_name(
    np: Any, make: Any, name: str
) -> None:
    with pytest.raises(LayoutError, match=name):
        describe(make(np))


def test_one_big_endian_byte_is_a_byte(np: Any) -> None:
    assert describe(np.array([1, 2], ">u1")).scalar_type is ScalarType.BYTE


def test_a_numpy_scalar_and_a_0d_array_have_rank_0(np: Any) -> None:
    for zero in (np.float32(1), np.array(1, np.float32)):
        found = describe(zero)

        assert (found.sizes, found.dim_order, bytes(found.cord)) == ((), (), FLOATS[:4])


def test_an_array_of_size_0_has_no_bytes(np: Any) -> None:
    found = describe(np.zeros((2, 0, 3), np.float32))

    assert (found.sizes, found.dim_order, len(found.cord)) == ((2, 0, 3), (0, 1, 2), 0)
    assert not found.gathered


@pytest.mark.parametrize(
    "cut", [lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a[::-1, ::-1], lambda a: a.T[::-1]]
)
def test_a_flipped_array_is_gathered_in_row_major_order(np: Any, cut: Any) -> None:
    flipped = cut(np.arange(12, dtype=np.int16).reshape(3, 4))

    found = describe(flipped)

    assert (found.dim_order, found.gathered) == ((0, 1), True)
    assert bytes(found.cord) == flipped.tobytes()


def test_a_repeated_array_is_gathered_in_row_major_order(np: Any) -> None:
    repeated = np.broadcast_to(np.arange(3, dtype=np.uint8), (2, 3)).T

    found = describe(repeated)

    assert (found.sizes, found.dim_order, found.gathered) == ((3, 2), (0, 1), True)
    assert bytes(found.cord) == bytes([0, 0, 1, 1, 2, 2])


def test_a_field_of_a_record_array_is_gathered_without_its_neighbours(np: Any) -> None:
    records = np.zeros(3, np.dtype([("a", "<i4"), ("b", "u1")]))
    records["a"] = [1, 2, 3]

    found = describe(records["a"])

    assert bytes(found.cord) == b"\1\0\0\0\2\0\0\0\3\0\0\0"


def test_a_given_dim_order_in_which_the_array_is_dense_needs_no_copy(np: Any) -> None:
    matrix = np.asfortranarray(np.zeros((4, 5), np.float32))

    assert not describe(matrix, dim_order=(1, 0)).gathered
    assert describe(matrix, dim_order=(0, 1)).gathered


def test_a_change_before_the_write_is_a_change_of_what_is_gathered(np: Any) -> None:
    matrix = np.zeros((2, 2), np.uint8)
    found = describe(matrix, dim_order=(1, 0))

    matrix[0, 1] = 9

    assert bytes(found.cord) == bytes([0, 0, 9, 0])


def test_a_gathered_array_is_dropped_after_each_use_and_lives_as_long_as_its_cord(np: Any) -> None:
    matrix = np.zeros((64, 64), np.float32).T
    alive = weakref.ref(matrix.base)
    cord = describe(matrix, dim_order=(0, 1)).cord
    (chunk,) = cord._chunks
    assert isinstance(chunk, Gather)
    first, second = chunk.produce(), chunk.produce()

    del matrix
    assert alive() is not None
    assert first.obj is not second.obj

    del cord, chunk, first, second
    gc.collect()
    assert alive() is None


def test_a_read_only_array_is_taken(np: Any) -> None:
    numbers = np.arange(3, dtype=np.uint8)
    numbers.flags.writeable = False

    assert bytes(describe(numbers).cord) == b"\0\1\2"


def test_a_dimension_of_2_to_the_31_is_refused_before_any_work(np: Any) -> None:
    wide = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**31,), (0,))

    with pytest.raises(TooLargeError, match=f"dimension 0 .*{2**31}.*{2**31 - 1}"):
        describe(wide)


@pytest.mark.parametrize("step", [1, -1])
def test_gathering_gives_the_same_bytes_with_and_without_numpy(
    np: Any, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {}
    for order in itertools.permutations(range(3)):
        cube = np.arange(60, dtype=np.int32).reshape(3, 4, 5)[::step, ::2]
        wanted[order] = cube.transpose(order).tobytes()
    whole = memoryview(np.arange(60, dtype=np.int32).reshape(3, 4, 5))
    cut = memoryview(np.asarray(whole)[::step, ::2])
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    found = {order: bytes(describe(cut, dim_order=order).cord) for order in wanted}

    assert found == wanted


# DLPack, read without NumPy or PyTorch.


class Exporter:
    """An object that has nothing but DLPack."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0), *, old: bool = False) -> None:
        self.array = array
        self.device = device
        self.old = old

    def __dlpack__(self, **kwargs: Any) -> object:
        if self.old and kwargs:
            raise TypeError("unexpected keyword argument 'max_version'")
        capsule: object = self.array.__dlpack__(**kwargs)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


@pytest.mark.parametrize("old", [False, True], ids=["versioned", "unversioned"])
def test_a_dlpack_object_is_described_by_reference(np: Any, old: bool) -> None:
    matrix = np.array(np.frombuffer(FLOATS, np.float32)).reshape(2, 3)

    found = describe(Exporter(matrix.T, old=old))

    assert (found.scalar_type, found.sizes, found.dim_order) == (ScalarType.FLOAT, (3, 2), (1, 0))
    (held,) = found.cord.chunks()
    assert np.shares_memory(np.frombuffer(held, np.uint8), matrix)
    assert bytes(held) == FLOATS


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "uint32", "int64", "float16"])
def test_a_dlpack_type_is_the_scalar_type_of_that_name(np: Any, dtype: str) -> None:
    found = describe(Exporter(np.zeros(3, dtype)))

    assert found.scalar_type.numpy_dtype == dtype


def test_a_dlpack_object_backwards_is_gathered(np: Any) -> None:
    found = describe(Exporter(np.arange(6, dtype=np.uint8)[4:0:-2]))

    assert found.gathered
    assert bytes(found.cord) == bytes([4, 2])


def test_a_dlpack_object_of_rank_0_or_size_0_is_taken(np: Any) -> None:
    assert bytes(describe(Exporter(np.array(3, np.uint8))).cord) == b"\3"
    assert describe(Exporter(np.zeros((0, 3), np.uint8))).sizes == (0, 3)


def test_a_dlpack_object_lives_as_long_as_its_cord_and_no_longer(np: Any) -> None:
    numbers = np.arange(1000, dtype=np.uint8)
    alive = weakref.ref(numbers)
    cord = describe(Exporter(numbers)).cord

    del numbers
    gc.collect()
    assert alive() is not None

    del cord
    gc.collect()
    assert alive() is None


def test_a_dlpack_object_on_another_device_is_refused(np: Any) -> None:
    with pytest.raises(LayoutError, match="device type 2"):
        describe(Exporter(np.zeros(3), (2, 0)))


def test_a_complex_dlpack_object_is_refused_by_name(np: Any) -> None:
    with pytest.raises(LayoutError, match="complex128"):
        describe(Exporter(np.zeros(3, np.complex128)))


class Patched(Exporter):
    """An exporter whose capsule is changed on the way."""

    def __init__(self, array: Any, change: Callable[[dlpack._VersionedTensor], None]) -> None:
        super().__init__(array)
        self.change = change

    def __dlpack__(self, **kwargs: Any) -> object:
        capsule = super().__dlpack__(**kwargs)
        if not dlpack._capsule_is(capsule, b"dltensor_versioned"):
            pytest.skip("versioned capsules came with NumPy 2.1")
        pointer = dlpack._capsule_pointer(capsule, b"dltensor_versioned")
        self.change(dlpack._VersionedTensor.from_address(pointer))
        return capsule


def test_a_dlpack_object_begins_at_its_byte_offset(np: Any) -> None:
    def shift(found: dlpack._VersionedTensor) -> None:
        found.tensor.byte_offset = 2
        found.tensor.shape[0] = 3

    found = describe(Patched(np.arange(6, dtype=np.uint8), shift))

    assert bytes(found.cord) == bytes([2, 3, 4])


def test_another_major_version_of_dlpack_is_refused(np: Any) -> None:
    def age(found: dlpack._VersionedTensor) -> None:
        found.major = 2

    with pytest.raises(LayoutError, match=r"unknown version of DLPack: found 2\.\d, expected 1"):
        describe(Patched(np.zeros(3), age))


def test_a_dlpack_object_in_lanes_is_refused(np: Any) -> None:
    def widen(found: dlpack._VersionedTensor) -> None:
        found.tensor.dtype.lanes = 4

    with pytest.raises(LayoutError, match="float64 in 4 lanes"):
        describe(Patched(np.zeros(3), widen))


def test_a_dlpack_object_without_strides_is_row_major(np: Any) -> None:
    def forget(found: dlpack._VersionedTensor) -> None:
        found.tensor.strides = None

    found = describe(Patched(np.zeros((2, 3), np.uint8), forget))

    assert (found.dim_order, found.gathered) == ((0, 1), False)


def test_what_is_no_capsule_is_a_type_error() -> None:
    class Liar:
        def __dlpack__(self, **kwargs: object) -> object:
            return b"dltensor"

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(TypeError, match="a bytes, not a DLPack capsule"):
        describe(Liar())


# Dim orders.


@pytest.mark.parametrize(
    ("sizes", "strides", "order"),
    [
        ((), (), ()),
        ((5,), (3,), (0,)),
        ((2, 3), (3, 1), (0, 1)),
        ((2, 3), (1, 2), (1, 0)),
        ((2, 3, 4, 5), (60, 1, 15, 3), (0, 2, 3, 1)),
        ((2, 1, 4, 5), (20, 20, 5, 1), (0, 1, 2, 3)),
        ((2, 1, 4, 5), (20, 1, 5, 1), (0, 2, 3, 1)),
        ((1, 3, 1, 1), (3, 1, 1, 1), (0, 1, 2, 3)),
        ((1, 3, 1, 1), (3, 1, 3, 3), (0, 2, 3, 1)),
        ((2, 0, 3), (3, 3, 1), (0, 1, 2)),
        ((1, 4), (1, 1), (0, 1)),
        ((4, 1), (1, 1), (0, 1)),
        ((2, 1, 3), (1, 6, 2), (1, 2, 0)),
    ],
)
def test_a_dim_order_is_the_one_that_pytorch_reports(
    sizes: tuple[int, ...], strides: tuple[int, ...], order: tuple[int, ...]
) -> None:
    assert dim_order_of(sizes, strides, 1) == order


@pytest.mark.parametrize(
    ("sizes", "strides", "order"),
    [
        ((2, 3, 2), (1, 2, 0), (0, 1, 2)),
        ((2, 3), (1, -2), (0, 1)),
        ((2, 1, 3), (1, -6, 2), (1, 2, 0)),
    ],
    ids=["repeated", "backwards", "backwards, of size 1"],
)
def test_a_tensor_that_repeats_or_runs_backwards_is_row_major(
    sizes: tuple[int, ...], strides: tuple[int, ...], order: tuple[int, ...]
) -> None:
    assert dim_order_of(sizes, strides, 1) == order


def test_strides_follow_from_sizes_and_dim_order() -> None:
    assert contiguous_strides((2, 3, 4, 5), (0, 2, 3, 1)) == (60, 1, 15, 3)
    assert contiguous_strides((2, 0, 3), (0, 1, 2)) == (3, 3, 1)
    assert contiguous_strides((), ()) == ()


# TensorView.


def test_a_view_shows_what_it_holds() -> None:
    view = view_of(FLOATS, 3, 2, order=(1, 0))

    assert view.strides == (1, 3)
    assert view.nbytes == 24
    assert view.data == FLOATS
    assert view.data.readonly
    assert repr(view) == "TensorView(FLOAT, sizes=(3, 2), dim_order=(1, 0), nbytes=24)"


def test_a_view_without_dim_order_is_row_major() -> None:
    assert view_of(FLOATS, 2, 3).dim_order == (0, 1)
    assert view_of(FLOATS, 2, 3).strides == (3, 1)


def test_views_are_equal_only_to_themselves() -> None:
    view = view_of(FLOATS, 6)
    others = [view_of(FLOATS, 6), view]

    assert others.index(view) == 1
    assert len({view, *others}) == 2


def test_a_view_of_a_file_maps_it_when_asked_and_outlives_the_cord(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"head" + FLOATS + b"tail")
    view = TensorView(ScalarType.FLOAT, (6,), None, Cord.from_file(path, 4, 24))

    data = view.data
    del view
    gc.collect()

    assert isinstance(data.obj, mmap.mmap)
    assert data == FLOATS


def test_a_view_in_pieces_is_joined_once() -> None:
    view = TensorView(ScalarType.FLOAT, (6,), None, Cord(FLOATS[:5]) + FLOATS[5:])

    assert view.data == FLOATS
    assert view.data is view.data


@pytest.mark.parametrize(
    ("sizes", "order", "what"),
    [
        ((5,), None, "found 24 bytes, expected 20 bytes"),
        ((0, 6), None, "found 24 bytes, expected 0 bytes"),
        ((-6,), None, r"negative size: found \[-6\]"),
        ((-2, -3), None, "negative size"),
        ((2**31, 2**31, 2**31), None, "overflow"),
        ((2**32, 2**32), None, "overflow"),
        ((2**31,) * 10_000, None, "overflow"),
        ((2, 3), (0, 2), "no permutation"),
        ((2, 3), (0,), "no permutation"),
        ((2, 3), (1, 1), "no permutation"),
    ],
)
def test_facts_that_do_not_fit_each_other_are_a_format_error(
    sizes: tuple[int, ...], order: tuple[int, ...] | None, what: str
) -> None:
    with pytest.raises(FormatError, match=what) as caught:
        view_of(FLOATS, *sizes, order=order)
    assert len(str(caught.value)) < 400


def test_a_view_is_a_shaped_memoryview_without_numpy(no_numpy: None) -> None:
    shaped = view_of(FLOATS, 2, 3).memoryview()

    assert (shaped.format, shaped.shape, shaped.strides) == ("f", (2, 3), (12, 4))
    rows: object = shaped.tolist()
    assert rows == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert shaped.readonly


def test_a_view_in_another_order_is_a_strided_memoryview(np: Any) -> None:
    shaped = view_of(FLOATS, 3, 2, order=(1, 0)).memoryview()

    assert (shaped.format, shaped.shape, shaped.strides) == ("f", (3, 2), (4, 12))
    rows: object = shaped.tolist()
    assert rows == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]


def test_a_memoryview_that_needs_numpy_says_so(no_numpy: None) -> None:
    with pytest.raises(BufferError, match="NumPy"):
        view_of(FLOATS, 3, 2, order=(1, 0)).memoryview()


def test_a_scalar_type_without_format_is_no_memoryview() -> None:
    view = TensorView(ScalarType.BFLOAT16, (2,), None, Cord(bytes(4)))

    with pytest.raises(BufferError, match="BFLOAT16"):
        view.memoryview()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ came with Python 3.12")
def test_a_view_is_a_read_only_buffer() -> None:
    shaped = memoryview(view_of(FLOATS, 2, 3))  # type: ignore[arg-type,unused-ignore]

    assert (shaped.format, shaped.shape, shaped.readonly) == ("f", (2, 3), True)
    with pytest.raises(TypeError, match="not writable"):
        ctypes.c_char.from_buffer(view_of(FLOATS, 2, 3))  # type: ignore[arg-type,unused-ignore]


def test_a_view_is_a_numpy_array_over_the_same_memory(np: Any) -> None:
    view = view_of(FLOATS, 3, 2, order=(1, 0))

    numbers = view.numpy()

    assert numbers.tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert np.shares_memory(numbers, np.frombuffer(FLOATS, np.uint8))
    assert np.shares_memory(np.asarray(view), numbers)
    assert not numbers.flags.writeable


def test_a_numpy_array_of_a_view_can_be_converted_and_copied(np: Any) -> None:
    view = view_of(FLOATS, 6)

    assert np.asarray(view, np.float64).dtype == np.float64
    assert np.array(view).flags.writeable
    assert view.__array__(copy=False).tolist() == [1, 2, 3, 4, 5, 6]
    assert not np.shares_memory(view.__array__(copy=True), view.numpy())
    with pytest.raises(ValueError, match="needs a copy"):
        view.__array__("f8", copy=False)


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1)])
def test_a_view_of_one_element_has_its_own_rank(np: Any, sizes: tuple[int, ...]) -> None:
    view = view_of(FLOATS[:4], *sizes)

    assert view.numpy().shape == sizes
    assert view.memoryview().shape == sizes


def test_a_view_of_no_element_keeps_its_sizes(np: Any) -> None:
    view = view_of(b"", 2, 0, 3)

    assert view.numpy().shape == (2, 0, 3)
    assert view.memoryview().shape == (2, 0, 3)


@pytest.mark.parametrize("kind", [k for k in ScalarType if k.numpy_dtype is None])
def test_a_scalar_type_that_numpy_lacks_is_refused_with_the_way_out(
    np: Any, kind: ScalarType
) -> None:
    view = TensorView(kind, (2,), None, Cord(bytes(2 * kind.itemsize)))

    with pytest.raises(LayoutError, match=f"{kind.name}; use "):
        view.numpy()


def test_numpy_takes_a_view_by_dlpack(np: Any) -> None:
    if not hasattr(np, "unstack"):
        pytest.skip("read-only memory by DLPack came with NumPy 2.1")
    view = view_of(FLOATS, 3, 2, order=(1, 0))

    assert view.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(view).tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]


def test_describing_a_view_gives_its_cord_back_unread(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(FLOATS)
    view = TensorView(ScalarType.FLOAT, (3, 2), (1, 0), Cord.from_file(path))

    found = describe(view)

    assert (found.sizes, found.dim_order, found.gathered) == ((3, 2), (1, 0), False)
    assert [type(chunk) for chunk in found.cord._chunks] == [FileRange]


def test_a_view_is_gathered_into_another_order() -> None:
    found = describe(view_of(FLOATS, 2, 3), dim_order=(1, 0))

    assert found.gathered
    assert bytes(found.cord) == TURNED


# Nested inputs and scalars.


class Point(NamedTuple):
    x: object
    y: object


class OwnList(list[object]):
    pass


def nest() -> object:
    return [
        1,
        (2, [3, ()]),
        {"z": 4, "a": None},
        OrderedDict(q=5, b=6),
        defaultdict(int, {"d": 7}),
        deque([8, 9], maxlen=4),
        Point("x", [10]),
        OwnList([11]),
        {12},
        "text",
    ]


LEAVES = [1, 2, 3, 4, None, 5, 6, 7, 8, 9, "x", 10, [11], {12}, "text"]


def test_containers_are_flattened_without_pytorch(no_numpy: None) -> None:
    assert flatten(nest()) == LEAVES
    assert flatten(None) == [None]
    assert flatten([]) == []


class Colour(IntEnum):
    RED = 3


@pytest.mark.parametrize("value", [True, False, 0, -5, 2**70, 1.5, float("inf"), -0.0])
def test_a_python_scalar_is_itself(value: bool | int | float) -> None:
    found = scalar_of(value)

    assert type(found) is type(value)
    assert repr(found) == repr(value)


def test_an_enum_member_is_its_integer() -> None:
    assert type(scalar_of(Colour.RED)) is int


def test_numpy_scalars_are_the_python_scalars_they_are(np: Any) -> None:
    values = [np.bool_(True), np.int64(3), np.uint8(4), np.float64(1.5), np.float32(-0.0)]

    assert [repr(scalar_of(value)) for value in values] == ["True", "3", "4", "1.5", "-0.0"]
    assert repr(scalar_of(np.float32("nan"))) == "nan"


@pytest.mark.parametrize("value", [None, "1", [1], 1j, b"1", object()])
def test_what_is_no_scalar_is_none(value: object) -> None:
    assert scalar_of(value) is None


def test_numpy_values_that_are_no_scalars_are_none(np: Any) -> None:
    for value in (
        np.array(1),
        np.array([1]),
        np.complex64(1),
        np.str_("1"),
        np.timedelta64(1, "s"),
    ):
        assert scalar_of(value) is None
    assert scalar_of(np.longdouble(1)) is None


def test_importing_the_module_imports_no_array_library() -> None:
    code = (
        "import sys, cordbundle.tensors as t, array;"
        "t.describe(array.array('f', [1]));"
        "print({'numpy', 'torch', 'ctypes'} & set(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )

    assert found.stdout == "set()\n"
