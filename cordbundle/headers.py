"""The first bytes of every format: flatbuffer identifier and extended header, one codec for all.

Rules of this file: it looks at the first 72 bytes of a file and at nothing else; a header is
described once, by its `HeaderFormat`, for writing and reading.

Sources: ExecuTorch's `schema/extended_header.cpp` (`eh00`),
`extension/flat_tensor/serialize/flat_tensor_header.cpp` (`FH01`), `docs/format.md` (`bh00`).
A flatbuffer begins with the uint32 offset of its root table and a four-byte identifier; the
extended header stands directly behind. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cordbundle.cord import Cord
from cordbundle.digest import DIGEST_SIZE
from cordbundle.errors import FormatError, TruncatedError, UnsupportedVersionError

__all__ = [
    "BUNDLE_HEADER",
    "FLAT_TENSOR_HEADER",
    "HEADER_OFFSET",
    "HEAD_SIZE",
    "PROGRAM_HEADER",
    "ExtendedHeader",
    "HeaderFormat",
    "Kind",
    "flatbuffer_with_header",
    "identify",
    "insert_header",
    "parse_header",
]

HEADER_OFFSET = 8
"""First byte of an extended header: behind the root offset and the identifier."""

HEAD_SIZE = 72
"""Bytes from which every header can be read."""

_PREAMBLE = struct.Struct("<4sI")  # magic, length of the header in bytes


@dataclass(frozen=True, slots=True)
class ExtendedHeader:
    """The extended header of a file; all values in bytes.

    Attributes:
        flatbuffer_offset: What the flatbuffer size is counted from, 0 in a `.pte`.
        flatbuffer_size: In a `.pte`, the flatbuffer with this header; elsewhere without it.
        segment_base_offset: Where the segments begin; 0 if there are none.
        segment_data_size: From there to the end of the last segment; None in headers of before
            ExecuTorch 1.0, which lack it.
        digest: The xxh3-128 of all bytes before the segment base with the digest taken as zero;
            zeros if it was not computed. Only in bundles.
        length: The length of the header itself, as stored.
    """

    flatbuffer_offset: int = 0
    flatbuffer_size: int = 0
    segment_base_offset: int = 0
    segment_data_size: int | None = 0
    digest: bytes = bytes(DIGEST_SIZE)
    length: int = 0

    @property
    def metadata_end(self) -> int:
        """First byte after the flatbuffer, from the start of the file."""
        return self.flatbuffer_offset + self.flatbuffer_size


@dataclass(frozen=True, slots=True)
class HeaderFormat:
    """One kind of extended header.

    Attributes:
        magic: Its first four bytes.
        fields: Names and struct formats behind magic and length, in file order.
        minimum: The shortest length that readers accept, in bytes.
    """

    magic: bytes
    fields: tuple[tuple[str, str], ...]
    minimum: int

    @property
    def length(self) -> int:
        """Length of a header with all fields, in bytes."""
        return _PREAMBLE.size + struct.calcsize("<" + "".join(code for _, code in self.fields))

    def offset_of(self, name: str) -> int:
        """Return the offset of a field from the start of the file."""
        names = [field for field, _ in self.fields]
        codes = "".join(code for _, code in self.fields[: names.index(name)])
        return HEADER_OFFSET + _PREAMBLE.size + struct.calcsize("<" + codes)

    def pack(self, header: ExtendedHeader, slot: int) -> bytes:
        """Return the header's bytes, zeros behind up to `slot` bytes in all."""
        values = (struct.pack("<" + code, getattr(header, name) or 0) for name, code in self.fields)
        return (_PREAMBLE.pack(self.magic, self.length) + b"".join(values)).ljust(slot, b"\0")


_DIGEST = f"{DIGEST_SIZE}s"

PROGRAM_HEADER = HeaderFormat(
    b"eh00",
    (("flatbuffer_size", "Q"), ("segment_base_offset", "Q"), ("segment_data_size", "Q")),
    minimum=24,
)
"""Of a `.pte`; without its last field before ExecuTorch 1.0."""

FLAT_TENSOR_HEADER = HeaderFormat(
    b"FH01",
    (
        ("flatbuffer_offset", "Q"),
        ("flatbuffer_size", "Q"),
        ("segment_base_offset", "Q"),
        ("segment_data_size", "Q"),
    ),
    minimum=40,
)
"""Of a `.ptd`."""

BUNDLE_HEADER = HeaderFormat(b"bh00", (*FLAT_TENSOR_HEADER.fields, ("digest", _DIGEST)), minimum=56)
"""Of a `.bpte` written by this project."""


