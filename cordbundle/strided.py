"""Strided memory: dim orders, and bringing elements into one.

Rules of this file: sizes and strides are plain integers, strides count bytes unless said otherwise;
nothing here knows an array library but `Strided.gathered`, which uses NumPy where it is loaded
anyway, for speed, with the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from cordbundle.chunks import flat_bytes

if TYPE_CHECKING:
    from cordbundle.cord import Cord

__all__ = [
    "NUMPY_MAX_RANK",
    "Source",
    "Strided",
    "contiguous_strides",
    "dim_order_of",
    "is_dense",
    "order_by_stride",
]

NUMPY_MAX_RANK = 32
"""Dimensions that arrays of every version of NumPy can have; PyTorch has no such limit."""


def contiguous_strides(sizes: Sequence[int], dim_order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a tensor without gaps in this dim order.

    A dimension of size 0 counts as 1, as in PyTorch and in the ExecuTorch runtime
    (`dim_order_to_stride`).
    """
    strides = [1] * len(sizes)
    step = 1
    for dim in reversed(dim_order):
        strides[dim] = step
        step *= max(sizes[dim], 1)
    return tuple(strides)


def is_dense(
    sizes: Sequence[int], strides: Sequence[int], dim_order: Sequence[int], itemsize: int
) -> bool:
    """Tell whether the elements, taken in this dim order, are one run of memory."""
    return 0 in sizes or _nested(sizes, strides, dim_order, itemsize)


def _nested(
    sizes: Sequence[int], strides: Sequence[int], dim_order: Sequence[int], itemsize: int
) -> bool:
    step = itemsize
    for dim in reversed(dim_order):
        if sizes[dim] != 1:
            if strides[dim] != step:
                return False
            step *= sizes[dim]
    return True


def dim_order_of(sizes: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the dim order of a tensor, exactly as `torch.Tensor.dim_order()` reports it.

    Where several orders are right, as with dimensions of size 1, PyTorch prefers row-major order,
    then channels last, then an insertion sort by stride that begins from row-major order; exported
    programs carry its answer, so the same preferences are kept here. A dimension that repeats
    (stride 0) or runs backwards (negative stride, which PyTorch does not have) has no place in
    memory order: such a tensor is row-major.
    """
    rank = len(sizes)
    row_major = tuple(range(rank))
    if rank < 2 or any(size > 1 and step <= 0 for size, step in zip(sizes, strides, strict=True)):
        return row_major
    is_row_major = prod(sizes) < 2 or _nested(sizes, strides, row_major, itemsize)
    is_channels_last = rank == 4 and _nested(sizes, strides, (0, 2, 3, 1), itemsize)
    if is_row_major and not is_channels_last:
        return row_major
    if is_channels_last and not is_row_major:
        return (0, 2, 3, 1)
    return _sorted_by_stride(sizes, [abs(step) for step in strides])


def order_by_stride(strides: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions from the largest stride to the smallest, equal ones as they stand.

    That is what ExecuTorch's `exir.tensor.dim_order_from_stride` makes of known strides; it defines
    a class for each tensor to find it, and refuses a stride of 0, which comes last here.
    """
    return tuple(sorted(range(len(strides)), key=strides.__getitem__, reverse=True))


def _sorted_by_stride(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Sort dimensions from outermost to innermost, leaving alone what cannot be told apart."""
    inward = list(reversed(range(len(sizes))))  # innermost first
    for start in range(1, len(inward)):
        moving = start
        for below in reversed(range(start)):
            verdict = _compare(sizes, strides, inward[below], inward[moving])
            if verdict < 0:
                break
            if verdict > 0:
                inward[below], inward[moving] = inward[moving], inward[below]
                moving = below
    return tuple(reversed(inward))


def _compare(sizes: Sequence[int], strides: Sequence[int], inner: int, outer: int) -> int:
    """Return -1 if `inner` does lie inside `outer`, 1 if it is the reverse, 0 if neither."""
    if strides[inner] == 0 or strides[outer] == 0:
        return 0
    if strides[inner] == strides[outer]:
        return 0 if sizes[outer] >= sizes[inner] else 1
    return -1 if strides[inner] < strides[outer] else 1


@dataclass(frozen=True, slots=True)
class Source:
    """A strided tensor, wherever its elements are.

    Attributes:
        sizes: Elements per dimension.
        strides: Bytes between neighbours per dimension; may be 0, negative, or no multiple of
            `itemsize`.
        itemsize: Bytes of one element: 1, 2, 4 or 8.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    def held(self, dim_order: tuple[int, ...]) -> memoryview | Cord | None:
        """Return the bytes by reference, or None if the way to the memory does not give them.

        Args:
            dim_order: An order in which the elements are dense.
        """
        raise NotImplementedError

    def gathered(self, dim_order: tuple[int, ...]) -> memoryview:
        """Return the elements in this dim order, copied; O(size)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Strided(Source):
    """Elements in flat memory.

    Attributes:
        memory: Bytes that hold every element; one dimension, format `B`.
        start: Where the element with all indices 0 begins in `memory`, in bytes.
    """

    memory: memoryview
    start: int

    def held(self, dim_order: tuple[int, ...]) -> memoryview | Cord | None:
        """See `Source`."""
        return self.memory[self.start : self.start + prod(self.sizes) * self.itemsize]

    def gathered(self, dim_order: tuple[int, ...]) -> memoryview:
        """See `Source`."""
        if "numpy" not in sys.modules or len(self.sizes) > NUMPY_MAX_RANK:
            return _gather(self, dim_order)
        import numpy as np

        array: np.ndarray[tuple[int, ...], np.dtype[np.unsignedinteger]] = np.ndarray(
            self.sizes,
            np.dtype(f"u{self.itemsize}"),
            buffer=self.memory,
            offset=self.start,
            strides=self.strides,
        )
        return flat_bytes(np.ascontiguousarray(array.transpose(dim_order)).data)


def _gather(source: Strided, dim_order: tuple[int, ...]) -> memoryview:
    """Gather by extended slices along the longest dimension: few steps of Python, each long."""
    sizes, strides, itemsize = source.sizes, source.strides, source.itemsize
    out = memoryview(bytearray(prod(sizes) * itemsize))
    steps = [step * itemsize for step in contiguous_strides(sizes, dim_order)]
    along = max(reversed(dim_order), key=lambda dim: sizes[dim])
    others = [dim for dim in range(len(sizes)) if dim != along]
    count, step_in, step_out = sizes[along], strides[along], steps[along]
    for index in product(*(range(sizes[dim]) for dim in others)):
        place = source.start + sum(i * strides[dim] for i, dim in zip(index, others, strict=True))
        target = sum(i * steps[dim] for i, dim in zip(index, others, strict=True))
        if step_in == step_out == itemsize:
            size = count * itemsize
            out[target : target + size] = source.memory[place : place + size]
            continue
        for byte in range(itemsize):
            last = target + byte + (count - 1) * step_out
            run = _every(source.memory, place + byte, count, step_in)
            out[target + byte : last + 1 : step_out] = run
    return out


def _every(memory: memoryview, first: int, count: int, step: int) -> memoryview:
    """Return `count` bytes of `memory` from `first` on, `step` apart."""
    if step == 0:
        return memoryview(bytes(memory[first : first + 1]) * count)
    last = first + (count - 1) * step
    stop = last + (1 if step > 0 else -1)
    return memory[first : stop if stop >= 0 else None : step]
