"""Writing a case as a file that `cordbundle bundle` reads again.

Rules of this file: it makes Cords and writes nothing; tensors stay by reference, in row-major
order, which is the only one that both formats know. Sources: `numpy.lib.format` (version 1), the
zip application note, sections 4.3 and 4.5.3, https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from cordbundle.cord import Cord
from cordbundle.errors import LayoutError
from cordbundle.safetensors import SCALAR_TYPES as SAFETENSORS_TYPES
from cordbundle.scalar_types import ScalarType
from cordbundle.tensors import TensorView, describe

__all__ = ["npz_cord", "safetensors_cord", "values_of"]

_STEP = 1 << 20  # bytes read at a time for a checksum
_ALIGNMENT = 64  # of an array in an .npy file
_LIMIT = 0xFFFFFFFF  # what a zip field of 32 bits says when the number stands in the extra field
_DATE = 0x21  # 1980-01-01, the first that a zip archive can say: output depends on input alone
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_END64_LOCATOR = struct.Struct("<4sLQL")
_VERSION, _VERSION64 = 20, 45


@dataclass(frozen=True, slots=True)
class CaseValue:
    """A value of a case, as both formats hold it.

    Attributes:
        scalar_type: Element type.
        sizes: Shape; `()` for a scalar.
        data: Row-major bytes.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    data: Cord


def values_of(case: Mapping[str, object]) -> dict[str, CaseValue]:
    """Return the values of a case, scalars as 0-d tensors."""
    return {key: _value(value) for key, value in case.items()}


def _value(value: object) -> CaseValue:
    if isinstance(value, TensorView):
        row_major = describe(value, dim_order=range(len(value.sizes)))
        return CaseValue(row_major.scalar_type, row_major.sizes, row_major.cord)
    if isinstance(value, bool):
        return CaseValue(ScalarType.BOOL, (), Cord(bytes([value])))
    if isinstance(value, int):
        return CaseValue(ScalarType.LONG, (), Cord(struct.pack("<q", value)))
    return CaseValue(ScalarType.DOUBLE, (), Cord(struct.pack("<d", value)))


def safetensors_cord(values: Mapping[str, CaseValue]) -> Cord:
    """Return a `.safetensors` file.

    Raises:
        LayoutError: A type that the format does not have.
    """
    names = {scalar_type: name for name, scalar_type in SAFETENSORS_TYPES.items()}
    entries: dict[str, object] = {}
    data = Cord()
    for key, value in values.items():
        if value.scalar_type not in names:
            raise LayoutError(f"{key}: safetensors has no type for {value.scalar_type.name}")
        begin = len(data)
        data.append(value.data)
        entries[key] = {
            "dtype": names[value.scalar_type],
            "shape": list(value.sizes),
            "data_offsets": [begin, len(data)],
        }
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)  # the format's own writer aligns the data to 8
    return Cord(len(text).to_bytes(8, "little") + text) + data


def npz_cord(values: Mapping[str, CaseValue]) -> Cord:
    """Return an `.npz` file; costs one pass over the data, for its checksums.

    Raises:
        LayoutError: A type that NumPy does not have.
    """
    archive, directory = Cord(), Cord()
    for key, value in values.items():
        member = Cord(_npy_header(key, value)) + value.data
        name = f"{key}.npy".encode("ascii")
        crc = 0
        for part in member.parts(_STEP):
            crc = zlib.crc32(bytes(part), crc)
        local, central = _member_headers(name, len(member), crc, len(archive))
        archive.append(local)
        archive.append(member)
        directory.append(central)
    return archive + directory + _end(len(values), len(archive), len(directory))


def _npy_header(key: str, value: CaseValue) -> bytes:
    name = value.scalar_type.numpy_dtype
    if name is None or value.scalar_type.is_quantized:
        raise LayoutError(
            f"{key}: .npz has no type for {value.scalar_type.name}",
            cause="name a .safetensors file instead",
        )
    itemsize = value.scalar_type.itemsize
    descr = f"{'|' if itemsize == 1 else '<'}{name[0]}{itemsize}"
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {value.sizes!r}, }}"
    text += " " * (-(len(text) + 11) % _ALIGNMENT) + "\n"  # 10 bytes before, the newline after
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("ascii")


def _member_headers(name: bytes, size: int, crc: int, offset: int) -> tuple[bytes, bytes]:
    """Return the local and the central header of a stored member."""
    local_extra = _extra64([size, size] if size >= _LIMIT else [])
    central_extra = _extra64([n for n in (size, size, offset) if n >= _LIMIT])
    version = _VERSION64 if local_extra or central_extra else _VERSION
    short = min(size, _LIMIT)
    local = _LOCAL.pack(
        *(b"PK\x03\x04", version, 0, 0, 0, _DATE),
        *(crc, short, short, len(name), len(local_extra)),
    )
    central = _CENTRAL.pack(
        *(b"PK\x01\x02", version, version, 0, 0, 0, _DATE),
        *(crc, short, short, len(name), len(central_extra)),
        *(0, 0, 0, 0, min(offset, _LIMIT)),
    )
    return local + name + local_extra, central + name + central_extra


def _extra64(numbers: list[int]) -> bytes:
    """Return the extra field with the numbers that do not fit 32 bits."""
    if not numbers:
        return b""
    return struct.pack(f"<2H{len(numbers)}Q", 1, 8 * len(numbers), *numbers)


def _end(count: int, offset: int, size: int) -> bytes:
    """Return the records that end an archive."""
    short = _END.pack(
        *(b"PK\x05\x06", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF)),
        *(min(size, _LIMIT), min(offset, _LIMIT), 0),
    )
    if offset < _LIMIT and count < 0xFFFF:
        return short
    long = _END64.pack(
        *(b"PK\x06\x06", _END64.size - 12, _VERSION64, _VERSION64, 0, 0),
        *(count, count, size, offset),
    )
    return long + _END64_LOCATOR.pack(b"PK\x06\x07", 0, offset + size, 1) + short
