"""SHA-256 of all bytes, as the standard library has it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from benchmarks.child import Action, Task
from benchmarks.serializing import blob_paths

__all__ = ["deduplicate"]

_PIECE = 1 << 20


def deduplicate(task: Task) -> Action:
    """Count distinct blobs by their digests; from files or from memory."""
    paths = blob_paths(task.source)
    in_memory = task.options["held"] == "memory"
    blobs = [path.read_bytes() if in_memory else path for path in paths]
    buffer = memoryview(bytearray(_PIECE))

    def digest_of(blob: bytes | Path) -> bytes:
        if isinstance(blob, bytes):
            return hashlib.sha256(blob).digest()
        state = hashlib.sha256()
        with blob.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                state.update(buffer[:size])
        return state.digest()

    def action() -> dict[str, object]:
        return {"made": f"{len({digest_of(blob) for blob in blobs})} blobs"}

    return action
