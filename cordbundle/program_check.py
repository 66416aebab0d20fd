"""What `verify` checks of a program beyond its flatbuffer: whatever one part says of another.

Rules of this file: it runs once the flatbuffer was found sound; records are decoded at once and
looked at in bulk, and only a finding goes back to the file for its place; no payload is read.
What is asked for is what ExecuTorch's runtime relies on, whether it looks itself or not
(`runtime/executor/program.cpp`, `program_validation.cpp`, `method.cpp`, `tensor_parser*.cpp`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cordbundle import program as schema
from cordbundle.flatbuffer import Finding, decode, position_of
from cordbundle.plan_check import Available, PlanCheck
from cordbundle.record_check import Shapes, check_keys, shown

__all__ = ["check_program"]


def check_program(view: schema.Program, segments: Sequence[int]) -> Iterator[Finding]:
    """Yield what is wrong with a program.

    Args:
        view: The lazy view of its root table.
        segments: The sizes of its segments, in bytes.

    Raises:
        FormatError: One place is used too often to be decoded.
    """
    program = decode(view, by_reference=True)
    yield from _check_root(view, program)
    names = [(entry.key, entry.segment_index) for entry in program.named_data or ()]
    entries = view.named_data or ()
    yield from check_keys(names, len(segments), lambda number: position_of(entries[number]))
    yield from _check_constants(view, program, segments)
    for number, mutable in enumerate(program.mutable_data_segments or ()):
        what = f"mutable data {number}"
        place = _place_in(view.mutable_data_segments, number)
        yield from _check_offsets(mutable, place, what, segments)
    available = Available(
        constants=_constants(program, segments),
        initial=_initial(program, segments),
        segments=len(segments),
        inline=[one.data is not None for one in program.backend_delegate_data or ()],
    )
    yield from _check_plans(view, program, available)


def _place_in(views: Sequence[object] | None, number: int) -> int:
    return position_of((views or ())[number])


def _check_root(view: schema.Program, program: schema.Program) -> Iterator[Finding]:
    if program.execution_plan is None:
        yield Finding(position_of(view), "Program.execution_plan missing", "a vector", "none")
    if program.named_data is not None and program.segments is None:
        what = "named data without a table of segments"
        yield Finding(position_of(view), what, "a vector", "none")


def _has_constant_segment(program: schema.Program) -> bool:
    """Return whether constants are in a segment; the first offset is a placeholder."""
    table = program.constant_segment
    return table is not None and len(table.offsets or ()) > 1


def _check_constants(
    view: schema.Program, program: schema.Program, segments: Sequence[int]
) -> Iterator[Finding]:
    table = program.constant_segment
    if table is None or not _has_constant_segment(program):
        return
    at = position_of(view.constant_segment)
    if program.constant_buffer:
        found = f"{len(program.constant_buffer)} in the flatbuffer too"
        yield Finding(at, "constants are in two places", "one", found)
    yield from _check_offsets(table, at, "constants", segments)


def _check_offsets(
    table: schema.SubsegmentOffsets, at: int, what: str, segments: Sequence[int]
) -> Iterator[Finding]:
    """Check that blobs that share a segment begin inside it."""
    if table.segment_index >= len(segments):
        expected = f"an index below {len(segments)}"
        yield Finding(at, f"segment of {what} does not exist", expected, str(table.segment_index))
        return
    size = segments[table.segment_index]
    for number, offset in enumerate(table.offsets or ()):
        if offset > size:
            found = f"offset {number} is {offset}"
            yield Finding(at, f"{what} begin after their segment", f"at most {size}", found)
            return


def _rooms(table: schema.SubsegmentOffsets, segments: Sequence[int]) -> list[int] | None:
    """Return how many bytes stand from each offset to the end of the segment."""
    if table.segment_index >= len(segments):
        return None
    size = segments[table.segment_index]
    return [max(0, size - offset) for offset in table.offsets or ()]


def _constants(program: schema.Program, segments: Sequence[int]) -> list[int] | None:
    """Return how many bytes there are for each constant; None where that was refused as a whole."""
    table = program.constant_segment
    if table is not None and _has_constant_segment(program):
        return _rooms(table, segments)
    return [
        0 if buffer.storage is None else len(buffer.storage)
        for buffer in program.constant_buffer or ()
    ]


def _initial(program: schema.Program, segments: Sequence[int]) -> list[int] | None:
    """Return how many bytes there are for each initial value; the runtime takes the first table."""
    tables = program.mutable_data_segments
    return _rooms(tables[0], segments) if tables else []


def _check_plans(
    view: schema.Program, program: schema.Program, available: Available
) -> Iterator[Finding]:
    names: set[str | None] = set()
    shapes = Shapes()
    plans = view.execution_plan or ()
    for number, plan in enumerate(program.execution_plan or ()):
        if not plan.name or "\0" in plan.name:
            at, found = position_of(plans[number]), shown(plan.name)
            yield Finding(at, "name of a method", "a name without NUL", found)
        elif plan.name in names:
            at = position_of(plans[number])
            yield Finding(at, "two methods have one name", "unique names", shown(plan.name))
        names.add(plan.name)
        yield from PlanCheck(plans, number, plan, available, shapes).findings()
