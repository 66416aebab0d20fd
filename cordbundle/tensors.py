"""Any array to scalar type, sizes, dim order and Cord, and back.

Rules of this file: no array library is imported, only used where its arrays turn up and it is
loaded already; no element is converted, ever; an array is referred to, never copied, unless its
elements have gaps or stand in another order, and then it is gathered when written, one at a time;
what is refused is refused by name, with the way out.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple, cast

from cordbundle.arrays import plain, source_of
from cordbundle.cord import Cord, Deferred
from cordbundle.errors import LayoutError, TooLargeError
from cordbundle.scalar_types import ScalarType
from cordbundle.strided import Source, dim_order_of, is_dense
from cordbundle.tensor_view import TensorView

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import torch
    from typing_extensions import Buffer

    from cordbundle.dlpack import SupportsDLPack

    Array: TypeAlias = "Buffer | SupportsDLPack | torch.Tensor | np.generic | TensorView"

__all__ = [
    "Gather",
    "ScalarType",
    "TensorDescription",
    "TensorView",
    "describe",
    "flatten",
    "scalar_of",
]

_MAX_SIZE = 2**31 - 1  # sizes are int32 in the schema
_MAX_RANK = 255  # dim orders are ubytes
_NUMBERS = (bool, int, float)
_ROW_MAJOR = ((), (0,), (0, 1), (0, 1, 2))


class TensorDescription(NamedTuple):
    """What a file stores of a tensor.

    Attributes:
        scalar_type: Element type.
        sizes: Elements per dimension.
        dim_order: Dimensions from outermost to innermost in memory.
        cord: The bytes, in that order; they are the array's own memory unless `gathered`.
        gathered: Whether the elements have to be brought into order when they are written.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    cord: Cord
    gathered: bool


class Gather(Deferred):
    """The elements of a strided array, brought into order when they are written.

    It keeps the array, so that a change made before the write is a change of what is written.
    """

    __slots__ = ("_dim_order", "_source")

    def __init__(self, source: Source, dim_order: tuple[int, ...]) -> None:
        super().__init__(prod(source.sizes) * source.itemsize)
        self._source = source
        self._dim_order = dim_order

    def produce(self) -> memoryview:
        """Copy exactly the elements of the array; O(size), and as much memory."""
        return self._source.gathered(self._dim_order)


def describe(
    array: Array, *, dim_order: Sequence[int] | None = None, copy_below: int = 0
) -> TensorDescription:
    """Describe an array as a file stores it, by reference.

    Taken are NumPy arrays and scalars (also with the types of ml_dtypes), PyTorch tensors, anything
    with the buffer protocol and a format of one element (`array`, ctypes, `memoryview`; bytes are a
    tensor of uint8), CPU tensors by DLPack, and `TensorView`. A quantized tensor is stored as the
    integers that represent it.

    A change of the array before the write is a change of what is written. Its memory is kept as
    long as the Cord.

    Args:
        array: The array.
        dim_order: The order to store the elements in. If None, the array's own, as
            `torch.Tensor.dim_order()` reports it; row-major for one that repeats elements
            (stride 0) or runs backwards.
        copy_below: An array of fewer bytes may be copied at once, which takes less time.

    Returns:
        The description. O(rank²); no element is touched.

    Raises:
        LayoutError: An element type, device, or layout that cannot be stored, or a `dim_order` that
            is no permutation of the dimensions.
        TooLargeError: A dimension of 2**31 or more, or more than 255 dimensions.
        TypeError: No array.
    """
    usual = plain(array, copy_below)
    if usual is not None:
        kind, sizes, cord = usual
        _check_limits(sizes)
        row_major = _ROW_MAJOR[len(sizes)]
        if dim_order is None or tuple(dim_order) == row_major:
            return TensorDescription(kind, sizes, row_major, cord, gathered=False)
    kind, source = source_of(array)
    sizes = tuple(source.sizes)
    _check_limits(sizes)
    if dim_order is not None:
        order = _permutation(dim_order, len(sizes))
    elif isinstance(array, TensorView):
        order = array.dim_order
    else:
        order = dim_order_of(sizes, source.strides, source.itemsize)
    if is_dense(sizes, source.strides, order, source.itemsize):
        held = source.held(order)
        if held is not None:
            # Memory is flat already, which Cord() would look at again.
            cord = Cord.of(held.toreadonly()) if isinstance(held, memoryview) else Cord(held)
            if len(cord) < copy_below and cord.is_memory:
                cord = Cord(bytes(cord))
            return TensorDescription(kind, sizes, order, cord, gathered=False)
    return TensorDescription(kind, sizes, order, Cord.of(Gather(source, order)), gathered=True)


