"""Which named data the delegates of a program look up, as far as their payloads tell.

Rules of this file: a payload belongs to its backend and is no format of this package; what is not
known for certain is said to be unknown. Of XNNPACK (`backends/xnnpack/runtime/XNNHeader.h` of
ExecuTorch 1.5) it is known that the header says where the graph is, and that the only strings of 64
hexadecimal digits in the graph are keys: the SHA-256 of the constants that they name. A payload is
searched once, whoever names it, in steps of 1 MiB, and no more bytes in all than the file has.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from cordbundle import program as schema
from cordbundle.chunks import STEP
from cordbundle.cord import Cord
from cordbundle.errors import FormatError
from cordbundle.pte import PteFile

__all__ = ["looked_up_keys"]

_HEADER = struct.Struct("<4x4sHII")  # magic, size of the header, offset and size of the graph
_MAGIC = b"XH00"
_KEY = re.compile(rb"\x40\0\0\0([0-9a-f]{64})\0")  # a flatbuffer's string
_KEY_SIZE = 4 + 64 + 1


def looked_up_keys(file: PteFile, program: schema.Program) -> tuple[dict[str, str], set[str]]:
    """Find the keys that delegates look up. O(delegates + graphs), without their constants.

    Args:
        file: The program's file.
        program: Its metadata, decoded by reference, so that no inline payload is in memory.

    Returns:
        Backends by key, and the backends that may look up others. A payload that several backends
        name is the first one's.

    Raises:
        FormatError: A delegate refers to a payload that is not in the file.
    """
    keys: dict[str, str] = {}
    unknown: set[str] = set()
    is_known: dict[tuple[int, int] | None, bool] = {}  # by place
    room = len(file.cord)  # payloads of a sound file do not overlap, those of another one may
    for plan in program.execution_plan or ():
        for delegate in plan.delegates or ():
            backend = delegate.id or ""
            at = delegate.processed
            place = None if at is None else (int(at.location), at.index)
            if place not in is_known:
                graph = _graph(_payload(file, program, delegate))
                is_known[place] = graph is not None and len(graph) <= room
                if graph is not None and is_known[place]:
                    room -= len(graph)
                    keys.update((key.decode(), backend) for key in _keys(graph))
            if not is_known[place]:
                unknown.add(backend)
    return keys, unknown


def _payload(file: PteFile, program: schema.Program, delegate: schema.BackendDelegate) -> Cord:
    place = delegate.processed
    if place is None:
        return Cord()
    if place.location == schema.DataLocation.SEGMENT:
        return file.segment(place.index, f"payload of delegate {delegate.id!r}")
    inline = program.backend_delegate_data or ()
    if place.index >= len(inline):
        raise FormatError(
            f"data of delegate {delegate.id!r} does not exist",
            source=file.name,
            expected=f"an index below {len(inline)}",
            actual=place.index,
        )
    data = inline[place.index].data
    return data if isinstance(data, Cord) else Cord(data)


def _graph(payload: Cord) -> Cord | None:
    """Return the graph in a payload of XNNPACK's, None if it is none of these."""
    if len(payload) < _HEADER.size:
        return None
    magic, _, offset, size = _HEADER.unpack(bytes(payload[: _HEADER.size]))
    if magic != _MAGIC or offset + size > len(payload):
        return None
    return payload[offset : offset + size]


def _keys(graph: Cord) -> Iterator[bytes]:
    """Yield the keys in a graph, read a step at a time."""
    tail = b""
    for part in graph.parts(STEP):
        run = tail + bytes(part)
        yield from _KEY.findall(run)
        tail = run[1 - _KEY_SIZE :]  # the beginning of a key that goes on, never a whole one
