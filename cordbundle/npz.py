"""NumPy archives (`.npz`): names, and arrays as ranges of the file.

Rules of this file: NumPy is not needed; nothing is unpickled or evaluated; an array that the
archive stores as it is stays a range of the file and is read once, for the checksum; every number
is checked before it is used. Sources: `numpy.lib.format` for `.npy` (versions 1 and 2), the zip
application note, section 4.3.7, for the place of a member's bytes.
"""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from typing import IO, TYPE_CHECKING

from cordbundle.cord import Cord
from cordbundle.errors import DuplicateKeyError, FormatError, LayoutError
from cordbundle.scalar_types import ScalarType
from cordbundle.strided import dim_order_of
from cordbundle.tensor_view import TensorView

if TYPE_CHECKING:
    from cordbundle.source import StrPath

__all__ = ["read_npz"]

_LOCAL_HEADER_SIZE = 30  # then name and extra field, whose lengths are its last two numbers
_LOCAL_LENGTHS = struct.Struct("<HH")
_ENCRYPTED_OR_PATCHED = 0x61  # flag bits 0, 5 and 6
_MAX_DEFLATE_RATIO = 1032
_STEP = 1 << 20  # bytes read at a time for a checksum
_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 10_000  # bytes; the limit of NumPy's own reader
_MAX_RANK = 64  # as PyTorch and NumPy
# What zipfile and zlib raise for an archive that is damaged (a name may be no UTF-8) or too new.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    UnicodeDecodeError,
)

_FIELD = (
    r"\s*'(descr|fortran_order|shape)'\s*:\s*"
    r"('[^'\\]*'|True|False|\(\s*(?:\d{1,19}\s*,\s*)*(?:\d{1,19}\s*)?\))\s*"
)
_HEADER = re.compile(rf"\{{{_FIELD},{_FIELD},{_FIELD}(?:,\s*)?\}}\s*", re.ASCII)
_SCALAR_TYPES = {
    "b1": ScalarType.BOOL,
    "u1": ScalarType.BYTE,
    "i1": ScalarType.CHAR,
    "<i2": ScalarType.SHORT,
    "<i4": ScalarType.INT,
    "<i8": ScalarType.LONG,
    "<f2": ScalarType.HALF,
    "<f4": ScalarType.FLOAT,
    "<f8": ScalarType.DOUBLE,
    "<u2": ScalarType.UINT16,
    "<u4": ScalarType.UINT32,
    "<u8": ScalarType.UINT64,
}


def read_npz(path: StrPath) -> dict[str, TensorView]:
    """Read a NumPy archive; arrays are ranges of the file, compressed ones are in memory.

    Costs one pass over the file, for its checksums.

    Args:
        path: The file. It has to stay as it is while the arrays are used.

    Returns:
        The arrays by name, in the order of the archive; a Fortran-ordered one by its dim order.

    Raises:
        OSError: The file cannot be opened.
        FormatError: It is no NumPy archive, or a damaged one.
        DuplicateKeyError: Two arrays of one name.
        LayoutError: A data type that ExecuTorch does not have, or pickled objects.
    """
    source = os.fsdecode(path)
    cord = Cord.from_file(path)
    try:
        archive = zipfile.ZipFile(cord.open())
    except (*_ARCHIVE_ERRORS, ValueError) as error:  # a seek before the beginning is a ValueError
        raise _no_archive(cord, source, str(error)) from error
    try:
        with archive:
            return _read_members(archive, cord, source)
    except _ARCHIVE_ERRORS as error:
        raise _no_archive(cord, source, str(error)) from error


def _no_archive(cord: Cord, source: str, why: str) -> FormatError:
    return FormatError(
        f"no NumPy archive, or a damaged one ({why})",
        source=source,
        expected="a zip archive of .npy files",
        actual=f"{len(cord)} bytes that begin with {bytes(cord[:16])!r}",
        cause="the download or the copy may be incomplete",
    )


def _read_members(archive: zipfile.ZipFile, cord: Cord, source: str) -> dict[str, TensorView]:
    members = archive.infolist()
    outside = any(
        not 0 <= member.header_offset <= len(cord) - _LOCAL_HEADER_SIZE for member in members
    )
    if outside or sum(member.compress_size for member in members) > len(cord):
        raise FormatError(
            "members overlap or pass the end of the archive",
            source=source,
            expected=f"members of at most {len(cord)} bytes in all, each inside the archive",
            actual=f"{sum(member.compress_size for member in members)} bytes",
        )
    arrays: dict[str, TensorView] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name in arrays:
            raise DuplicateKeyError(f"key {name!r} stands twice in the archive", source=source)
        _check_member(member, source)
        arrays[name] = _read_member(archive, member, cord, source)
    return arrays


