"""Arrays of any shape, strides and order, against NumPy and PyTorch."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from math import prod
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordbundle.cord import Cord
from cordbundle.scalar_types import ScalarType
from cordbundle.strided import Strided, contiguous_strides, dim_order_of, is_dense, order_by_stride
from cordbundle.tensors import TensorView, describe, flatten

if TYPE_CHECKING:
    import numpy as np
else:
    np = pytest.importorskip("numpy")

WIDTHS = {1: ScalarType.BYTE, 2: ScalarType.UINT16, 4: ScalarType.UINT32, 8: ScalarType.UINT64}


@st.composite
def cut_arrays(draw: st.DrawFn) -> np.ndarray[tuple[int, ...], np.dtype[Any]]:
    """Draw a permuted, sliced, flipped, broadcast array of distinct elements."""
    sizes = draw(st.lists(st.integers(0, 5), max_size=4))
    width = draw(st.sampled_from(list(WIDTHS)))
    array = np.arange(1, 1 + prod(sizes), dtype=f"u{width}").reshape(sizes)
    array = array.transpose(draw(st.permutations(range(len(sizes)))))
    steps = st.sampled_from([1, 1, 1, 2, -1, -2])
    cuts: Any = (*(slice(None, None, draw(steps)) for _ in sizes), ...)
    array = array[cuts]
    if draw(st.booleans()):
        array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
    return array.transpose(draw(st.permutations(range(array.ndim))))


@st.composite
def dense_strides(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw sizes and strides of a dense tensor, with any stride where a size is 1."""
    sizes = tuple(draw(st.lists(st.integers(0, 4), max_size=6)))
    strides = contiguous_strides(sizes, draw(st.permutations(range(len(sizes)))))
    free = st.integers(0, 30)
    return sizes, tuple(
        draw(free) if size == 1 else step for size, step in zip(sizes, strides, strict=True)
    )


@given(cut_arrays(), st.randoms(use_true_random=False))
def test_a_description_holds_exactly_the_elements_in_its_order(
    array: np.ndarray[tuple[int, ...], np.dtype[Any]], random: Any
) -> None:
    order = random.sample(range(array.ndim), array.ndim)

    own, given_order = describe(array), describe(array, dim_order=order)

    assert own.scalar_type is WIDTHS[array.itemsize]
    assert own.sizes == given_order.sizes == array.shape
    assert bytes(own.cord) == array.transpose(own.dim_order).tobytes()
    assert bytes(given_order.cord) == array.transpose(order).tobytes()


@given(cut_arrays())
def test_a_description_seen_through_a_view_is_the_array(
    array: np.ndarray[tuple[int, ...], np.dtype[Any]],
) -> None:
    found = describe(array)

    view = TensorView(found.scalar_type, found.sizes, found.dim_order, found.cord)

    assert np.array_equal(view.numpy(), array)
    assert np.array_equal(np.asarray(view.memoryview()), array)
    assert describe(view).cord == found.cord


@given(cut_arrays())
def test_dense_memory_is_never_copied_and_other_memory_always(
    array: np.ndarray[tuple[int, ...], np.dtype[Any]],
) -> None:
    found = describe(array)

    chunks = [np.frombuffer(chunk, np.uint8) for chunk in found.cord.chunks()]
    shared = all(np.shares_memory(chunk, array) for chunk in chunks)
    assert shared != found.gathered
    if found.gathered:
        assert not is_dense(array.shape, array.strides, found.dim_order, array.itemsize)


@given(cut_arrays(), st.randoms(use_true_random=False))
def test_gathering_without_numpy_gives_the_same_bytes(
    array: np.ndarray[tuple[int, ...], np.dtype[Any]], random: Any
) -> None:
    order = tuple(random.sample(range(array.ndim), array.ndim))
    first = np.ravel(array)[:1].tobytes()
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if not first or not order:
        return
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    memory = memoryview(base.tobytes())
    source = Strided(array.shape, array.strides, array.itemsize, memory, start)

    with patch.dict(sys.modules):
        del sys.modules["numpy"]
        plain = bytes(source.gathered(order))

    assert plain == bytes(source.gathered(order)) == array.transpose(order).tobytes()


@given(dense_strides())
def test_the_dim_order_of_dense_memory_is_dense(
    drawn: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    sizes, strides = drawn

    order = dim_order_of(sizes, strides, 1)

    assert sorted(order) == list(range(len(sizes)))
    assert is_dense(sizes, strides, order, 1)


@given(
    st.one_of(
        dense_strides(),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=6).map(
            lambda pairs: (tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))
        ),
    )
)
def test_a_dim_order_is_the_one_that_pytorch_reports(
    drawn: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    torch = pytest.importorskip("torch")
    sizes, strides = drawn
    tensor = torch.empty(1 + sum(s * t for s, t in zip(sizes, strides, strict=True)))

    found = dim_order_of(sizes, [4 * step for step in strides], 4)

    repeats = any(size > 1 and step == 0 for size, step in zip(sizes, strides, strict=True))
    reported = tensor.as_strided(sizes, strides).dim_order()
    assert found == (tuple(range(len(sizes))) if repeats else reported)


@given(st.lists(st.integers(1, 6), max_size=6))
def test_an_order_by_stride_is_the_one_that_executorch_makes(strides: list[int]) -> None:
    executorch = pytest.importorskip("executorch.exir.tensor")

    assert order_by_stride(strides) == executorch.dim_order_from_stride(strides)


@given(st.lists(st.integers(-3, 5), max_size=4), st.binary(max_size=64))
def test_a_view_is_made_only_of_bytes_that_its_sizes_ask_for(sizes: list[int], data: bytes) -> None:
    fits = min(sizes, default=0) >= 0 and prod(sizes) * 2 == len(data)

    try:
        view = TensorView(ScalarType.HALF, sizes, None, Cord(data))
    except ValueError:
        assert not fits
    else:
        assert fits
        assert view.numpy().shape == tuple(sizes)


Pair = namedtuple("Pair", ["left", "right"])  # the older kind is meant

nests = st.recursive(
    st.none() | st.integers() | st.text(max_size=2),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(deque),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(
            lambda items: defaultdict(int, items)
        ),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        st.frozensets(st.integers(), max_size=2),
    ),
    max_leaves=12,
)


@given(nests)
def test_leaves_are_those_of_pytorch_with_and_without_it(nest: object) -> None:
    pytree = pytest.importorskip("torch.utils._pytree")
    leaves = pytree.tree_leaves(nest)

    with patch.dict(sys.modules):
        del sys.modules["torch"]
        without = flatten(nest)

    assert without == leaves
    assert flatten(nest) == leaves
