"""TensorView: a tensor of a file, as it lies there.

Rules of this file: nothing is read, mapped or imported before it is asked for; what is handed out
refers to the file's own bytes and is read-only; sizes are checked against bytes before anything is
made of them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from cordbundle.errors import LayoutError
from cordbundle.record_check import Problem, nbytes_of
from cordbundle.strided import contiguous_strides, is_dense

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import torch
    from numpy.typing import DTypeLike

    from cordbundle.cord import Cord
    from cordbundle.scalar_types import ScalarType

    Memory: TypeAlias = memoryview  # `TensorView.memoryview` hides the name inside the class

__all__ = ["TensorShape", "TensorView"]

_CPU = (1, 0)  # kDLCPU, device 0


@dataclass(frozen=True, slots=True)
class TensorShape:
    """What a tensor is but for its bytes; many tensors may share one.

    Attributes:
        scalar_type: Element type.
        sizes: Elements per dimension.
        dim_order: Dimensions from outermost to innermost in memory; row-major if None.
        nbytes: Number of bytes that the elements take.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...] | None
    nbytes: int

    @classmethod
    def of(
        cls,
        scalar_type: ScalarType,
        sizes: Sequence[int],
        dim_order: Sequence[int] | None,
        where: str | None = None,
        source: str | None = None,
    ) -> TensorShape:
        """Check that the facts fit each other; they may come from a hostile file.

        Args:
            scalar_type: Element type.
            sizes: Elements per dimension.
            dim_order: Dimensions from outermost to innermost in memory; row-major if None.
            where: What the tensor is of, for errors.
            source: The file that says so, for errors.

        Raises:
            FormatError: A negative size, a dim order that is no permutation, or too large sizes.
        """
        counts = tuple(sizes)
        order = None if dim_order is None else tuple(dim_order)
        nbytes = nbytes_of(scalar_type.itemsize, counts, order)
        if isinstance(nbytes, Problem):
            raise nbytes.error(where, source)
        return cls(scalar_type, counts, order, nbytes)

    def check_size(self, size: int, where: str | None = None, source: str | None = None) -> None:
        """Check that there are as many bytes as the elements take.

        Args:
            size: How many there are.
            where: What the tensor is of, for errors.
            source: The file that holds them, for errors.

        Raises:
            FormatError: There are more or fewer.
        """
        if size != self.nbytes:
            sizes = _shorten(self.sizes)
            what = f"tensor of {self.scalar_type.name} with sizes {sizes} has other bytes"
            raise Problem(what, f"{self.nbytes} bytes", f"{size} bytes").error(where, source)


