"""Rewriting: what holds for any program and any edits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import cordbundle as cb
from cordbundle import program as schema

blobs = st.binary(max_size=300)
keys = st.text("abcdef", min_size=1, max_size=2)
alignments = st.sampled_from([1, 2, 16, 64, 128, 4096])


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """Draw a program with constants, delegates and named data, perhaps with bytes in its gaps."""
    payloads = draw(st.lists(blobs, max_size=3))
    delegates = [
        schema.BackendDelegate("backend", schema.BackendDelegateDataReference(0, index))
        for index in range(len(payloads))
    ]
    store = cb.NamedDataStore()
    for key, blob in draw(st.dictionaries(keys, blobs, max_size=5)).items():
        store.add_named_data(key, blob, draw(alignments))
    program = schema.Program(
        execution_plan=[schema.ExecutionPlan(name="f", delegates=delegates)],
        constant_buffer=[schema.Buffer(blob) for blob in draw(st.lists(blobs, max_size=3))],
        backend_delegate_data=[schema.BackendDelegateInlineData(blob) for blob in payloads],
    )
    cord = cb.serialize_pte(
        program,
        named_data=draw(st.sampled_from([None, store.get_named_data_store_output()])),
        segment_alignment=draw(alignments),
        extract_delegate_segments=draw(st.booleans()),
    )
    data = bytearray(bytes(cord) + draw(st.sampled_from([b"", b"\0", b"trailing"])))
    file = cb.open(bytes(data))
    assert isinstance(file, cb.PteFile)
    if file.header is not None and draw(st.booleans()):
        end = file.header.segment_base_offset
        for at in range(file.metadata_end, end)[:3]:
            data[at] = 0xEE
    return bytes(data)


edits = st.lists(
    st.tuples(
        st.sampled_from(["named", "out", "in", "align", "extract"]),
        st.integers(0, 7),
        blobs,
    ),
    max_size=6,
)


class Model:
    """What a program should hold, kept by the simplest means."""

    def __init__(self, data: bytes) -> None:
        file = opened(data)
        self.edit = cb.PteEditor(file)
        self.named = {key: bytes(blob) for key, blob in file.named_data.items()}
        self.delegates = payloads(data)
        self.alignment = 1
        self.count = 0

    def apply(self, action: str, number: int, blob: bytes) -> None:
        key = sorted(self.named)[number % len(self.named)] if self.named else None
        if action == "named" and key is not None:
            self.edit.replace_named_data(key, blob)
            self.named[key] = blob
        elif action == "out" and key is not None:
            assert self.edit.move_out([key]) == {key: self.named.pop(key)}
        elif action == "in":
            self.count += 1
            new = f"new {self.count}"
            self.edit.move_in({new: blob}, alignment=1 << number)
            self.named[new] = blob
        elif action == "align":
            self.edit.align_segments(1 << number)
            self.alignment = max(self.alignment, 1 << number)
        elif action == "extract":
            self.edit.extract_delegates()


def opened(data: bytes | cb.Cord) -> cb.PteFile:
    file = cb.open(data)
    assert isinstance(file, cb.PteFile)
    return file


def payloads(data: bytes | cb.Cord) -> list[bytes]:
    """Return the payload of each delegate, wherever it is."""
    file = opened(data)
    inline = [bytes(item.data or b"") for item in file.program().backend_delegate_data or ()]
    found = []
    for delegate in (file.program().execution_plan or ())[0].delegates or ():
        place = delegate.processed
        assert place is not None
        found.append(bytes(file.segments[place.index]) if place.location else inline[place.index])
    return found


@given(data=programs())
def test_a_program_that_is_not_edited_is_the_same_file(data: bytes) -> None:
    edited = cb.PteEditor(opened(data)).finish()
    taken = cb.rewrite(opened(data))

    assert bytes(edited.cord) == data
    assert edited.changes == taken.changes == ()
    assert bytes(taken.cord) == data


@given(data=programs(), edits=edits)
def test_any_edits_give_a_sound_program_with_what_was_asked_for(
    data: bytes, edits: list[tuple[str, int, bytes]]
) -> None:
    model = Model(data)
    for edit in edits:
        model.apply(*edit)

    found = model.edit.finish()
    file = opened(found.cord)

    file.check_structure()
    assert {key: bytes(blob) for key, blob in file.named_data.items()} == model.named
    assert payloads(found.cord) == model.delegates
    assert found.layout.end == len(found.cord)
    assert found.changes or bytes(found.cord) == data
    for place in file.segment_ranges:
        assert not place.size or place.offset % model.alignment == 0
        assert place.offset + place.size <= len(found.cord)
    if file.header is not None:
        assert file.header.metadata_end <= len(found.cord)


@given(data=programs(), edits=edits)
def test_editing_at_once_and_one_after_the_other_give_programs_that_hold_the_same(
    data: bytes, edits: list[tuple[str, int, bytes]]
) -> None:
    at_once, current = Model(data), Model(data)
    for edit in edits:
        at_once.apply(*edit)
        current.apply(*edit)
        count = current.count
        current = Model(bytes(current.edit.finish().cord))
        current.count = count

    one, other = opened(at_once.edit.finish().cord), opened(current.edit.finish().cord)

    assert one.named_data == other.named_data
    assert one.methods["f"].operators == other.methods["f"].operators
    assert payloads(one.cord) == payloads(other.cord)


@given(data=programs(), number=st.integers(0, 4), blob=blobs)
def test_a_replaced_blob_moves_nothing_that_stands_before_it(
    data: bytes, number: int, blob: bytes
) -> None:
    file = opened(data)
    if not file.named_data:
        return
    key = sorted(file.named_data)[number % len(file.named_data)]
    index = next(e.segment_index for e in file.program().named_data or () if e.key == key)
    users = [e.key for e in file.program().named_data or () if e.segment_index == index]
    if len(users) > 1 or not file.segment_ranges[index].size:
        return
    edit = cb.PteEditor(file)
    edit.replace_named_data(key, blob)

    found = edit.finish().cord

    before = [(s.offset, s.size) for s in file.segment_ranges[:index]]
    assert [(s.offset, s.size) for s in opened(found).segment_ranges[:index] if s.size] == [
        place for place in before if place[1]
    ]
