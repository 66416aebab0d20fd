"""ExecuTorch programs (`.pte`): writing.

Rules of this file: the caller's program is read, never changed; payload goes by reference into
segments, or, where it has to stay inline, into the flatbuffer; every offset comes from a layout.
The bytes are those of ExecuTorch 1.5's `serialize_pte_binary` but for what `docs/format.md` lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from cordbundle import program as schema
from cordbundle.cord import Cord, Fill
from cordbundle.errors import LayoutError
from cordbundle.flatbuffer import encode, no_collection
from cordbundle.headers import PROGRAM_HEADER, ExtendedHeader, flatbuffer_with_header
from cordbundle.inputs import blob_cord
from cordbundle.layout import (
    Blobs,
    Segment,
    align_up,
    check_alignment,
    join_segments,
    offsets_from_base,
    segment_base,
)
from cordbundle.named_data import NamedDataStoreOutput, blob_segments

__all__ = ["Options", "assemble", "serialize_pte"]

TENSOR_ALIGNMENT = 16  # ExecuTorch's default for constants, and of the schema for inline data

_T = TypeVar("_T")


def serialize_pte(
    program: schema.Program,
    *,
    mutable_data: Sequence[schema.Buffer] | None = None,
    named_data: NamedDataStoreOutput | None = None,
    segment_alignment: int = 128,
    constant_tensor_alignment: int | None = None,
    delegate_alignment: int | None = None,
    extract_delegate_segments: bool = True,
) -> Cord:
    """Serialize a program as a `.pte` file.

    Args:
        program: The program: constants in `constant_buffer`, delegate payloads inline in
            `backend_delegate_data`. ExecuTorch's own object will do.
        mutable_data: Initial values of mutable tensors, the first being a placeholder.
        named_data: Blobs by key; those for the program itself are stored.
        segment_alignment: Alignment of every segment in bytes, from the start of the file.
        constant_tensor_alignment: Alignment of each constant in bytes, from the start of the file,
            a power of two; 16 if None.
        delegate_alignment: Alignment of inline delegate payloads, in bytes, a power of two; 16 if
            None.
        extract_delegate_segments: Whether delegate payloads become segments, equal ones one.

    Returns:
        The file, by reference: what its tensors, buffers and files hold when it is written.

    Raises:
        LayoutError: An alignment, an index or a value that cannot be stored.
        TooLargeError: Metadata that passes 2 GiB.
    """
    if not extract_delegate_segments:
        count = len(program.backend_delegate_data or ())
        for plan in program.execution_plan or ():
            for delegate in plan.delegates or ():
                _inline_index(delegate, count, f"delegate {delegate.id!r} of method {plan.name!r}")
    constants = program.constant_buffer or [schema.Buffer(b"")]  # the runtime wants an offset 0
    return assemble(
        program,
        constants,
        mutable_data,
        named_data,
        Options(
            segment_alignment,
            constant_tensor_alignment,
            delegate_alignment,
            extract_delegate_segments,
        ),
    )


@dataclass(frozen=True, slots=True)
class Options:
    """The alignments and choices of `serialize_pte`."""

    segment_alignment: int
    constant_tensor_alignment: int | None
    delegate_alignment: int | None
    extract_delegate_segments: bool

    def __post_init__(self) -> None:
        check_alignment(self.segment_alignment, "segments")
        for name in ("constant_tensor_alignment", "delegate_alignment"):
            if getattr(self, name) is not None:
                check_alignment(getattr(self, name), name, power_of_two=True)


def assemble(
    program: schema.Program,
    constants: Sequence[schema.Buffer],
    mutable_data: Sequence[schema.Buffer] | None,
    named_data: NamedDataStoreOutput | None,
    options: Options,
) -> Cord:
    """Lay out a program whose constants are `constants`; see `serialize_pte`."""
    tensor_alignment = options.constant_tensor_alignment or TENSOR_ALIGNMENT
    delegate_alignment = options.delegate_alignment or TENSOR_ALIGNMENT
    with no_collection():
        parts = _Parts(program, options.segment_alignment)
        if constants:
            parts.add_constants(constants, tensor_alignment)
        if mutable_data is not None:
            parts.add_mutable_data(mutable_data)
        if options.extract_delegate_segments:
            parts.extract_delegates()
        else:
            parts.keep_delegates()
        if named_data is not None:
            parts.add_named_data(named_data)
        metadata = encode(
            parts.rooted(),
            schema.PROGRAM_IDENTIFIER,
            schema=schema.Program,
            alignments={"tensor": tensor_alignment, "delegate": delegate_alignment},
        ).cord
    if not parts.need_header:
        return metadata
    slot = align_up(PROGRAM_HEADER.length, max(tensor_alignment, delegate_alignment))
    head_size = slot + len(metadata)
    base = segment_base(parts.segments, head_size)
    body = join_segments(parts.segments, offsets_from_base(parts.segments), 0)
    header = ExtendedHeader(
        flatbuffer_size=head_size, segment_base_offset=base, segment_data_size=len(body)
    )
    cord = flatbuffer_with_header(metadata, PROGRAM_HEADER.pack(header, slot))
    cord.append(Cord.of(Fill(base - head_size)))
    cord.append(body)
    return cord


class _Parts:
    """A program on its way into metadata and segments."""

    def __init__(self, program: schema.Program, segment_alignment: int) -> None:
        if program.segments:
            raise LayoutError(
                "the program already has segments",
                expected="constants and delegates inline, as an emitter gives them",
                actual=f"{len(program.segments)} segments",
            )
        self.segments: list[Segment] = []
        self._root = _copy(program, schema.Program)
        self._alignment = segment_alignment

    def rooted(self) -> schema.Program:
        """Return the program with the places of its segments."""
        offsets = offsets_from_base(self.segments)
        self._root.segments = [
            schema.DataSegment(offset, len(segment.data))
            for offset, segment in zip(offsets, self.segments, strict=True)
        ]
        return self._root

    @property
    def need_header(self) -> bool:
        """Whether there is something to find after the flatbuffer, be it only an empty blob."""
        return bool(self._root.named_data) or any(segment.data for segment in self.segments)

    def _add(self, name: str, data: Cord, alignment: int = 1) -> int:
        self.segments.append(Segment(name, data, math.lcm(self._alignment, alignment)))
        return len(self.segments) - 1

    def add_constants(self, constants: Sequence[schema.Buffer], alignment: int) -> None:
        """Move the constants into a segment."""
        data, offsets = _joined(constants, alignment)
        index = self._add("constants", data, alignment if data else 1)
        self._root.constant_segment = schema.SubsegmentOffsets(index, offsets)
        self._root.constant_buffer = []

    def add_mutable_data(self, buffers: Sequence[schema.Buffer]) -> None:
        """Put initial values into a segment; they are copied when loaded and need no alignment."""
        data, offsets = _joined(buffers, 1)
        if data:
            index = self._add("mutable data", data)
            self._root.mutable_data_segments = [schema.SubsegmentOffsets(index, offsets)]

    def keep_delegates(self) -> None:
        """Leave delegate payloads inline, by reference."""
        payloads = self._root.backend_delegate_data
        if payloads:
            self._root.backend_delegate_data = [
                schema.BackendDelegateInlineData(None if it.data is None else blob_cord(it.data))
                for it in payloads
            ]

    def extract_delegates(self) -> None:
        """Move delegate payloads into segments, equal ones into one; empty ones stay inline."""
        payloads = _Payloads(self._root.backend_delegate_data or (), self._add)
        plans = []
        for plan in self._root.execution_plan or ():
            if plan.delegates:
                delegates = [payloads.moved(item, plan.name) for item in plan.delegates]
                plan = _copy(plan, schema.ExecutionPlan)  # noqa: PLW2901  # the caller's is kept
                plan.delegates = delegates
            plans.append(plan)
        payloads.check_all_used()
        if self._root.backend_delegate_data:
            self._root.backend_delegate_data = payloads.inline
            self._root.execution_plan = plans

    def add_named_data(self, named_data: NamedDataStoreOutput) -> None:
        """Put the blobs for the program into segments."""
        if self._root.named_data:
            raise LayoutError(
                "the program already has named data",
                expected="none",
                actual=f"{len(self._root.named_data)} keys",
            )
        first = len(self.segments)
        named = blob_segments(named_data.buffers, named_data.pte_data, self._alignment)
        self.segments += named.segments
        self._root.named_data = [
            schema.NamedData(key, first + index) for key, index in named.index.items()
        ]


class _Payloads:
    """Delegate payloads on their way into segments.

    Attributes:
        inline: Those that stay, since they are empty.
    """

    def __init__(
        self, payloads: Sequence[schema.BackendDelegateInlineData], add: Callable[[str, Cord], int]
    ) -> None:
        self.inline: list[schema.BackendDelegateInlineData] = []
        self._payloads = payloads
        self._add = add
        self._blobs = Blobs()
        self._segments: list[int] = []  # segment index by number of the distinct payload
        self._used: set[int] = set()

    def moved(self, delegate: schema.BackendDelegate, method: str | None) -> schema.BackendDelegate:
        """Return a copy of a delegate that refers to where its payload goes."""
        name = f"delegate {delegate.id!r} of method {method!r}"
        index = _inline_index(delegate, len(self._payloads), name)
        self._used.add(index)
        copied = _copy(delegate, schema.BackendDelegate)
        payload = self._payloads[index]
        data = Cord() if payload.data is None else blob_cord(payload.data)
        if data:
            number = self._blobs.find(data)
            if number == len(self._segments):
                self._segments.append(self._add(name, data))
            place = schema.BackendDelegateDataReference(
                schema.DataLocation.SEGMENT, self._segments[number]
            )
        else:
            place = schema.BackendDelegateDataReference(
                schema.DataLocation.INLINE, len(self.inline)
            )
            self.inline.append(payload)
        copied.processed = place
        return copied

    def check_all_used(self) -> None:
        """Refuse payloads that would be lost."""
        unused = [i for i in range(len(self._payloads)) if i not in self._used]
        if unused:
            raise LayoutError(
                "delegate data that no delegate refers to",
                source="backend_delegate_data",
                expected="every index to be referred to",
                actual=f"indices {unused[:16]}",
            )


def _inline_index(delegate: schema.BackendDelegate, count: int, name: str) -> int:
    """Return where the payload of a delegate is in the inline data."""
    place = delegate.processed
    if place is None or place.location != schema.DataLocation.INLINE:
        raise LayoutError(
            "delegate data is not inline",
            source=name,
            expected="a place in backend_delegate_data, as an emitter gives it",
            actual=place,
        )
    if not 0 <= place.index < count:
        raise LayoutError(
            "index of delegate data is out of range",
            source=name,
            expected=f"0 to {count - 1}" if count else "no delegate, as there is no data",
            actual=place.index,
        )
    return place.index


def _joined(buffers: Iterable[schema.Buffer], alignment: int) -> tuple[Cord, list[int]]:
    """Return buffers one after the other, each aligned from the first, and where each begins.

    There is no padding after the last one.
    """
    parts = [Segment("buffer", blob_cord(buffer.storage), alignment) for buffer in buffers]
    offsets = offsets_from_base(parts)
    return join_segments(parts, offsets, 0), offsets


def _copy(record: object, kind: type[_T]) -> _T:
    """Return a shallow copy of a record, this project's or ExecuTorch's, that may be changed."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # schema records are dataclasses
    return kind(**{name: getattr(record, name) for name in names})