def parse_header(head: bytes, form: HeaderFormat, source: str) -> ExtendedHeader | None:
    """Read the extended header from the first bytes of a file.

    Args:
        head: The first `HEAD_SIZE` bytes, or all if the file is shorter.
        form: The header of the format at hand.
        source: Name of the file, for errors.

    Returns:
        The header, or None where the file has none.

    Raises:
        FormatError: A header shorter than its format allows.
        TruncatedError: The file ends inside the header.
    """
    if head[HEADER_OFFSET : HEADER_OFFSET + len(form.magic)] != form.magic:
        return None
    preamble = HEADER_OFFSET + _PREAMBLE.size
    length = _PREAMBLE.unpack_from(head, HEADER_OFFSET)[1] if len(head) >= preamble else None
    if length is not None and length < form.minimum:
        raise FormatError(
            f"length of the extended header {form.magic.decode()} is too small",
            source=source,
            offset=HEADER_OFFSET + len(form.magic),
            expected=f"at least {form.minimum}",
            actual=length,
        )
    known = form.minimum if length is None else min(length, form.length)
    if length is None or len(head) < HEADER_OFFSET + known:
        raise TruncatedError(
            "file ends inside the extended header",
            source=source,
            offset=len(head),
            expected=f"at least {HEADER_OFFSET + known} bytes",
            actual=f"{len(head)} bytes",
        )
    values: dict[str, int | bytes | None] = {}
    for name, code in form.fields:
        offset = form.offset_of(name)
        stop = offset + struct.calcsize("<" + code)
        stored = stop <= HEADER_OFFSET + length
        values[name] = struct.unpack_from("<" + code, head, offset)[0] if stored else None
    return ExtendedHeader(length=length, **values)  # type: ignore[arg-type]  # None: one field


def insert_header(flatbuffer_head: bytes, header: bytes) -> bytes:
    """Return the first 8 bytes of a flatbuffer, made fit for a header behind them, and the header.

    Args:
        flatbuffer_head: Root offset and identifier, 8 bytes.
        header: What will stand between them and the rest; its size has to keep the alignment of
            what follows.
    """
    root = int.from_bytes(flatbuffer_head[:4], "little") + len(header)
    return root.to_bytes(4, "little") + flatbuffer_head[4:] + header


def flatbuffer_with_header(flatbuffer: Cord, header: bytes) -> Cord:
    """Return a flatbuffer with a header put in behind its identifier; see `insert_header`."""
    head = insert_header(bytes(flatbuffer[:HEADER_OFFSET]), header)
    return Cord(head) + flatbuffer[HEADER_OFFSET:]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is by its identifier.

    Attributes:
        identifier: The four bytes at offset 4.
        name: What people call it.
        header: The extended header it may have.
    """

    identifier: bytes
    name: str
    header: HeaderFormat

    @property
    def with_article(self) -> str:
        """The name after "a" or "an"."""
        return f"{'an' if self.name.startswith('E') else 'a'} {self.name}"


KINDS = (
    Kind(b"ET12", "ExecuTorch program (.pte)", PROGRAM_HEADER),
    Kind(b"FT01", "ExecuTorch weights (.ptd)", FLAT_TENSOR_HEADER),
    Kind(b"BP08", "bundled program (.bpte)", BUNDLE_HEADER),
    Kind(b"BPS1", "segmented bundled program (.bpte)", BUNDLE_HEADER),
)
"""Every kind of file that is read here."""

_FAMILIES = {kind.identifier[:2]: kind for kind in KINDS[:3]}

_STRANGERS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive, as torch.save makes; export it with ExecuTorch first"),
    (b"\x1f\x8b", "gzip data; decompress it first"),
    (b"\x80", "a Python pickle; export the model with ExecuTorch first"),
    (b"\x7fELF", "an executable"),
    (b"GGUF", "a GGUF model; it has to be exported with ExecuTorch"),
)


def identify(head: bytes, source: str, size: int) -> Kind:
    """Tell what kind of file begins with these bytes.

    Args:
        head: The first bytes of the file, `HEAD_SIZE` of them if it has as many.
        source: Name of the file, for errors.
        size: Size of the file in bytes.

    Raises:
        TruncatedError: Too short to be any kind.
        UnsupportedVersionError: A known kind of an unknown version.
        FormatError: Something else; says what it looks like.
    """
    for kind in KINDS:
        if head[4:8] == kind.identifier:
            return kind
    family = _FAMILIES.get(head[4:6])
    if family is not None and len(head) >= HEADER_OFFSET and head[6:8].isalnum():
        raise UnsupportedVersionError(
            f"unknown version of {family.name}",
            source=source,
            offset=4,
            expected=repr(family.identifier),
            actual=repr(head[4:8]),
        )
    stranger = _stranger(head)
    if stranger is None and size < HEADER_OFFSET:
        raise TruncatedError(
            "too short for any ExecuTorch file",
            source=source,
            offset=0,
            expected=f"at least {HEADER_OFFSET} bytes",
            actual="an empty file" if size == 0 else f"{size} bytes",
            cause="the download or the copy may have failed",
        )
    raise FormatError(
        "no ExecuTorch file",
        source=source,
        offset=4,
        expected=" or ".join(repr(kind.identifier) for kind in KINDS),
        actual=repr(head[4:8]),
        cause=f"this looks like {stranger}" if stranger else None,
    )


def _stranger(head: bytes) -> str | None:
    """Return what bytes that are no ExecuTorch file look like, if they look like anything."""
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:  # any first byte
        return "safetensors; `cordbundle ptd` makes a .ptd of it"
    for prefix, word in _STRANGERS:
        if head.startswith(prefix):
            return word
    start = head.lstrip().lower()
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "an HTML page; the download link may need a login or another address"
    if start.startswith((b"{", b"[")):
        return "JSON; perhaps an error message instead of the file"
    if head and not head.strip(b"\0"):
        return "zeros; the file may have been allocated but never written"
    return None
