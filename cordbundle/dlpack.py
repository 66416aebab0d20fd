"""Reading a tensor that comes as a DLPack capsule, without NumPy or PyTorch.

Rules of this file: the structures are those of `dlpack.h`, versions 0.8 (`dltensor`) and 1.x
(`dltensor_versioned`). The capsule is never renamed, only kept: its own destructor gives the memory
back when the last view of it is gone, and nobody else can consume it. Import this module only when
an object brings `__dlpack__`, since it needs ctypes.
"""

from __future__ import annotations

import ctypes
from math import prod
from pickle import PickleBuffer
from typing import Protocol

from cordbundle.errors import LayoutError
from cordbundle.scalar_types import ScalarType, scalar_type_of_name
from cordbundle.strided import Strided, contiguous_strides

__all__ = ["SupportsDLPack", "memory_at", "read"]

_CPU_DEVICES = {1, 3, 11}
"""kDLCPU, and the memory that CUDA and ROCm pin on the host: all of it is the CPU's."""

_CODES = {
    0: "int",
    1: "uint",
    2: "float",
    4: "bfloat",
    5: "complex",
    6: "bool",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
}
"""DLDataTypeCode. The codes from 7 to 14 name one eight-bit type each."""


class SupportsDLPack(Protocol):
    """An object that exports DLPack."""

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _VersionedTensor(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


# Own prototypes: setting `argtypes` on `ctypes.pythonapi` would change it for everyone.
_capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def read(array: SupportsDLPack) -> tuple[ScalarType, Strided]:
    """Take the tensor of an object with `__dlpack__`, by reference.

    Raises:
        LayoutError: Its memory is not the CPU's, its version or element type is not known.
        TypeError: `__dlpack__` returned no capsule.
    """
    device = array.__dlpack_device__()[0]
    if device not in _CPU_DEVICES:
        raise LayoutError(
            "DLPack tensor is not in the CPU's memory",
            expected="device type 1",
            actual=f"device type {int(device)}",
            cause="copy it to the CPU first",
        )
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # DLPack asks for this: exporters older than 1.0 do not know the argument
        capsule = array.__dlpack__()
    tensor = _tensor_of(capsule)
    kind = _scalar_type(tensor.dtype)
    sizes = tuple(tensor.shape[dim] for dim in range(tensor.ndim))
    if tensor.strides:
        steps = tuple(tensor.strides[dim] for dim in range(tensor.ndim))
    else:
        steps = contiguous_strides(sizes, range(tensor.ndim))
    strides = tuple(step * kind.itemsize for step in steps)
    address = (tensor.data or 0) + tensor.byte_offset
    return kind, memory_at(address, sizes, strides, kind.itemsize, owner=capsule)


def _tensor_of(capsule: object) -> _Tensor:
    if _capsule_is(capsule, b"dltensor_versioned"):
        pointer = _capsule_pointer(capsule, b"dltensor_versioned")
        versioned = _VersionedTensor.from_address(pointer)
        if versioned.major != 1:
            raise LayoutError(
                "unknown version of DLPack",
                expected="1.x",
                actual=f"{versioned.major}.{versioned.minor}",
            )
        tensor: _Tensor = versioned.tensor
        return tensor
    if _capsule_is(capsule, b"dltensor"):
        return _Tensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    raise TypeError(f"__dlpack__() returned a {type(capsule).__name__}, not a DLPack capsule")


def _scalar_type(dtype: _DataType) -> ScalarType:
    code = _CODES.get(dtype.code, f"type {dtype.code} of ")
    if code == "bool":
        name = "bool" if dtype.bits == 8 else f"bool{dtype.bits}"
    elif code.startswith("float8"):
        name = code
    else:
        name = f"{code}{dtype.bits}"
    kind = scalar_type_of_name(name) if dtype.lanes == 1 else None
    if kind is None:
        lanes = "" if dtype.lanes == 1 else f" in {dtype.lanes} lanes"
        raise LayoutError(f"a DLPack tensor of {name}{lanes} cannot be stored")
    return kind


def memory_at(
    address: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    *,
    owner: object,
) -> Strided:
    """Take the memory between the first and the last element of a tensor, read-only.

    Args:
        address: Of the element with all indices 0.
        sizes: Elements per dimension.
        strides: Bytes between neighbours per dimension.
        itemsize: Bytes of one element.
        owner: What has to live as long as that memory is held.
    """
    if prod(sizes) == 0:
        return Strided(sizes, strides, itemsize, memoryview(b""), 0)
    reaches = [(size - 1) * step for size, step in zip(sizes, strides, strict=True)]
    before = -sum(reach for reach in reaches if reach < 0)
    after = sum(reach for reach in reaches if reach > 0) + itemsize
    block = (ctypes.c_ubyte * (before + after)).from_address(address - before)
    block.owner = owner  # type: ignore[attr-defined]  # an attribute of this object alone
    memory = PickleBuffer(block).raw().toreadonly()
    return Strided(sizes, strides, itemsize, memory, before)
