"""PyTorch tensors described, and tensors viewed by PyTorch."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cordbundle.cord import Cord
from cordbundle.errors import LayoutError, TooLargeError
from cordbundle.scalar_types import ScalarType
from cordbundle.tensors import TensorView, describe, flatten, scalar_of

if TYPE_CHECKING:
    import numpy as np
    import torch
else:
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")

PLAIN = [kind for kind in ScalarType if not kind.is_quantized]
"""The types that a tensor can be made of without a scale."""


def dtype_of(kind: ScalarType) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, kind.torch_dtype)
    return dtype


def counting(kind: ScalarType, *sizes: int) -> torch.Tensor:
    """Return a tensor whose bytes count up, whatever they mean."""
    count = kind.itemsize * torch.Size(sizes).numel()
    numbers = (torch.arange(count) % (2 if kind is ScalarType.BOOL else 251)).to(torch.uint8)
    return numbers.view(dtype_of(kind)).view(sizes)


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return a tensor's elements in row-major order, by PyTorch alone."""
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().view(width).contiguous().numpy().tobytes()


def address_of(cord: Cord) -> int:
    (held,) = cord.chunks()
    return np.frombuffer(held, np.uint8).ctypes.data


def test_the_table_is_that_of_exir() -> None:
    exir = pytest.importorskip("executorch.exir.tensor")

    for dtype, kind in exir.scalar_type_table.items():
        if not dtype.is_complex:  # exir names them, its schema does not have them
            assert dtype_of(ScalarType(int(kind))) == dtype


@pytest.mark.parametrize("kind", ScalarType)
def test_an_element_has_the_size_that_pytorch_gives_it(kind: ScalarType) -> None:
    assert dtype_of(kind).itemsize == kind.itemsize


@pytest.mark.parametrize("kind", PLAIN)
def test_a_tensor_is_described_by_reference(kind: ScalarType) -> None:
    tensor = counting(kind, 3, 4)

    found = describe(tensor)

    assert (found.scalar_type, found.sizes, found.dim_order) == (kind, (3, 4), (0, 1))
    assert not found.gathered
    assert address_of(found.cord) == tensor.data_ptr()
    assert bytes(found.cord) == bytes_of(tensor)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_tensor_in_another_order_is_gathered(kind: ScalarType) -> None:
    tensor = counting(kind, 3, 4)

    found = describe(tensor.t(), dim_order=(0, 1))

    assert (found.sizes, found.dim_order, found.gathered) == ((4, 3), (0, 1), True)
    assert bytes(found.cord) == bytes_of(tensor.t())


def test_a_parameter_is_described_without_its_gradient() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))

    assert bytes(describe(parameter).cord) == bytes.fromhex("0000803f 0000803f")


def test_a_result_with_a_gradient_is_described() -> None:
    result = torch.ones(2, requires_grad=True) * 2

    assert bytes(describe(result).cord) == bytes.fromhex("00000040 00000040")


def test_a_channels_last_tensor_is_dense_in_its_own_order() -> None:
    image = torch.arange(48, dtype=torch.uint8).view(2, 2, 3, 4)
    turned = image.to(memory_format=torch.channels_last)

    found = describe(turned)

    assert (found.sizes, found.dim_order, found.gathered) == ((2, 2, 3, 4), (0, 2, 3, 1), False)
    assert bytes(found.cord) == bytes_of(image.permute(0, 2, 3, 1))
    assert bytes(describe(turned, dim_order=(0, 1, 2, 3)).cord) == bytes(range(48))


def test_a_slice_of_a_channels_last_tensor_holds_no_byte_of_its_base() -> None:
    image = torch.arange(48, dtype=torch.uint8).view(2, 2, 3, 4)
    turned = image.to(memory_format=torch.channels_last)

    one, part = describe(turned[1:]), describe(turned[:, :, :, 1:3])

    assert bytes(one.cord) == bytes_of(image[1:].permute(0, 2, 3, 1))
    assert not one.gathered
    assert part.gathered
    assert part.dim_order == (0, 2, 3, 1)
    assert bytes(part.cord) == bytes_of(image[:, :, :, 1:3].permute(0, 2, 3, 1))


def test_a_view_with_an_offset_holds_its_own_bytes() -> None:
    base = torch.arange(10, dtype=torch.uint8)

    found = describe(base[3:7])

    assert not found.gathered
    assert bytes(found.cord) == bytes([3, 4, 5, 6])


