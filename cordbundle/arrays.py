"""The arrays of others: what they are made of, and the ways to their memory.

Rules of this file: no array library is imported, only used where its arrays turn up and it is
loaded already; one class per way to memory, one function per library; no element is converted;
what cannot be stored is refused by name, with the way out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, cast

from cordbundle.chunks import flat_bytes
from cordbundle.cord import Cord
from cordbundle.errors import LayoutError
from cordbundle.scalar_types import ScalarType, scalar_type_of_format, scalar_type_of_name
from cordbundle.strided import NUMPY_MAX_RANK, Source, Strided, contiguous_strides
from cordbundle.tensor_view import TensorView

if TYPE_CHECKING:
    import numpy as np
    import torch
    from typing_extensions import Buffer

    from cordbundle.dlpack import SupportsDLPack

__all__ = ["plain", "source_of"]

_PLAIN = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
"""The dtypes that every NumPy and every PyTorch have."""

_AMBIGUOUS = 4  # from this rank on a row-major tensor may be channels last as well


@dataclass(frozen=True, slots=True)
class _NumpySource(Source):
    """A NumPy array of plain unsigned integers, as wide as the elements."""

    array: np.ndarray

    def held(self, dim_order: tuple[int, ...]) -> memoryview | Cord | None:
        return flat_bytes(self.array.transpose(dim_order).data)

    def gathered(self, dim_order: tuple[int, ...]) -> memoryview:
        import numpy as np

        return flat_bytes(np.ascontiguousarray(self.array.transpose(dim_order)).data)


@dataclass(frozen=True, slots=True)
class _BufferSource(Source):
    """A buffer whose memory can only be had through its own view."""

    view: memoryview

    def held(self, dim_order: tuple[int, ...]) -> memoryview | Cord | None:
        # Only C and Fortran order can be seen through; what is dense in others is gathered.
        return flat_bytes(self.view) if self.view.contiguous else None

    def gathered(self, dim_order: tuple[int, ...]) -> memoryview:
        row_major = memoryview(self.view.tobytes())
        strides = _row_major_strides(self.sizes, self.itemsize)
        return Strided(self.sizes, strides, self.itemsize, row_major, 0).gathered(dim_order)


@dataclass(frozen=True, slots=True)
class _ViewSource(Source):
    """A tensor of a file; mapped only if it has to be gathered."""

    view: TensorView

    def held(self, dim_order: tuple[int, ...]) -> memoryview | Cord | None:
        return self.view.cord

    def gathered(self, dim_order: tuple[int, ...]) -> memoryview:
        memory = self.view.data
        return Strided(self.sizes, self.strides, self.itemsize, memory, 0).gathered(dim_order)


def _row_major_strides(sizes: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(step * itemsize for step in contiguous_strides(sizes, range(len(sizes))))


def source_of(array: object) -> tuple[ScalarType, Source]:
    """Find out what kind of array this is."""
    if isinstance(array, TensorView):
        return array.scalar_type, _from_view(array)
    if "torch" in sys.modules:
        import torch

        if isinstance(array, torch.Tensor):
            return _from_torch(array)
    if "numpy" in sys.modules:
        import numpy as np

        if isinstance(array, np.ndarray | np.generic):
            return _from_numpy(np.asarray(array) if isinstance(array, np.generic) else array)
    if hasattr(type(array), "__dlpack__"):
        from cordbundle.dlpack import read

        return read(cast("SupportsDLPack", array))
    try:
        view = memoryview(cast("Buffer", array))
    except TypeError:
        raise TypeError(
            f"{type(array).__qualname__} is no tensor; give a NumPy array, a PyTorch tensor, or an"
            " object with the buffer protocol or __dlpack__"
        ) from None
    return _from_buffer(view)


def _refusal(library: str, name: str, cause: str | None = None) -> LayoutError:
    return LayoutError(
        f"{library} of {name} cannot be stored",
        cause=cause or "ExecuTorch has no such scalar type; convert it first",
    )


def _from_numpy(array: np.ndarray) -> tuple[ScalarType, Source]:
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise _refusal("a NumPy array", "masked values", "give array.filled(value)")
    kind = _numpy_scalar_type(array.dtype)
    # Plain integers export a buffer where the types of ml_dtypes do not.
    return kind, _numpy_source(np.asarray(array), kind.itemsize)


@lru_cache  # the name of a dtype is put together by Python code each time
def _numpy_scalar_type(dtype: np.dtype) -> ScalarType:
    kind = scalar_type_of_name(dtype.name)
    if kind is None:
        raise _refusal("a NumPy array", str(dtype))
    if dtype.newbyteorder("<") != dtype:
        raise _refusal(
            "a NumPy array",
            f"big-endian {dtype.name}",
            "give array.astype(array.dtype.newbyteorder('<'))",
        )
    return kind


def _numpy_source(array: np.ndarray, itemsize: int) -> _NumpySource:
    plain = array.view(f"u{itemsize}")
    return _NumpySource(plain.shape, plain.strides, itemsize, plain)


def _from_view(view: TensorView) -> _ViewSource:
    itemsize = view.scalar_type.itemsize
    strides = tuple(step * itemsize for step in view.strides)
    return _ViewSource(view.sizes, strides, itemsize, view)


def _from_buffer(view: memoryview) -> tuple[ScalarType, Source]:
    kind = scalar_type_of_format(view.format, view.itemsize)
    if kind is None:
        raise _refusal(
            "a buffer", f"format {view.format!r}, {view.itemsize} bytes each", "convert it first"
        )
    if "numpy" in sys.modules and not view.contiguous and not view.suboffsets:
        import numpy as np

        return _from_numpy(np.asarray(view))
    sizes = view.shape or ()
    # Suboffsets are pointers on the way to an element: its strides say nothing.
    strides = view.strides if view.strides and not view.suboffsets else None
    return kind, _BufferSource(
        sizes, strides or _row_major_strides(sizes, view.itemsize), view.itemsize, view
    )


def _from_torch(tensor: torch.Tensor) -> tuple[ScalarType, Source]:
    kind = _torch_scalar_type(tensor)
    storage = tensor.untyped_storage()
    sizes = tuple(tensor.shape)
    strides = tuple(int(step) for step in tensor.stride())
    if "numpy" in sys.modules and len(sizes) <= NUMPY_MAX_RANK:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        # Through integers of the same width, since NumPy lacks some of the types; by its storage,
        # since the tensor may be of a subclass; without modes, since exporters have some running.
        plain = getattr(torch, f"int{8 * kind.itemsize}")
        with _disable_current_modes():
            same = torch.empty(0, dtype=plain, device="cpu")
            same.set_(storage, tensor.storage_offset(), sizes, strides)
            array = same.numpy()  # from now on the storage refuses to be resized
        return kind, _numpy_source(array, kind.itemsize)
    from cordbundle.dlpack import memory_at

    in_bytes = tuple(step * kind.itemsize for step in strides)
    address = storage.data_ptr() + int(tensor.storage_offset()) * kind.itemsize
    return kind, memory_at(address, sizes, in_bytes, kind.itemsize, owner=storage)


def plain(array: object, copy_below: int) -> tuple[ScalarType, tuple[int, ...], Cord] | None:
    """Return scalar type, sizes and bytes of the most usual array of NumPy or PyTorch, else None.

    That is one of a usual type in CPU memory, row-major, of rank 3 at most, and no part of a trace.
    It takes a fraction of the time of any other, which counts where there are thousands.
    """
    if "numpy" not in sys.modules:
        return None
    import numpy as np

    usual = None
    if type(array) is np.ndarray:
        usual = _plain_numpy(array)
    elif "torch" in sys.modules:
        usual = _plain_torch(array)
    if usual is None:
        return None
    kind, elements = usual
    if elements.nbytes < copy_below:
        return kind, elements.shape, Cord(elements.tobytes())
    return kind, elements.shape, Cord.of(flat_bytes(elements.data).toreadonly())


def _plain_numpy(array: np.ndarray) -> tuple[ScalarType, np.ndarray] | None:
    kind = _plain_numpy_types().get(array.dtype)
    if kind is None or array.ndim >= _AMBIGUOUS or not array.flags.c_contiguous or not array.size:
        return None
    return kind, array


def _plain_torch(array: object) -> tuple[ScalarType, np.ndarray] | None:
    import torch

    if type(array) is not torch.Tensor:
        return None
    kind = _plain_torch_types().get(array.dtype)
    if (
        kind is None
        or array.dim() >= _AMBIGUOUS
        or array.layout is not torch.strided
        or array.is_nested
        or not array.is_cpu
        or array.requires_grad
        or not array.is_contiguous()
        or array.is_neg()
        or not array.data_ptr()
        or torch.utils._python_dispatch.is_in_torch_dispatch_mode()
    ):
        return None
    return kind, array.numpy()


@cache
def _plain_numpy_types() -> Mapping[np.dtype, ScalarType]:
    import numpy as np

    kinds = {np.dtype(name): scalar_type_of_name(name) for name in _PLAIN}
    return {dtype: kind for dtype, kind in kinds.items() if kind is not None}


@cache
def _plain_torch_types() -> Mapping[torch.dtype, ScalarType]:
    import torch

    kinds = {getattr(torch, name): scalar_type_of_name(name) for name in _PLAIN}
    return {dtype: kind for dtype, kind in kinds.items() if kind is not None}


def _torch_scalar_type(tensor: torch.Tensor) -> ScalarType:
    """Return the scalar type of a tensor whose elements can be read, or say why they cannot."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    def refuse(name: str, cause: str) -> LayoutError:
        return _refusal("a PyTorch tensor", name, cause)

    if tensor.is_nested:
        raise refuse("nested layout", "store its parts, or tensor.to_padded_tensor(value)")
    if tensor.layout is not torch.strided:
        raise refuse(f"layout {tensor.layout}", "give tensor.to_dense()")
    if tensor.device.type == "meta":
        raise refuse("device meta", "it has no values; make them first")
    if tensor.device.type != "cpu":
        raise refuse(f"device {tensor.device}", "give tensor.cpu()")
    if tensor.is_conj():
        raise refuse(
            "a pending conjugation",
            "ExecuTorch stores no complex numbers; give torch.view_as_real(tensor.resolve_conj())",
        )
    name = str(tensor.dtype).removeprefix("torch.")
    kind = scalar_type_of_name(name)
    if kind is None:
        raise _refusal("a PyTorch tensor", name)
    if kind.is_packed:
        raise refuse(name, "the runtime expects a byte for each element; give tensor.int_repr()")
    if tensor.is_neg():
        raise refuse("a pending negation", "give tensor.resolve_neg()")
    # A wrapper's storage has no memory at all; that of a fake tensor is on the meta device.
    # Zeros that autograd stands in, and what functionalize() wraps, are at address 0.
    wraps: bool = is_traceable_wrapper_subclass(tensor)
    if (
        wraps
        or tensor.untyped_storage().device.type != "cpu"
        or (tensor.numel() and not tensor.data_ptr())
    ):
        raise refuse(f"class {type(tensor).__name__}", "it has no memory of its own")
    return kind