class TensorView:
    """A tensor whose bytes stay where they are.

    It stays valid when the file object that it came from is closed. Two views are equal only if
    they are the same object; compare arrays, or cords, instead.

    It exports the buffer protocol on Python 3.12 and later; before, `memoryview()` gives the same.
    `numpy.asarray(view)`, `numpy.from_dlpack(view)` and `torch.from_dlpack(view)` share its memory.

    Args:
        scalar_type: Element type.
        sizes: Elements per dimension.
        dim_order: Dimensions from outermost to innermost in memory; row-major if None.
        cord: The bytes.

    Raises:
        FormatError: A negative size, a dim order that is no permutation, or another number of bytes
            than the sizes ask for.
    """

    __slots__ = ("__weakref__", "_data", "_offset", "_shape", "_whole")

    def __init__(
        self,
        scalar_type: ScalarType,
        sizes: Sequence[int],
        dim_order: Sequence[int] | None,
        cord: Cord,
    ) -> None:
        shape = TensorShape.of(scalar_type, sizes, dim_order)
        shape.check_size(len(cord))
        self._shape = shape
        self._whole = cord
        self._offset = 0
        self._data: Memory | None = None

    @classmethod
    def within(cls, shape: TensorShape, whole: Cord, offset: int) -> TensorView:
        """Return the tensor at an offset of a Cord, which reaches that far.

        The part of the Cord is only cut out when it is asked for.
        """
        view = cls.__new__(cls)
        view._shape = shape
        view._whole = whole
        view._offset = offset
        view._data = None
        return view

    @property
    def cord(self) -> Cord:
        """The bytes in memory order, by reference."""
        if len(self._whole) != self._shape.nbytes:
            self._whole = self._whole[self._offset : self._offset + self._shape.nbytes]
            self._offset = 0
        return self._whole

    @property
    def scalar_type(self) -> ScalarType:
        """Element type."""
        return self._shape.scalar_type

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements per dimension."""
        return self._shape.sizes

    @property
    def dim_order(self) -> tuple[int, ...]:
        """Dimensions from outermost to innermost in memory."""
        order = self._shape.dim_order
        return tuple(range(len(self.sizes))) if order is None else order

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours, per dimension."""
        return contiguous_strides(self.sizes, self.dim_order)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self._shape.nbytes

    @property
    def data(self) -> Memory:
        """The bytes in memory order: one dimension, format `B`, read-only.

        Bytes of a file are mapped, on first use. A tensor that lies in several pieces is joined
        (which costs its size once), since one view cannot hold pieces.

        Raises:
            SourceChangedError: The file was truncated. What was returned before is not safe then:
                touching a page that is gone ends the process (`SIGBUS`).
        """
        flat = self.cord.try_flat()  # asks each time whether the file still is as long as its map
        if flat is not None:
            self._data = flat
        elif self._data is None:
            self._data = memoryview(bytes(self.cord))
        return self._data

    def memoryview(self) -> Memory:
        """Return a read-only view with the tensor's shape, strides and format.

        Nothing is copied. Row-major tensors need the standard library alone; other dim orders,
        sizes of 0, and float16 below Python 3.12 need NumPy, since `memoryview.cast` cannot make
        them.

        Raises:
            BufferError: The scalar type has no buffer format, or NumPy is needed and missing.
        """
        code = self.scalar_type.format
        if code is None:
            raise BufferError(
                f"{self.scalar_type.name} has no format in the buffer protocol; use data or torch()"
            )
        rank = range(len(self.sizes))
        castable = self.nbytes > 0 and (code != "e" or sys.version_info >= (3, 12))
        steps = self.strides
        if castable and sys.byteorder == "little" and is_dense(self.sizes, steps, rank, 1):
            return self.data.cast(code, self.sizes)  # type: ignore[call-overload,no-any-return]
        try:
            array = self.numpy()
        except ModuleNotFoundError as error:
            raise BufferError(f"{self!r} needs NumPy for a shaped view; use data") from error
        return array.data

    def __buffer__(self, flags: int, /) -> Memory:
        return self.memoryview()

    def numpy(self) -> np.ndarray:
        """Return a read-only array over the same memory.

        A quantized tensor gives the integers that it stores.

        Raises:
            LayoutError: NumPy has no such type (bfloat16, float8, packed bits).
            ModuleNotFoundError: NumPy is not installed.
        """
        import numpy as np

        name = self.scalar_type.numpy_dtype
        if name is None:
            way = "use data" if self.scalar_type.is_packed else "use torch(), or data for the bytes"
            raise LayoutError(f"NumPy has no type for {self.scalar_type.name}", cause=way)
        dtype = np.dtype(name)
        if sys.byteorder == "big":
            dtype = dtype.newbyteorder("<")
        flat = np.frombuffer(self.data, dtype) if self.nbytes else np.empty(0, dtype)
        order = self.dim_order
        array = flat.reshape([self.sizes[dim] for dim in order])
        turned: np.ndarray = array.transpose([order.index(dim) for dim in range(len(order))])
        return turned

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        import numpy as np

        array = self.numpy()
        if dtype is None or np.dtype(dtype) == array.dtype:
            return array.copy("K") if copy else array
        if copy is False:
            raise ValueError(f"{array.dtype} as {np.dtype(dtype)} needs a copy")
        return array.astype(dtype)

    def torch(self) -> torch.Tensor:
        """Return a tensor over the same memory.

        PyTorch has no read-only tensors: do not change it in place, since writing into a mapped
        file kills the process; `clone()` it first. A quantized tensor gives the integers that it
        stores, as the file does not hold scale and zero point.

        Raises:
            LayoutError: A type that packs several elements into a byte.
            ModuleNotFoundError: PyTorch is not installed.
        """
        import torch

        kind = self.scalar_type
        if kind.is_packed:
            raise LayoutError(f"PyTorch cannot view the bytes of {kind.name}", cause="use data")
        name = (kind.numpy_dtype if kind.is_quantized else None) or kind.torch_dtype
        dtype: torch.dtype = getattr(torch, name)
        if self.nbytes == 0:
            return torch.empty_strided(self.sizes, self.strides, dtype=dtype, device="cpu")
        _use_up_warning()
        return torch.frombuffer(self.data, dtype=dtype).as_strided(self.sizes, self.strides)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Export by NumPy, or by PyTorch where NumPy lacks the type.

        NumPy tells the taker that the memory is read-only; before version 2.1 it refuses instead.
        """
        asked = {
            "stream": stream,
            "max_version": max_version,
            "dl_device": dl_device,
            "copy": copy,
        }
        # What was not asked for is not passed on: older versions do not know every word.
        given = {key: value for key, value in asked.items() if value is not None}
        exporter: Any = self.torch() if self.scalar_type.numpy_dtype is None else self.numpy()
        capsule: object = exporter.__dlpack__(**given)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __repr__(self) -> str:
        return (
            f"TensorView({self.scalar_type.name}, sizes={self.sizes}, dim_order={self.dim_order},"
            f" nbytes={self.nbytes})"
        )


def _shorten(sizes: tuple[int, ...]) -> str:
    """Write sizes down; a hostile file may have thousands."""
    return str(sizes) if len(sizes) <= 16 else f"({', '.join(map(str, sizes[:16]))}, ...)"


@cache
def _use_up_warning() -> None:
    """Let PyTorch give its only warning about read-only memory, unheard, on a byte of our own.

    It warns once a process. Silencing each call instead would change the process's warning filters
    each time, which threads share.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.frombuffer(b"\0", dtype=torch.uint8)
