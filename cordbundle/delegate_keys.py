"""Which named data the delegates of a program look up, as far as their payloads tell.

Rules of this file: a payload belongs to its backend and is no format of this package; what is not
known for certain is said to be unknown. Of XNNPACK (`backends/xnnpack/runtime/XNNHeader.h` of
ExecuTorch 1.5) it is known that the header says where the graph is, and that the only strings of 64
hexadecimal digits in the graph are keys: the SHA-256 of the constants that they name.
"""

from __future__ import annotations

import re
import struct

from cordbundle import program as schema
from cordbundle.cord import Cord
from cordbundle.pte import PteFile

__all__ = ["looked_up_keys"]

_HEADER = struct.Struct("<4x4sHII")  # magic, size of the header, offset and size of the graph
_MAGIC = b"XH00"
_KEY = re.compile(rb"\x40\0\0\0([0-9a-f]{64})\0")  # a flatbuffer's string


def looked_up_keys(file: PteFile, program: schema.Program) -> tuple[dict[str, str], set[str]]:
    """Find the keys that delegates look up. O(graphs), without their constants.

    Args:
        file: The program's file.
        program: Its metadata.

    Returns:
        Backends by key, and the backends that may look up others.

    Raises:
        FormatError: A delegate refers to a payload that is not in the file.
    """
    keys: dict[str, str] = {}
    unknown: set[str] = set()
    for plan in program.execution_plan or ():
        for delegate in plan.delegates or ():
            backend = delegate.id or ""
            graph = _graph(_payload(file, program, delegate))
            if graph is None:
                unknown.add(backend)
            else:
                keys.update((key.decode(), backend) for key in _KEY.findall(graph))
    return keys, unknown


def _payload(file: PteFile, program: schema.Program, delegate: schema.BackendDelegate) -> Cord:
    place = delegate.processed
    if place is None:
        return Cord()
    if place.location == schema.DataLocation.SEGMENT:
        return file.segment(place.index, f"payload of delegate {delegate.id!r}")
    inline = program.backend_delegate_data or ()
    data = inline[place.index].data if place.index < len(inline) else None
    return data if isinstance(data, Cord) else Cord(data)


def _graph(payload: Cord) -> bytes | None:
    """Return the graph in a payload of XNNPACK's, None if it is none of these."""
    if len(payload) < _HEADER.size:
        return None
    magic, _, offset, size = _HEADER.unpack(bytes(payload[: _HEADER.size]))
    if magic != _MAGIC or offset + size > len(payload):
        return None
    return bytes(payload[offset : offset + size])
