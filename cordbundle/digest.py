"""Digests: xxh3-128, streamed.

Rules of this file: bytes in, digests out; no knowledge of files, formats or chunks. The digest is
XXH3 with 128 bits and seed 0, in the canonical big-endian form of xxhash's `digest()`. It finds
damage; it is no signature.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DIGEST_SIZE", "Hasher", "xxh3_128"]

DIGEST_SIZE = 16
"""Size of a digest in bytes."""

Hasher = xxhash.xxh3_128
"""An incremental digest: `update(buffer)`, then `digest()`."""


def xxh3_128(buffers: Iterable[Buffer]) -> bytes:
    """Return the digest of the concatenation of `buffers`, 16 bytes.

    Each buffer is consumed before the next is asked for, so it may be reused by the iterator.
    """
    hasher = Hasher()
    for buffer in buffers:
        hasher.update(buffer)
    return hasher.digest()
