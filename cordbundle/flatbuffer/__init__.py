"""Flatbuffers with byte vectors by reference, bounds-checked reading, and checking.

A schema is described once by dataclasses (schema.py); this description drives encoding, lazy
reading, whole decoding and verification.
"""

from __future__ import annotations

from cordbundle.flatbuffer.columns import ROWS, Factory
from cordbundle.flatbuffer.decode import decode, no_collection
from cordbundle.flatbuffer.encode import LIMIT, Encoded, FarSlot, encode
from cordbundle.flatbuffer.reader import ByteRange, Reader
from cordbundle.flatbuffer.schema import Far
from cordbundle.flatbuffer.verify import Finding, verify
from cordbundle.flatbuffer.view import VectorView, byte_range, position_of

__all__ = [
    "LIMIT",
    "ROWS",
    "ByteRange",
    "Encoded",
    "Factory",
    "Far",
    "FarSlot",
    "Finding",
    "Reader",
    "VectorView",
    "byte_range",
    "decode",
    "encode",
    "no_collection",
    "position_of",
    "verify",
]