def _check_limits(sizes: tuple[int, ...]) -> None:
    if len(sizes) > _MAX_RANK:
        raise TooLargeError(
            "too many dimensions", expected=f"at most {_MAX_RANK}", actual=len(sizes)
        )
    if max(sizes, default=0) > _MAX_SIZE:
        dim = next(dim for dim, size in enumerate(sizes) if size > _MAX_SIZE)
        raise TooLargeError(
            f"dimension {dim} is too large", expected=f"at most {_MAX_SIZE}", actual=sizes[dim]
        )


def _permutation(dim_order: Sequence[int], rank: int) -> tuple[int, ...]:
    order = tuple(dim_order)
    if sorted(order) != list(range(rank)):
        raise LayoutError(
            "dim order is no permutation of the dimensions",
            expected=f"each of 0 to {rank - 1} once" if rank else "()",
            actual=order,
        )
    return order


def flatten(nested: object) -> list[object]:
    """Return the leaves of nested containers in the order of `torch.utils._pytree`.

    Containers are `list`, `tuple`, `dict`, `OrderedDict`, `defaultdict`, `deque` (these types
    exactly: a subclass is a leaf) and every named tuple; a dictionary counts its values, in
    insertion order. Everything else, None too, is a leaf. Where PyTorch is loaded it does the work,
    so that containers registered there are taken apart as well.

    Raises:
        RecursionError: A container that holds itself.
    """
    if type(nested) in (list, tuple):
        items = cast("Sequence[object]", nested)
        if _leaf_types().issuperset(map(type, items)):
            return list(items)
    if "torch" in sys.modules:
        from torch.utils._pytree import tree_flatten

        leaves: list[object] = tree_flatten(nested)[0]
        return leaves
    leaves = []
    _flatten_into(leaves, nested)
    return leaves


def _leaf_types() -> set[type]:
    """Return types that are leaves for sure: most cases hold nothing else, and need no walk."""
    if "torch" not in sys.modules:
        return {TensorView, *_NUMBERS}
    import torch

    return {torch.Tensor, TensorView, *_NUMBERS}


def _flatten_into(leaves: list[object], node: object) -> None:
    if type(node) in (list, tuple, deque) or _is_named_tuple(type(node)):
        children = cast("Iterable[object]", node)
    elif type(node) in (dict, OrderedDict, defaultdict):
        children = cast("dict[object, object]", node).values()
    else:
        leaves.append(node)
        return
    for child in children:
        _flatten_into(leaves, child)


def _is_named_tuple(kind: type) -> bool:
    fields = getattr(kind, "_fields", None)
    return (
        issubclass(kind, tuple)
        and isinstance(fields, tuple)
        and all(type(field) is str for field in fields)
        and callable(getattr(kind, "_make", None))
        and callable(getattr(kind, "_asdict", None))
    )


def scalar_of(value: object) -> bool | int | float | None:
    """Return a Python or NumPy scalar as the Python scalar it is, or None for anything else.

    `True` is a bool, never an int. A float keeps its bits: infinities, nan and -0.0. An int may be
    larger than the 64 bits that a file holds. A 0-d array, which is a tensor, and what would lose
    precision (`numpy.longdouble`) give None.
    """
    if isinstance(value, _NUMBERS):
        if isinstance(value, bool):
            return value
        return int(value) if isinstance(value, int) else float(value)
    if "numpy" in sys.modules:
        import numpy as np

        if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.itemsize <= 8:
            item: bool | int | float = value.item()
            return item
    return None