def test_an_expanded_tensor_is_gathered_in_row_major_order() -> None:
    expanded = torch.tensor([1, 2, 3], dtype=torch.uint8)[:, None].expand(3, 2)

    found = describe(expanded)

    assert (found.sizes, found.dim_order, found.gathered) == ((3, 2), (0, 1), True)
    assert bytes(found.cord) == bytes([1, 1, 2, 2, 3, 3])


def test_tensors_of_rank_0_and_of_size_0_are_described() -> None:
    scalar, empty = describe(torch.tensor(1.0)), describe(torch.empty(2, 0, 3))

    assert (scalar.sizes, scalar.dim_order, len(scalar.cord)) == ((), (), 4)
    assert (empty.sizes, empty.dim_order, len(empty.cord)) == ((2, 0, 3), (0, 1, 2), 0)


def test_a_tensor_of_255_dimensions_is_taken_and_one_more_refused() -> None:
    tensor = torch.arange(6, dtype=torch.uint8).view(2, *[1] * 253, 3)

    found = describe(tensor, dim_order=[254, *range(254)])

    assert bytes(describe(tensor).cord) == bytes(range(6))
    assert bytes(found.cord) == bytes([0, 3, 1, 4, 2, 5])
    with pytest.raises(TooLargeError, match="too many dimensions: found 256, expected at most 255"):
        describe(tensor[None])


def test_a_dimension_of_2_to_the_31_is_refused() -> None:
    with pytest.raises(TooLargeError, match="dimension 0"):
        describe(torch.zeros(1, dtype=torch.uint8).expand(2**31))


@pytest.mark.parametrize("name", ["qint8", "quint8", "qint32"])
def test_a_quantized_tensor_is_stored_as_its_integers(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = torch.quantize_per_tensor(torch.randn(3, 5), 0.1, 3, getattr(torch, name))

    found = describe(tensor)

    assert found.scalar_type.torch_dtype == name
    assert not found.gathered
    assert bytes(found.cord) == bytes_of(tensor.int_repr())
    assert bytes(describe(tensor, dim_order=(1, 0)).cord) == bytes_of(tensor.int_repr().t())


def test_a_change_of_the_tensor_before_the_write_changes_the_output() -> None:
    tensor = torch.zeros(2, 2, dtype=torch.uint8)
    held, gathered = describe(tensor), describe(tensor, dim_order=(1, 0))

    tensor[0, 1] = 9

    assert bytes(held.cord) == bytes([0, 9, 0, 0])
    assert bytes(gathered.cord) == bytes([0, 0, 9, 0])


def test_the_memory_of_a_tensor_lives_as_long_as_its_cord() -> None:
    cord = describe(torch.full((1000,), 7, dtype=torch.uint8)).cord
    gc.collect()
    torch.zeros(1000, dtype=torch.uint8)

    assert bytes(cord) == b"\7" * 1000


def test_a_described_tensor_cannot_be_resized_under_its_cord() -> None:
    tensor = torch.zeros(4)
    found = describe(tensor)

    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(1_000_000)
    assert len(found.cord) == 16


def test_a_tensor_is_described_under_a_fake_mode() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    tensor = torch.tensor([1, 2], dtype=torch.uint8)
    with FakeTensorMode():
        found = describe(tensor)

    assert bytes(found.cord) == b"\1\2"


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def wrapped() -> torch.Tensor:
    from torch.testing._internal.two_tensor import TwoTensor

    two: torch.Tensor = TwoTensor(torch.ones(3), torch.ones(3))  # type: ignore[no-untyped-call]
    return two


def nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def compressed() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.eye(3).to_sparse_csr()


def packed(name: str) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch._empty_affine_quantized([3, 5], dtype=getattr(torch, name), scale=1.0)


@pytest.mark.parametrize(
    ("make", "name", "way"),
    [
        (lambda: torch.ones(2, dtype=torch.complex64), "complex64", "convert it first"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), "conjugation", "resolve_conj"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, "negation", "resolve_neg"),
        (lambda: torch.ones(2, device="meta"), "meta", "no values"),
        (lambda: torch.eye(3).to_sparse(), "sparse_coo", "to_dense"),
        (compressed, "sparse_csr", "to_dense"),
        (nested, "nested", "to_padded_tensor"),
        (fake, "FakeTensor", "no memory of its own"),
        (wrapped, "TwoTensor", "no memory of its own"),
        (lambda: torch.empty(2, dtype=torch.bits8), "bits8", "convert it first"),
        (lambda: torch.empty(2, dtype=torch.float8_e8m0fnu), "float8_e8m0fnu", "convert it"),
        (lambda: packed("quint4x2"), "quint4x2", "int_repr"),
        (lambda: packed("quint2x4"), "quint2x4", "int_repr"),
    ],
)
def test_a_tensor_that_cannot_be_stored_is_refused_by_name_with_the_way_out(
    make: Callable[[], torch.Tensor], name: str, way: str
) -> None:
    with pytest.raises(LayoutError, match=f"{name}.*{way}"):
        describe(make())


