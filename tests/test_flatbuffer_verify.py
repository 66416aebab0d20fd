"""Verification: every finding, with its place; none for a sound file; no exception for any."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from cordbundle.cord import Cord
from cordbundle.flatbuffer import Finding, Reader, encode, position_of, verify
from cordbundle.flatbuffer.reader import MAX_KEPT
from cordbundle.flatbuffer.verify import AFTER, MAX_FINDINGS
from tests.attacks.surgery import point_to_first
from tests.flatbuffer_samples import Empty, Leaf, Node, with_u32
from tests.test_flatbuffer_read import FULL, encoded, field_at, nested, reused, target_at


def findings(data: bytes, root: type = Node) -> list[tuple[int, str]]:
    """Verify and return offset and text of each finding."""
    return [(item.offset, item.what) for item in verify(Reader(data), root)]


def put_u16(data: bytes, at: int, value: int) -> bytes:
    """Return bytes with one unsigned 16-bit number replaced."""
    return data[:at] + struct.pack("<H", value) + data[at + 2 :]


def vtable_of(data: bytes, at: int) -> int:
    """Return the position of the vtable of the table at `at`."""
    return at - int(struct.unpack_from("<i", data, at)[0])


def root_of(data: bytes) -> int:
    """Return the position of the root table."""
    return int(struct.unpack_from("<I", data)[0])


@pytest.mark.parametrize("root", [FULL, Node(), Leaf(1, 2, True, 0.5, 3, 4, 5), nested(64)])
def test_a_sound_file_has_no_finding(root: Any) -> None:
    assert findings(encoded(root), type(root)) == []


def test_files_in_either_field_order_are_sound() -> None:
    data = bytes(encode(FULL, b"TEST", order="flatc").cord)

    assert findings(data) == []


def test_a_finding_says_where_what_expected_and_found() -> None:
    data = encoded(Node(name="n"))
    at = field_at(data, "name")

    (finding,) = verify(Reader(with_u32(data, at, 0), base=1000), Node)

    assert finding == Finding(1000 + at, "Node.name: offset is zero", "1 or more", "0")
    assert str(finding) == (
        f"offset {1000 + at}: Node.name: offset is zero: found 0, expected 1 or more"
    )


def test_all_findings_are_collected_in_one_walk() -> None:
    data = encoded(Node(name="n", child=Node(name="m"), numbers=[1]))
    names = [field_at(data, name) for name in ("name", "numbers")]
    for at in names:
        data = with_u32(data, at, 2**31)

    assert findings(data) == [
        (names[0], "Node.name: offset points past the end"),
        (names[1], "Node.numbers: offset points past the end"),
    ]


def test_a_vector_longer_than_the_file_is_found() -> None:
    data = encoded(Node(numbers=[1, 2]))
    at = target_at(data, "numbers")

    assert findings(with_u32(data, at, 2**32 - 1)) == [(at, "Node.numbers passes the end")]


def test_an_offset_in_a_vector_of_tables_is_found_and_the_others_are_walked() -> None:
    data = encoded(Node(children=[Node(), Node(name="n")]))
    at = target_at(data, "children") + 4
    name = data.rindex(b"n\0")
    data = with_u32(data, at, 0)[:name] + b"n!" + data[name + 2 :]

    assert findings(data) == [
        (at, "Node.children: offset is zero"),
        (name + 1, "Node.name does not end with NUL"),
    ]


def test_every_element_of_a_long_vector_of_tables_is_checked() -> None:
    data = encoded(Node(children=[Node()] * 9000))
    at = target_at(data, "children") + 4 + 4 * 8999

    assert findings(with_u32(data, at, 2**31)) == [
        (at, "Node.children: offset points past the end")
    ]


def test_a_string_that_is_no_utf8_is_found_at_its_byte() -> None:
    data = encoded(Node(name="abc"))
    at = data.index(b"abc")

    found = findings(data[: at + 1] + b"\xff" + data[at + 2 :])

    assert found == [(at + 1, "Node.name is not UTF-8")]


def test_a_letter_across_the_reading_step_is_no_finding_and_half_of_one_is() -> None:
    text = "x" * ((1 << 20) - 1) + "é"
    data = encoded(Node(name=text))
    at = data.index("é".encode())

    assert findings(data) == []
    assert findings(data[: at + 1] + b"x" + data[at + 2 :]) == [(at, "Node.name is not UTF-8")]


def test_a_string_that_ends_within_a_letter_is_found() -> None:
    data = encoded(Node(name="abc"))
    at = data.index(b"abc") + 2

    assert findings(data[:at] + b"\xc3" + data[at + 1 :]) == [(at, "Node.name is not UTF-8")]


def test_a_string_at_the_end_needs_its_nul() -> None:
    data = encoded(Node(name="abcd"))
    at = target_at(data, "name")
    cut = data[: at + 8]

    assert findings(cut) == [(at + 8, "NUL of Node.name passes the end")]


@pytest.mark.parametrize(
    ("offset", "value", "what"),
    [
        (0, 2, "vtable of Node has a bad size"),
        (0, 7, "vtable of Node has a bad size"),
        (0, 60000, "vtable of Node passes the end"),
        (4, 2, "Node.name overlaps what stands before it in its table"),
    ],
)
def test_a_bad_vtable_is_found_once(offset: int, value: int, what: str) -> None:
    data = encoded(Node(name="n"))
    at = vtable_of(data, root_of(data))

    assert findings(put_u16(data, at + offset, value)) == [(at, what)]


@pytest.mark.parametrize(("others", "times"), [(MAX_KEPT - 2, 1), (MAX_KEPT - 1, 2)])
def test_a_bad_vtable_is_found_again_only_after_more_others_than_are_kept(
    others: int, times: int
) -> None:
    data = encoded(Node(children=[Node()] * (others + 2)))
    start, elements = len(data), target_at(data, "children") + 4
    word = 0x40004  # a vtable without fields; as the first of a table, how far before it that is
    bad, sound = struct.pack("<HH", 5, 4), struct.pack("<I", word)
    tables = bad + sound * (word // 4 + others)
    first = start + word - elements
    offsets = [*[first] * (others + 1), first - 4 * (others + 1)]  # one for each, the bad one again
    vector = struct.pack(f"<{others + 2}I", *offsets)
    data = data[:elements] + vector + data[elements + len(vector) :] + tables

    assert findings(data) == [(start, "vtable of Node has a bad size")] * times


def test_a_bad_vtable_of_many_tables_is_found_once() -> None:
    names = ["a", "abcde", "abcde", "a"]
    data = encoded(Node(children=[Node(name=name) for name in names]))
    at = target_at(data, "children") + 4
    child = at + int(struct.unpack_from("<I", data, at)[0])

    children: Any = Reader(data).root(Node).children
    assert len({position_of(child) % 8 for child in children}) == 2

    bad = put_u16(data, vtable_of(data, child), 7)

    assert findings(bad) == [(vtable_of(data, child), "vtable of Node has a bad size")]


def test_a_vtable_outside_is_found() -> None:
    data = encoded(Node(name="n"))
    root = root_of(data)

    assert findings(with_u32(data, root, 0x7FFFFFFF)) == [(root, "vtable of Node is outside")]


def test_a_value_past_the_end_is_found() -> None:
    data = encoded(Node(name="n"))
    root = root_of(data)

    assert findings(put_u16(data, vtable_of(data, root) + 4, 60000)) == [
        (root, "table Node passes the end")
    ]


def test_an_unknown_tag_and_half_unions_are_found() -> None:
    data = encoded(Node(value=Leaf(small=1)))
    root = root_of(data)
    vtable = vtable_of(data, root)
    tag = root + struct.unpack_from("<H", data, vtable + 4 + 2 * 3)[0]

    assert findings(data[:tag] + b"\x09" + data[tag + 1 :]) == [
        (tag, "Node.value: unknown union tag")
    ]
    assert findings(data[:tag] + b"\0" + data[tag + 1 :]) == [(root, "Node.value is half a union")]
    assert findings(put_u16(data, vtable + 4 + 2 * 4, 0)) == [(root, "Node.value is half a union")]
    assert findings(put_u16(data, vtable + 4 + 2 * 3, 0)) == [(root, "Node.value is half a union")]


def shifted(data: bytes, by: int) -> bytes:
    """Return a file with its root table and all after it moved, so that nothing is aligned."""
    return struct.pack("<I", root_of(data) + by) + data[4:8] + bytes(by) + data[8:]


def test_a_misaligned_table_vector_or_value_is_found() -> None:
    data = encoded(Node(numbers=[1], data=b"x", value=Leaf(wide=1)))

    assert findings(shifted(data, 32)) == []
    assert [what for _, what in findings(shifted(data, 16))] == ["Node.data is not aligned"]
    assert [what for _, what in findings(shifted(data, 4))] == [
        "Node.data is not aligned",
        "Node.numbers is not aligned",
        "Leaf.wide is not aligned",
    ]
    found = [what for _, what in findings(shifted(data, 1))]
    assert "table Node is not aligned" in found
    assert "vtable of Node is not aligned" in found
    assert "Leaf.wide is not aligned" in found


def test_a_misaligned_string_is_found() -> None:
    assert [what for _, what in findings(shifted(encoded(Node(name="n")), 2))] == [
        "table Node is not aligned",
        "Node.name is not aligned",
        "Node.name is not aligned",
    ]


def test_an_empty_vector_needs_no_alignment_of_its_elements() -> None:
    data = encoded(Node(numbers=[], data=b""))

    assert findings(shifted(data, 4)) == []


def test_tables_nested_too_deeply_are_found_and_not_followed() -> None:
    (finding,) = verify(Reader(encoded(nested(70))), Node)

    assert (finding.what, finding.expected) == ("tables are nested too deeply", "64 levels")


def test_a_file_that_uses_one_table_often_is_found_and_not_walked() -> None:
    (finding,) = verify(Reader(reused(1000, Node(sizes=[0] * 500))), Node)

    assert finding.what == "tables, vectors or strings are used too often"
    assert findings(reused(10, Node(sizes=[0] * 500))) == []


def test_a_table_that_holds_itself_ends() -> None:
    data = encoded(Node(children=[Node(), Node(name="x")]))
    at = target_at(data, "children")
    child = at + 8 + int(struct.unpack_from("<I", data, at + 8)[0])
    name = child + 4
    looped = with_u32(with_u32(data, at + 4, 2**32 - 1), at, 1)

    assert verify(Reader(with_u32(looped, name, 2**32 - 1)), Node) != []


def test_the_number_of_findings_is_bound() -> None:
    lists = Node(children=[Node(children=[Node()] * 900)] * 3)
    data = bytearray(encoded(lists))
    for children in [node.children for node in Reader(bytes(data)).root(Node).children or ()]:
        first = children._first  # type: ignore[union-attr]
        data[first : first + 3600] = bytes(3600)

    assert len(verify(Reader(bytes(data)), Node)) == MAX_FINDINGS == 1000


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0" * 8, b"\xff" * 8, b"\x08\0\0\0TEST", b"\xff" * 64]
)
def test_what_is_no_flatbuffer_has_findings(data: bytes) -> None:
    assert verify(Reader(data), Node) != []


def test_every_cut_of_a_file_has_findings() -> None:
    data = encoded(FULL)

    for size in range(len(data)):
        assert verify(Reader(data[:size]), Node) != []


def test_a_file_too_large_to_keep_is_verified_through_pages(tmp_path: Path) -> None:
    path = tmp_path / "large"
    data = encoded(Node(data=bytes(17 << 20), child=Node(name="abc")))
    at = data.index(b"abc")
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])

    found = verify(Reader(Cord.from_file(path)), Node)

    assert [(item.offset, item.what) for item in found] == [(at, "Node.name is not UTF-8")]


# What follows


def rest_of(data: bytes, root: type = Node) -> list[tuple[int, str, str]]:
    said = verify(Reader(data), root, to_end=True)
    return [(one.offset, one.what, one.actual) for one in said]


LAST = [
    Node(data=b"bytes"),
    Node(name="text"),
    Node(sizes=[1, 2, 3]),
    Node(children=[Node(), Node(name="")]),
    Node(value=Leaf(small=1)),
    Node(),
    FULL,
]


@pytest.mark.parametrize("record", LAST)
def test_what_follows_all_that_is_pointed_to_is_found_where_it_is_asked_for(record: Node) -> None:
    data = encoded(record)

    assert rest_of(data) == rest_of(data + bytes(64)) == []
    ((offset, what, size),) = rest_of(data + b"hidden")
    assert len(data) - 32 < offset <= len(data)
    assert offset + int(size) == len(data) + 6
    assert what == AFTER
    assert verify(Reader(data + b"hidden"), Node) == []


def test_a_vtable_may_be_the_last_thing_in_a_flatbuffer() -> None:
    data = struct.pack("<I4siHH", 8, b"TEST", -4, 4, 4)

    assert rest_of(data) == []
    assert rest_of(data + b"hidden") == [(16, AFTER, "6")]


def test_zeros_may_follow_up_to_the_largest_alignment() -> None:
    data = encoded(Node(name="abc"))
    end = data.rindex(b"abc") + 4

    assert rest_of(data[:end] + bytes(1 << 20)) == []
    assert rest_of(data[:end] + bytes((1 << 20) + 1)) == [(end, AFTER, "1048577")]


def test_what_follows_fields_of_a_newer_schema_may_be_theirs() -> None:
    data = encoded(Leaf(small=1))

    assert rest_of(data + b"theirs", Empty) == []
    assert rest_of(encoded(Empty()) + b"hidden", Empty) != []


def test_what_follows_is_not_told_of_a_flatbuffer_that_is_damaged() -> None:
    data = encoded(Node(name="abc"))
    place = data.rindex(b"abc")

    damaged = data[:place] + b"\xff" + data[place + 1 :] + b"hidden"

    assert [what for _, what, _ in rest_of(damaged)] == ["Node.name is not UTF-8"]


def test_one_byte_that_follows_is_told_in_these_words() -> None:
    data = encoded(Node(name="abc"))
    end = data.rindex(b"abc") + 4

    (said,) = verify(Reader(data[:end] + b"X"), Node, to_end=True)

    assert str(said) == f"offset {end}: {AFTER}: found 1, expected none"


@pytest.mark.parametrize(("slots", "rest"), [(12, [(56, AFTER, "6")]), (13, [])])
def test_fields_of_a_newer_schema_may_be_in_any_table(
    slots: int, rest: list[tuple[int, str, str]]
) -> None:
    vtable = struct.pack("<HHHH", 4 + 2 * slots, 8, 0, 4).ljust(32, b"\0")
    data = struct.pack("<I4s", 40, b"TEST") + vtable + struct.pack("<iIHHi", 32, 8, 4, 4, 4)

    assert rest_of(data) == []
    assert rest_of(data + b"theirs") == rest


def test_a_damaged_table_counts_each_time_that_it_is_used() -> None:
    record = Node(children=[Node(children=[Node()] * 200)] + [Node()] * 199)
    data = bytearray(encoded(record))
    children = Reader(bytes(data)).root(Node).children or ()
    point_to_first(data, children)
    point_to_first(data, children[0].children)
    place = position_of((children[0].children or ())[0])

    assert [what for _, what in findings(with_u32(bytes(data), place, place + 1))] == [
        "vtable of Node is outside",
        "tables, vectors or strings are used too often",
    ]
