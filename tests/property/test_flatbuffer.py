"""Properties of flatbuffers over generated tables and generated damage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordbundle import bpte_schema, program, ptd_schema
from cordbundle.errors import CordBundleError
from cordbundle.flatbuffer import Reader, decode, encode, verify
from tests.flatbuffer_samples import Node, both, reference, tables
from tests.test_flatbuffer_read import FULL

ROOTS = [Node, program.Program, bpte_schema.BundledProgram, ptd_schema.FlatTensor]
SOUND = bytes(encode(FULL, b"TEST").cord)

instances: st.SearchStrategy[Any] = st.sampled_from(ROOTS).flatmap(tables)
orders: st.SearchStrategy[Any] = st.sampled_from(["pack", "flatc"])


@given(value=instances)
def test_bytes_are_those_of_the_flatbuffers_package(value: object) -> None:
    assert bytes(encode(value, b"TEST").cord) == reference(value, b"TEST")


@given(value=instances, order=orders, data_alignment=st.sampled_from([1, 8, 128]))
def test_what_is_encoded_is_sound_and_decodes_to_itself(
    value: object, order: Any, data_alignment: int
) -> None:
    alignments = {"data": data_alignment, "tensor": data_alignment, "delegate": data_alignment}
    data = encode(value, b"TEST", order=order, alignments=alignments).cord
    reader = Reader(data)

    view: Any = reader.root(type(value))

    assert decode(view) == value
    if data_alignment == 128:
        assert verify(reader, type(value)) == []


@given(value=instances)
def test_a_view_encodes_to_the_bytes_it_was_read_from(value: object) -> None:
    data = bytes(encode(value, b"TEST").cord)

    view = Reader(data).root(type(value))

    assert bytes(encode(view, b"TEST", schema=type(value)).cord) == data


def touch(value: Any, left: list[int]) -> None:
    """Read every field of a view, up to a number of them."""
    left[0] -= 1
    if left[0] < 0 or value is None or isinstance(value, str | int | float):
        return
    table = getattr(value, "_table", None)
    if table is not None:
        for field in table.fields:
            touch(getattr(value, field.name), left)
    elif not hasattr(value, "xxh3_128"):
        for item in value:
            if left[0] < 0:
                return
            touch(item, left)


@settings(max_examples=1000)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, len(SOUND)) | st.just(len(SOUND)),
)
def test_damage_is_an_error_of_the_tree_and_what_verifies_decodes(
    changes: list[tuple[int, int]], cut: int
) -> None:
    damaged = bytearray(SOUND)
    for at, value in changes:
        damaged[at] = value
    reader = Reader(bytes(damaged[:cut]))

    findings = verify(reader, Node)
    failed = False
    for read in (decode, lambda view: touch(view, [2000])):
        try:
            read(reader.root(Node))
        except CordBundleError:
            failed = True

    assert findings or not failed


@given(data=st.binary(max_size=200), root=st.sampled_from(ROOTS))
def test_any_bytes_are_verified_without_an_exception(data: bytes, root: type) -> None:
    findings = verify(Reader(data), root)

    assert findings == verify(Reader(data), root)


flat_roots = [root for root in ROOTS if root is not Node]  # one that holds itself has no columns


@given(value=st.sampled_from(flat_roots).flatmap(tables), data=st.data())
def test_columns_give_what_decoding_one_by_one_gives(value: object, data: st.DataObject) -> None:
    pytest.importorskip("numpy")
    encoded = bytearray(bytes(encode(value, b"TEST").cord))
    places = st.tuples(st.integers(0, len(encoded) - 1), st.integers(0, 255))
    for at, byte in data.draw(st.lists(places, max_size=3)):
        encoded[at] = byte

    by_columns, one_by_one = both(bytes(encoded), type(value))

    assert repr(by_columns) == repr(one_by_one)  # nan is not equal to itself