def test_a_tensor_without_numpy_is_described_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(24, dtype=torch.uint8).view(2, 3, 4)[:, 1:].transpose(1, 2)
    dense = torch.arange(6).view(2, 3).t()
    wanted = {order: bytes_of(tensor.permute(order)) for order in itertools.permutations(range(3))}
    with monkeypatch.context() as context:
        context.delitem(sys.modules, "numpy")
        found = {order: bytes(describe(tensor, dim_order=order).cord) for order in wanted}
        held = describe(dense)

    assert found == wanted
    assert not held.gathered
    assert address_of(held.cord) == dense.data_ptr()


def test_the_memory_of_a_tensor_without_numpy_lives_as_long_as_its_cord(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as context:
        context.delitem(sys.modules, "numpy")
        cord = describe(torch.full((1000,), 7, dtype=torch.uint8)).cord
    gc.collect()
    torch.zeros(1000, dtype=torch.uint8)

    assert bytes(cord) == b"\7" * 1000


@pytest.mark.parametrize("sizes", [(2, 1, 3), (1, 1), (3, 1), (1, 3, 1, 1), (2, 3, 1, 1), (1,)])
def test_dimensions_of_size_1_stand_where_pytorch_reports_them(sizes: tuple[int, ...]) -> None:
    for order in itertools.permutations(range(len(sizes))):
        tensor = torch.zeros(sizes).permute(order)

        found = describe(tensor)

        assert found.dim_order == tensor.dim_order()
        assert not found.gathered


# TensorView.


@pytest.mark.parametrize("kind", PLAIN)
def test_a_view_is_a_tensor_over_the_same_memory(kind: ScalarType) -> None:
    source = counting(kind, 3, 4).t()
    found = describe(source)

    tensor = TensorView(kind, found.sizes, found.dim_order, found.cord).torch()

    assert tensor.dtype == source.dtype
    assert tensor.stride() == source.stride()
    assert tensor.data_ptr() == source.data_ptr()


@pytest.mark.parametrize("kind", [ScalarType.QINT8, ScalarType.QUINT8, ScalarType.QINT32])
def test_a_quantized_view_is_a_tensor_of_its_integers(kind: ScalarType) -> None:
    tensor = TensorView(kind, (2,), None, Cord(b"\1\0\0\0\2\0\0\0"[:: 4 // kind.itemsize])).torch()

    assert str(tensor.dtype) == f"torch.{kind.numpy_dtype}"
    assert tensor.tolist() == [1, 2]


@pytest.mark.parametrize("kind", [ScalarType.QUINT4X2, ScalarType.QUINT2X4])
def test_a_packed_view_is_no_tensor(kind: ScalarType) -> None:
    with pytest.raises(LayoutError, match=f"{kind.name}; use data"):
        TensorView(kind, (2,), None, Cord(b"\1\2")).torch()


@pytest.mark.parametrize("sizes", [(), (0,), (2, 0, 3), (1, 1)])
def test_a_view_of_any_rank_and_size_is_a_tensor(sizes: tuple[int, ...]) -> None:
    count = torch.Size(sizes).numel()

    tensor = TensorView(ScalarType.FLOAT, sizes, None, Cord(bytes(4 * count))).torch()

    assert tensor.shape == sizes
    assert tensor.stride() == torch.zeros(sizes).stride()


def test_a_tensor_of_a_read_only_view_gives_no_warning() -> None:
    code = (  # PyTorch warns once a process
        "import torch; from cordbundle.tensors import *; from cordbundle.cord import Cord;"
        "print(TensorView(ScalarType.BYTE, (2,), None, Cord(bytes(2))).torch().tolist())"
    )

    found = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        check=False,
    )

    assert (found.stdout, found.stderr) == ("[0, 0]\n", "")


@pytest.mark.parametrize("kind", [ScalarType.FLOAT, ScalarType.BFLOAT16, ScalarType.BOOL])
def test_pytorch_takes_a_view_by_dlpack(kind: ScalarType) -> None:
    from torch.utils.dlpack import from_dlpack

    source = counting(kind, 3, 4).t()
    found = describe(source)

    tensor = from_dlpack(TensorView(kind, found.sizes, found.dim_order, found.cord))

    assert tensor.dtype == source.dtype
    assert tensor.stride() == source.stride()
    assert tensor.data_ptr() == source.data_ptr()


@pytest.mark.parametrize("kind", [ScalarType.BFLOAT16, ScalarType.FLOAT8E4M3FN])
def test_a_type_that_numpy_lacks_is_read_by_dlpack(kind: ScalarType) -> None:
    class Exporter:
        def __dlpack__(self, **kwargs: object) -> object:
            capsule: object = counting(kind, 2, 3).t().__dlpack__()
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    found = describe(Exporter())

    assert (found.scalar_type, found.sizes, found.dim_order) == (kind, (3, 2), (1, 0))
    assert bytes(found.cord) == bytes_of(counting(kind, 2, 3))


# Nested inputs.


def test_a_container_registered_with_pytorch_is_flattened() -> None:
    class Pair:
        def __init__(self, left: object, right: object) -> None:
            self.left = left
            self.right = right

    torch.utils._pytree.register_pytree_node(
        Pair, lambda pair: ([pair.left, pair.right], None), lambda leaves, _: Pair(*leaves)
    )

    assert flatten([Pair(1, [2]), torch.Size([3, 4])]) == [1, 2, 3, 4]


def test_containers_are_flattened_in_pytorch_s_order() -> None:
    nest = [{"z": 1, "a": (2, None)}, OrderedDict(q=3), defaultdict(int, d=4), deque([5])]

    assert flatten(nest) == [1, 2, None, 3, 4, 5]


def test_a_tensor_is_no_scalar() -> None:
    assert scalar_of(torch.tensor(1)) is None


def test_a_tensor_that_has_no_memory_is_refused() -> None:
    zeros = torch._efficientzerotensor(3)  # what autograd makes of a gradient that is zero

    with pytest.raises(LayoutError, match="it has no memory of its own"):
        describe(zeros)


def test_what_functionalize_wraps_is_refused() -> None:
    def look(wrapped: torch.Tensor) -> torch.Tensor:
        with pytest.raises(LayoutError, match="it has no memory of its own"):
            describe(wrapped)
        return wrapped

    torch.func.functionalize(look)(torch.ones(2, 3))


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
@pytest.mark.parametrize("sizes", [(), (0,), (5,), (2, 3), (1, 2, 3), (2, 1, 3, 4)], ids=str)
def test_a_small_copy_is_described_as_the_array_itself(
    kind: ScalarType, sizes: tuple[int, ...]
) -> None:
    tensor = counting(kind, *sizes)

    copied, held = describe(tensor, copy_below=4096), describe(tensor)

    assert copied[:3] == held[:3] == (kind, sizes, tensor.dim_order())
    assert bytes(copied.cord) == bytes(held.cord) == bytes_of(tensor)


def test_only_an_array_below_the_limit_is_copied() -> None:
    below, at = torch.zeros(3, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)
    copied, held = describe(below, copy_below=4), describe(at, copy_below=4)

    below[0] = at[0] = 9

    assert bytes(copied.cord) == bytes(3)
    assert bytes(held.cord) == b"\x09\0\0\0"


def test_a_real_tensor_is_described_while_a_fake_mode_is_on() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    tensor = torch.ones(2, 3)
    with FakeTensorMode():
        found = describe(tensor, copy_below=4096)

    assert bytes(found.cord) == bytes_of(tensor)


def test_a_row_major_tensor_with_a_pending_negation_is_refused() -> None:
    tensor = torch.zeros(1, dtype=torch.complex64).conj().imag

    with pytest.raises(LayoutError, match="pending negation"):
        describe(tensor)
