"""The metadata of a program (`.pte`), changed to say where things are now.

Rules of this file: it sees records, sizes and relative offsets, no payload; metadata is patched in
place where that is possible and encoded anew where it is not, and the caller learns which; what it
cannot keep of a newer schema is refused.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cordbundle import program as schema
from cordbundle.cord import Cord
from cordbundle.flatbuffer import Reader, byte_range, decode, encode, position_of
from cordbundle.flatbuffer.patch import (
    Patch,
    has_unknown_fields,
    offset_field,
    refuse_unknown,
    tables_of,
    unknown_fields,
)
from cordbundle.flatbuffer.schema import Kind, table_of
from cordbundle.headers import PROGRAM_HEADER, ExtendedHeader, flatbuffer_with_header
from cordbundle.rewriting.relayout import power_of_two

__all__ = [
    "Inline",
    "MetadataPlan",
    "Named",
    "NewMetadata",
    "inline_alignment",
    "new_metadata",
    "with_header",
]

_TENSOR_ALIGNMENT = 16  # the schema's for data inside the flatbuffer


@dataclass(frozen=True, slots=True)
class Named:
    """An entry of the named data.

    Attributes:
        key: Its key.
        segment: Index of its segment.
        origin: Its number in the source; None for a new one.
    """

    key: str
    segment: int
    origin: int | None = None


@dataclass(frozen=True, slots=True)
class Inline:
    """Delegate payloads that leave the metadata.

    Attributes:
        segments: The segment of each delegate that is moved, by (method number, delegate number).
        kept: Numbers of the payloads that stay, in their order.
    """

    segments: Mapping[tuple[int, int], int] = field(default_factory=dict)
    kept: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class MetadataPlan:
    """What the metadata has to say.

    Attributes:
        segments: Offset from the base and size of each segment.
        named: The named data in order.
        constants: Bytes that replace the beginning of inline constants, by number.
        inline: Delegate payloads that leave; None if all stay.
    """

    segments: Sequence[tuple[int, int]]
    named: Sequence[Named]
    constants: Mapping[int, Cord]
    inline: Inline | None


@dataclass(frozen=True, slots=True)
class NewMetadata:
    """The changed metadata.

    Attributes:
        cord: The flatbuffer.
        alignment: What the size of a header put into it has to be a multiple of, in bytes.
        reason: Why it was encoded anew; None if it was patched.
        appended: Bytes that were appended to it, if it was patched.
    """

    cord: Cord
    alignment: int
    reason: str | None = None
    appended: int = 0


def new_metadata(metadata: Cord, plan: MetadataPlan, name: str) -> NewMetadata:
    """Return the metadata as a plan wants it.

    Args:
        metadata: The flatbuffer of the source, with its extended header if it has one.
        plan: What it has to say.
        name: Name of the file, for errors.

    Returns:
        The source's bytes but for what changes; O(values that change), no payload is copied. Or,
        where that is impossible, the metadata encoded anew without an extended header: O(metadata).

    Raises:
        LayoutError: A table that has to be made anew has fields of a newer schema.
    """
    root = Reader(metadata, name=name).root(schema.Program)
    if plan.inline is not None:
        return _encoded(root, plan, "delegate payloads are taken out of the middle of it", name)
    patch = _ProgramPatch(metadata, root, name)
    missing = patch.lacks(plan)
    if missing is not None:
        return _encoded(root, plan, f"its root table has no place for {missing}", name)
    patch.set_segments(plan.segments)
    patch.set_named(plan.named)
    patch.set_constants(plan.constants)
    result = patch.finish()
    alignment = max(_inline_alignments(root).values())
    return NewMetadata(result, alignment, appended=len(result) - len(metadata))


class _ProgramPatch:
    """Changes to the metadata in its place."""

    def __init__(self, metadata: Cord, root: schema.Program, name: str) -> None:
        self._patch = Patch(metadata)
        self._root = root
        self._name = name
        self.finish = self._patch.finish

    def lacks(self, plan: MetadataPlan) -> str | None:
        """Return which vector the root has no slot for, though it has to grow."""
        for name, old, new in (
            ("segments", self._root.segments or (), plan.segments),
            ("named_data", self._root.named_data or (), plan.named),
        ):
            if len(new) > len(old) and offset_field(self._root, name) is None:
                return name
        return None

    def set_segments(self, segments: Sequence[tuple[int, int]]) -> None:
        """Store the segment table."""
        views = self._root.segments or ()
        records = [schema.DataSegment(*segment) for segment in segments]
        if len(records) > len(views):
            self._grow("segments", views, schema.Program(segments=records))
        else:
            self._store("segments", views, list(enumerate(records)))

    def set_named(self, named: Sequence[Named]) -> None:
        """Store the named data."""
        views = self._root.named_data or ()
        records = [schema.NamedData(entry.key, entry.segment) for entry in named]
        origins = [entry.origin for entry in named]
        if None in origins:
            self._grow("named_data", views, schema.Program(named_data=records))
        else:
            pairs = zip(origins, records, strict=True)
            self._store("named_data", views, [(o, record) for o, record in pairs if o is not None])

    def set_constants(self, constants: Mapping[int, Cord]) -> None:
        """Store inline constants over the old ones."""
        views = self._root.constant_buffer or ()
        for number, data in constants.items():
            place = byte_range(views[number], "storage")
            if place is not None:
                self._patch.write(place.offset, data)

    def _grow(self, name: str, views: Sequence[object], holder: schema.Program) -> None:
        """Append a vector and copies of its tables, which cannot stay: offsets count forward."""
        at = offset_field(self._root, name)
        refuse_unknown([type(v).__name__ for v in views if has_unknown_fields(v)][:1], self._name)
        if at is not None:
            self._patch.point(at, self._patch.append_tables(holder, name))

    def _store(
        self,
        name: str,
        views: Sequence[object],
        records: Sequence[tuple[int, schema.DataSegment | schema.NamedData]],
    ) -> None:
        """Make a vector hold these of its tables, given by their old number, with new scalars."""
        places = tables_of(self._root, name)
        targets = [position_of(view) for view in views]
        uses = Counter(targets)
        for place, old, (number, record) in zip(places, targets, records, strict=False):
            target = targets[number]
            changed = _changed(views[number], record)
            if changed and (uses[target] > 1 or not self._patch.set(views[number], **changed)):
                refuse_unknown(
                    [type(record).__name__] if has_unknown_fields(views[number]) else [], self._name
                )
                target = self._patch.append(record)
            if target != old:
                self._patch.point(place, target)
        if len(records) < len(views):
            self._patch.write(places[0] - 4, struct.pack("<I", len(records)))


def _changed(view: object, record: schema.DataSegment | schema.NamedData) -> dict[str, int]:
    """Return the scalars of a record that are not those of a view."""
    return {
        field.name: getattr(record, field.name)
        for field in table_of(type(record)).fields
        if field.kind is Kind.SCALAR and getattr(view, field.name) != getattr(record, field.name)
    }


def _encoded(root: schema.Program, plan: MetadataPlan, reason: str, name: str) -> NewMetadata:
    """Encode the metadata anew; payloads in it go along by reference."""
    program = decode(root, by_reference=True)
    refuse_unknown(unknown_fields(root), name)
    program.segments = [schema.DataSegment(*segment) for segment in plan.segments]
    if plan.named or program.named_data is not None:
        program.named_data = [schema.NamedData(entry.key, entry.segment) for entry in plan.named]
    for number, data in plan.constants.items():
        buffer = (program.constant_buffer or ())[number]
        old = buffer.storage if isinstance(buffer.storage, Cord) else Cord()
        buffer.storage = data + old[len(data) :]
    if plan.inline is not None:
        _take_out(program, plan.inline)
    encoded = encode(
        program,
        schema.PROGRAM_IDENTIFIER,
        alignments=_inline_alignments(root),
        signed_zero=True,
    )
    return NewMetadata(encoded.cord, max(encoded.alignment, _TENSOR_ALIGNMENT), reason)


def _take_out(program: schema.Program, inline: Inline) -> None:
    """Point delegates to segments, and those that stay to where their payloads are then."""
    numbers = {old: new for new, old in enumerate(inline.kept)}
    for method, plan in enumerate(program.execution_plan or ()):
        for index, delegate in enumerate(plan.delegates or ()):
            place, segment = delegate.processed, inline.segments.get((method, index))
            if segment is not None:
                delegate.processed = schema.BackendDelegateDataReference(
                    schema.DataLocation.SEGMENT, segment
                )
            elif place is not None and place.location == schema.DataLocation.INLINE:
                place.index = numbers[place.index]
    payloads = program.backend_delegate_data or ()
    program.backend_delegate_data = [payloads[number] for number in inline.kept]


def _inline_alignments(root: schema.Program) -> dict[str, int]:
    return {
        "tensor": inline_alignment(root.constant_buffer or (), "storage"),
        "delegate": inline_alignment(root.backend_delegate_data or (), "data"),
    }


def inline_alignment(tables: Sequence[object], name: str) -> int:
    """Return the power of two that all byte vectors of a field are aligned to, at least 16."""
    places = [byte_range(table, name) for table in tables]
    common = math.gcd(*(place.offset for place in places if place is not None and place.size))
    return max(_TENSOR_ALIGNMENT, power_of_two(common) if common else 1)


def with_header(metadata: Cord, header: ExtendedHeader | None, slot: int | None) -> Cord:
    """Return metadata with these values in its header.

    Args:
        metadata: The flatbuffer.
        header: The values; None for no header.
        slot: Bytes to put in for a header; None if it is there already.
    """
    if header is None:
        return metadata
    if slot is not None:
        return flatbuffer_with_header(metadata, PROGRAM_HEADER.pack(header, slot))
    patch = Patch(metadata)
    for name, code in PROGRAM_HEADER.fields:
        value = getattr(header, name)
        if value is not None:  # headers of before ExecuTorch 1.0 lack the last one
            patch.write(PROGRAM_HEADER.offset_of(name), struct.pack("<" + code, value))
    return patch.finish()
