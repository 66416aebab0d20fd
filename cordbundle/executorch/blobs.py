"""Blobs by reference where ExecuTorch has `bytes`, and lists of them.

Rules of this file: whatever ExecuTorch does with its own, it does with these too, in its own code
and after a patch was taken back; nothing is read before it is asked for.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from executorch.exir._serialize._cord import FileBackedData

from cordbundle.cord import Cord
from cordbundle.inputs import CordHolder

if TYPE_CHECKING:
    import io
    from collections.abc import Iterable

__all__ = ["CordBackedData", "SegmentBytes"]


class CordBackedData(CordHolder, FileBackedData):  # type: ignore[misc]  # ExecuTorch has no types
    """A Cord that ExecuTorch's own Cord, stores and serializers take for a `FileBackedData`.

    It equals the same bytes, and a pickle of it is these bytes. There is no file to delete, and no
    digest is kept, since a tensor may change.

    Args:
        cord: The bytes.
    """

    def __init__(self, cord: Cord) -> None:
        self.cord = cord

    @classmethod
    def move_from(cls, path: str, sha256: bytes | None = None) -> FileBackedData:
        """Take ownership of a file, as a `FileBackedData`."""
        return FileBackedData.move_from(path, sha256)

    def __len__(self) -> int:
        return len(self.cord)

    def __bytes__(self) -> bytes:
        return bytes(self.cord)

    def __eq__(self, other: object) -> bool:
        return self.cord == (other.cord if isinstance(other, CordBackedData) else other)

    __hash__ = None  # type: ignore[assignment]  # it may change

    def __repr__(self) -> str:
        return f"CordBackedData({self.cord!r})"

    def __deepcopy__(self, memo: dict[int, object]) -> CordBackedData:
        return CordBackedData(self.cord[:])

    def __reduce__(self) -> tuple[object, ...]:
        return bytes, (bytes(self.cord),)

    def prefix(self, size: int) -> bytes:
        """Return the first bytes, at most `size` of them."""
        return bytes(self.cord[:size])

    def sha256(self) -> bytes:
        """Return the SHA-256 of what the bytes are now; O(n)."""
        digest = hashlib.sha256()
        for part in self.cord.stream():
            digest.update(part)
        return digest.digest()

    def to_bytes(self) -> bytes:
        """Return a copy of the bytes."""
        return bytes(self.cord)

    def write_to_file(self, outfile: io.BufferedIOBase) -> None:
        """Write the bytes to a binary file."""
        self.cord.write_to_file(outfile)

    def close(self) -> None:
        """Do nothing: there is no file of its own."""


class SegmentBytes(MutableSequence[bytes]):
    """The segments of a file, each cut out as `bytes` when it is asked for.

    It is used as a list of these `bytes`, and equals it; what is made of it (a slice, a sum, a
    copy, a pickle) is a list. The first change cuts out all. It is no instance of `list`.

    Args:
        cord: The file.
        base: Where offsets are counted from, in bytes.
        rows: Offset and size of each segment, in bytes.
    """

    __slots__ = ("_base", "_list", "_rows", "_whole")

    def __init__(self, cord: Cord, base: int, rows: Sequence[tuple[int, int]]) -> None:
        self._whole = _whole_bytes(cord)
        self._base = base
        self._rows = rows
        self._list: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._rows if self._list is None else self._list)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if self._list is not None:
            return self._list[index]
        if isinstance(index, slice):
            return list(self._cuts(self._rows[index]))
        (cut,) = self._cuts([self._rows[index]])
        return cut

    def __iter__(self) -> Iterator[bytes]:
        return self._cuts(self._rows) if self._list is None else iter(self._list)

    def _cuts(self, rows: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        whole, base = self._whole, self._base
        for offset, size in rows:
            yield bytes(whole[base + offset : base + offset + size])

    def _changeable(self) -> list[bytes]:
        """Return all of them, cut out for good."""
        if self._list is None:
            self._list = list(self)
            self._whole, self._rows = b"", ()
        return self._list

    def __setitem__(self, index: Any, value: Any) -> None:
        self._changeable()[index] = value

    def __delitem__(self, index: int | slice) -> None:
        del self._changeable()[index]

    def insert(self, index: int, value: bytes) -> None:
        """Insert a blob before the one at `index`."""
        self._changeable().insert(index, value)

    def sort(self, *, key: Callable[[bytes], Any] | None = None, reverse: bool = False) -> None:
        """Sort as `list.sort` does."""
        self._changeable().sort(key=key, reverse=reverse)

    def copy(self) -> list[bytes]:
        """Return a list of all."""
        return list(self)

    def __add__(self, other: Iterable[bytes]) -> list[bytes]:
        return [*self, *other] if isinstance(other, SegmentBytes | list) else NotImplemented

    def __radd__(self, other: Iterable[bytes]) -> list[bytes]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> list[bytes]:
        return list(self) * count

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SegmentBytes | list):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as lists

    def __repr__(self) -> str:
        return f"<SegmentBytes: {len(self)} blobs>"

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


def _whole_bytes(cord: Cord) -> Cord | bytes:
    """Return the `bytes` that a Cord is, if it is one: they are cut faster than views of them."""
    chunk = cord.first_chunk()
    return chunk if isinstance(chunk, bytes) and len(chunk) == len(cord) else cord
