"""The findings of the verifier word for word, and where its limits are exactly."""

from __future__ import annotations

import struct
from collections.abc import Callable

from cordbundle.flatbuffer import Reader, verify
from tests.flatbuffer_samples import Leaf, Node, with_u32
from tests.test_flatbuffer_read import encoded, field_at, target_at
from tests.test_flatbuffer_verify import put_u16, root_of, vtable_of

SOUND = encoded(Node(name="n", child=Node(), value=Leaf(small=1, wide=2), numbers=[1]))
ROOT = root_of(SOUND)
VTABLE = vtable_of(SOUND, ROOT)
TAG = ROOT + struct.unpack_from("<H", SOUND, VTABLE + 4 + 2 * 3)[0]


def texts(data: bytes) -> list[str]:
    """Verify and return each finding as people read it."""
    return [str(finding) for finding in verify(Reader(data), Node)]


def put_byte(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[], bytes]] = {
    "four bytes": lambda: bytes(4),
    "root offset of zero": lambda: with_u32(SOUND, 0, 0),
    "root offset past the end": lambda: with_u32(SOUND, 0, len(SOUND) - 3),
    "root offset into the head": lambda: with_u32(SOUND, 0, 7),
    "vtable before the file": lambda: with_u32(SOUND, ROOT, ROOT + 1),
    "vtable after the file": lambda: with_u32(SOUND, ROOT, ROOT - (len(SOUND) - 3) & 2**32 - 1),
    "vtable too small": lambda: put_u16(SOUND, VTABLE, 2),
    "vtable odd": lambda: put_u16(SOUND, VTABLE, 9),
    "vtable too large": lambda: put_u16(SOUND, VTABLE, len(SOUND) - VTABLE + 2),
    "field in the vtable offset": lambda: put_u16(SOUND, VTABLE + 4, 3),
    "field past the end": lambda: put_u16(SOUND, VTABLE + 4, len(SOUND) - ROOT - 2),
    "name at zero": lambda: with_u32(SOUND, field_at(SOUND, "name"), 0),
    "name past the end": lambda: with_u32(SOUND, field_at(SOUND, "name"), 2**32 - 1),
    "too many numbers": lambda: with_u32(SOUND, target_at(SOUND, "numbers"), 1000),
    "unknown tag": lambda: put_byte(SOUND, TAG, 3),
    "value without type": lambda: put_byte(SOUND, TAG, 0),
    "type without value": lambda: put_u16(SOUND, VTABLE + 4 + 2 * 4, 0),
    "value past the end": lambda: with_u32(SOUND, field_at(SOUND, "value"), 2**31),
    "no NUL": lambda: put_byte(SOUND, SOUND.index(b"n\0") + 1, 33),
    "no UTF-8": lambda: put_byte(SOUND, SOUND.index(b"n\0"), 0xFF),
}