def _check_member(member: zipfile.ZipInfo, source: str) -> None:
    """Refuse what `numpy.savez` and `numpy.savez_compressed` do not write, and impossible sizes."""
    stored = member.compress_type == zipfile.ZIP_STORED
    possible = (
        member.file_size == member.compress_size
        if stored
        else member.file_size <= _MAX_DEFLATE_RATIO * member.compress_size
    )
    plain = stored or member.compress_type == zipfile.ZIP_DEFLATED
    if not (plain and possible) or member.flag_bits & _ENCRYPTED_OR_PATCHED:
        raise FormatError(
            f"member {member.filename!r} is stored in an unknown way",
            source=source,
            expected="stored or deflated, not encrypted, sizes that fit",
            actual=f"method {member.compress_type}, flags {member.flag_bits:#x}, "
            f"{member.compress_size} bytes for {member.file_size}",
        )
    if not member.filename.endswith(".npy"):
        raise FormatError(
            f"member {member.filename!r} is no .npy file",
            source=source,
            expected="names that end in .npy",
        )


@dataclass(frozen=True, slots=True)
class _Array:
    """What the header of an `.npy` file says."""

    scalar_type: ScalarType
    fortran_order: bool
    sizes: tuple[int, ...]


def _read_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, cord: Cord, source: str
) -> TensorView:
    where = f"{source}: {member.filename}"
    with archive.open(member) as stream:
        array = _read_header(stream, where)
        start = stream.tell()
        nbytes = prod(array.sizes) * array.scalar_type.itemsize
        if nbytes != member.file_size - start:
            raise FormatError(
                "data has another size than its shape",
                source=where,
                expected=f"{nbytes} bytes for {array.scalar_type.name} {list(array.sizes)}",
                actual=f"{member.file_size - start} bytes",
            )
        if member.compress_type == zipfile.ZIP_STORED:
            while stream.read(_STEP):  # at its end the checksum is compared
                pass
            start += _data_offset(cord, member)
            data = cord[start : start + nbytes]
        else:
            data = Cord(stream.read())
    return TensorView(array.scalar_type, array.sizes, _dim_order(array), data)


def _data_offset(cord: Cord, member: zipfile.ZipInfo) -> int:
    """Return where in the archive a member's bytes begin; its local header was read before."""
    end = member.header_offset + _LOCAL_HEADER_SIZE
    name_size, extra_size = _LOCAL_LENGTHS.unpack(bytes(cord[end - 4 : end]))
    return end + int(name_size) + int(extra_size)


def _dim_order(array: _Array) -> tuple[int, ...]:
    if not array.fortran_order:
        return tuple(range(len(array.sizes)))
    itemsize = array.scalar_type.itemsize
    strides = [
        itemsize * prod(max(size, 1) for size in array.sizes[:dim])
        for dim in range(len(array.sizes))
    ]
    return dim_order_of(array.sizes, strides, itemsize)


def _read_header(stream: IO[bytes], where: str) -> _Array:
    """Read the header of an `.npy` file and stop at its data."""
    magic = stream.read(8)
    length_size = {b"\x01\x00": 2, b"\x02\x00": 4}.get(magic[6:])
    if not magic.startswith(_MAGIC) or length_size is None:
        raise FormatError(
            "no .npy file of version 1 or 2", source=where, expected=_MAGIC, actual=repr(magic)
        )
    length = int.from_bytes(stream.read(length_size), "little")
    text = stream.read(min(length, _MAX_HEADER)).decode("latin-1")
    match = _HEADER.fullmatch(text)
    fields = dict(zip(match.groups()[::2], match.groups()[1::2], strict=True)) if match else {}
    descr, order, shape = (fields.get(name, "") for name in ("descr", "fortran_order", "shape"))
    sizes = tuple(int(size) for size in re.findall(r"\d+", shape))
    plain = descr.startswith("'") and order in ("True", "False") and shape.startswith("(")
    if len(text) < length or not plain or len(sizes) > _MAX_RANK:
        raise FormatError(
            "header is not that of a plain array",
            source=where,
            expected="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
            actual=repr(text[:80]),
        )
    return _Array(_scalar_type(descr.strip("'"), where), order == "True", sizes)


def _scalar_type(descr: str, where: str) -> ScalarType:
    """Return the scalar type of a NumPy type string."""
    single_byte = descr[1:] in ("b1", "u1", "i1")
    scalar_type = _SCALAR_TYPES.get(descr[1:] if single_byte else descr)
    if scalar_type is None:
        causes = {
            ">": "big-endian; save it with astype(dtype.newbyteorder('<'))",
            "|O": "pickled objects are never read; save each tensor under its own key",
            "|V": "bfloat16 and float8 have no NumPy type; use a .safetensors file",
        }
        raise LayoutError(
            "data type cannot be stored by ExecuTorch",
            source=where,
            expected=" or ".join(_SCALAR_TYPES),
            actual=repr(descr),
            cause=next((cause for start, cause in causes.items() if descr.startswith(start)), None),
        )
    return scalar_type
