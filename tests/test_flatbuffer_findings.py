"""The findings of the verifier word for word, and where its limits are exactly."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from cordbundle.flatbuffer import Reader, verify
from tests.flatbuffer_samples import Empty, Leaf, Node, with_u32
from tests.test_flatbuffer_read import encoded, field_at, reused, target_at
from tests.test_flatbuffer_verify import put_u16, root_of, shifted, vtable_of

SOUND = encoded(Node(name="n", child=Node(), value=Leaf(small=1, wide=2), numbers=[1]))
ROOT = root_of(SOUND)
VTABLE = vtable_of(SOUND, ROOT)
TAG = ROOT + struct.unpack_from("<H", SOUND, VTABLE + 4 + 2 * 3)[0]


def texts(data: bytes) -> list[str]:
    """Verify and return each finding as people read it."""
    return [str(finding) for finding in verify(Reader(data), Node)]


def put_byte(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


GOLDEN: list[tuple[str, Callable[[], bytes], str]] = [
    (
        "four bytes",
        lambda: bytes(4),
        "offset 0: root offset passes the end: found 4, expected 8 bytes",
    ),
    (
        "root offset of zero",
        lambda: with_u32(SOUND, 0, 0),
        "offset 0: root offset: offset is zero: found 0, expected 1 or more",
    ),
    (
        "root offset past the end",
        lambda: with_u32(SOUND, 0, len(SOUND) - 3),
        "offset 0: root offset: offset points past the end: found 109, expected up to 108",
    ),
    (
        "root offset into the head",
        lambda: with_u32(SOUND, 0, 7),
        "offset 0: root offset points into the head of the flatbuffer: found 7, expected 8 or more",
    ),
    (
        "vtable before the file",
        lambda: with_u32(SOUND, ROOT, ROOT + 1),
        "offset 28: vtable of Node is outside: found -1, expected a position up to 108",
    ),
    (
        "vtable after the file",
        lambda: with_u32(SOUND, ROOT, ROOT - (len(SOUND) - 3) & 2**32 - 1),
        "offset 28: vtable of Node is outside: found 109, expected a position up to 108",
    ),
    (
        "vtable too small",
        lambda: put_u16(SOUND, VTABLE, 2),
        "offset 10: vtable of Node has a bad size: found 2, expected an even size of 4 or more",
    ),
    (
        "vtable odd",
        lambda: put_u16(SOUND, VTABLE, 9),
        "offset 10: vtable of Node has a bad size: found 9, expected an even size of 4 or more",
    ),
    (
        "vtable too large",
        lambda: put_u16(SOUND, VTABLE, len(SOUND) - VTABLE + 2),
        "offset 10: vtable of Node passes the end: found 102, expected 104 bytes",
    ),
    (
        "field in the vtable offset",
        lambda: put_u16(SOUND, VTABLE + 4, 3),
        "offset 10: Node.name overlaps what stands before it in its table:"
        " found offsets (3, 16, 0, 15, 8, 0, 4), expected 4 or more",
    ),
    (
        "field past the end",
        lambda: put_u16(SOUND, VTABLE + 4, len(SOUND) - ROOT - 2),
        "offset 28: table Node passes the end: found 84, expected 86 bytes",
    ),
    (
        "name at zero",
        lambda: with_u32(SOUND, field_at(SOUND, "name"), 0),
        "offset 48: Node.name: offset is zero: found 0, expected 1 or more",
    ),
    (
        "name past the end",
        lambda: with_u32(SOUND, field_at(SOUND, "name"), 2**32 - 1),
        "offset 48: Node.name: offset points past the end: found 4294967295, expected up to 60",
    ),
    (
        "too many numbers",
        lambda: with_u32(SOUND, target_at(SOUND, "numbers"), 1000),
        "offset 52: Node.numbers passes the end: found 1000, expected up to 7 elements",
    ),
    (
        "unknown tag",
        lambda: put_byte(SOUND, TAG, 3),
        "offset 43: Node.value: unknown union tag: found 3, expected 0 to 2",
    ),
    (
        "value without type",
        lambda: put_byte(SOUND, TAG, 0),
        "offset 28: Node.value is half a union:"
        " found a value and no type, expected a type and a value",
    ),
    (
        "type without value",
        lambda: put_u16(SOUND, VTABLE + 4 + 2 * 4, 0),
        "offset 28: Node.value is half a union:"
        " found type 2 and no value, expected a type and a value",
    ),
    (
        "value past the end",
        lambda: with_u32(SOUND, field_at(SOUND, "value"), 2**31),
        "offset 36: Node.value: offset points past the end: found 2147483648, expected up to 72",
    ),
    (
        "no NUL",
        lambda: put_byte(SOUND, SOUND.index(b"n\0") + 1, 33),
        "offset 109: Node.name does not end with NUL: found 33, expected 0",
    ),
    (
        "no UTF-8",
        lambda: put_byte(SOUND, SOUND.index(b"n\0"), 0xFF),
        "offset 108: Node.name is not UTF-8: found invalid start byte, expected UTF-8",
    ),
]


@pytest.mark.parametrize(
    ("damage", "text"), [row[1:] for row in GOLDEN], ids=[r[0] for r in GOLDEN]
)
def test_a_damage_has_one_finding_in_these_words(damage: Callable[[], bytes], text: str) -> None:
    assert texts(damage()) == [text]


def test_a_type_in_the_last_byte_of_a_file_is_read() -> None:
    vtable = struct.pack("<6H", 12, 5, 0, 0, 0, 4)
    data = b"\x14\0\0\0TEST" + vtable + struct.pack("<i", 12) + b"\1"

    assert texts(data) == [
        "offset 20: Node.value is half a union: found type 1 and no value,"
        " expected a type and a value"
    ]


@pytest.mark.parametrize(("levels", "count"), [(63, 0), (64, 1)])
def test_the_value_of_a_union_is_a_level_below_its_table(levels: int, count: int) -> None:
    node = Node(value=Empty())
    for _ in range(levels - 1):
        node = Node(child=node)

    found = texts(encoded(node))

    assert len(found) == count
    assert all("tables are nested too deeply: found more, expected 64 levels" in t for t in found)


def test_a_string_that_is_not_aligned_is_found_once() -> None:
    data = encoded(Node(name="n"))
    at, name = field_at(data, "name"), target_at(data, "name")
    moved = with_u32(data[:name] + b"\0" + data[name:], at, name - at + 1)

    assert texts(moved) == [
        f"offset {name + 1}: Node.name is not aligned: found {name + 1}, expected a multiple of 4"
    ]


def test_what_is_used_too_often_is_said_with_the_limit() -> None:
    data = reused(1000, Node(sizes=[0] * 500))
    (text,) = texts(data)

    limit = 4 * len(data) + (64 << 10)
    assert text.endswith(f"found more, expected at most {limit} bytes visited in all")


# What is aligned -----------------------------------------------------------------------------

SHIFTED = encoded(Node(name="n", numbers=[1], data=b"x", value=Leaf(wide=1)))


def misaligned(at: int, what: str, align: int) -> str:
    return f"offset {at}: {what} is not aligned: found {at}, expected a multiple of {align}"


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (16, [(112, "Node.data", 32)]),
        (8, [(104, "Node.data", 32)]),
        (4, [(100, "Node.data", 32), (84, "Node.numbers", 8), (116, "Leaf.wide", 8)]),
        (
            1,
            [
                (35, "vtable of Node", 2),
                (53, "table Node", 4),
                (73, "Node.name", 4),
                (65, "Node.value", 4),
                (61, "Node.data", 4),
                (57, "Node.numbers", 4),
                (121, "Node.name", 4),
                (93, "Node.data", 4),
                (97, "Node.data", 32),
                (77, "Node.numbers", 4),
                (81, "Node.numbers", 8),
                (101, "vtable of Leaf", 2),
                (109, "table Leaf", 4),
                (113, "Leaf.wide", 8),
            ],
        ),
        (
            7,
            [
                (41, "vtable of Node", 2),
                (59, "table Node", 4),
                (79, "Node.name", 4),
                (71, "Node.value", 4),
                (67, "Node.data", 4),
                (63, "Node.numbers", 4),
                (127, "Node.name", 4),
                (99, "Node.data", 4),
                (103, "Node.data", 32),
                (83, "Node.numbers", 4),
                (87, "Node.numbers", 8),
                (107, "vtable of Leaf", 2),
                (115, "table Leaf", 4),
                (119, "Leaf.wide", 8),
            ],
        ),
    ],
)
def test_all_that_a_shift_leaves_unaligned_is_found(
    by: int, expected: list[tuple[int, str, int]]
) -> None:
    assert texts(shifted(SHIFTED, by)) == [misaligned(*one) for one in expected]


def test_tables_of_one_vtable_are_aligned_or_not_each_for_itself() -> None:
    root = struct.pack("<I4s4HH2xiI", 20, b"TEST", 10, 8, 0, 0, 4, 12, 4)
    children = struct.pack("<4I", 3, 48 - 32, 57 - 36, 65 - 40)
    tables = struct.pack("<HHi5xi4xi", 4, 4, 4, 13, 21)  # at 48, 57 and 65, their vtable at 44

    assert texts(root + children + tables) == [
        misaligned(57, "table Node", 4),
        misaligned(65, "table Node", 4),
    ]


# Where the file ends -------------------------------------------------------------------------


def test_a_vtable_may_be_the_first_bytes_or_the_last_ones() -> None:
    first = struct.pack("<IIi", 8, 0, 8)  # the root offset is a vtable of 8 bytes, too
    last = struct.pack("<I4siHH", 8, b"TEST", -4, 4, 4)

    assert texts(first) == texts(last) == []


def test_a_vtable_of_three_bytes_is_outside() -> None:
    data = struct.pack("<I4siHB", 8, b"TEST", -4, 4, 4)

    assert texts(data) == [
        "offset 8: vtable of Node is outside: found 12, expected a position up to 11"
    ]


def test_a_vector_of_tables_that_ends_with_its_last_table_is_walked_to_it() -> None:
    data = reused(100, Node())
    at = target_at(data, "children") + 4
    child = at + int(struct.unpack_from("<I", data, at)[0])
    last = data[: child + 4]

    assert texts(last) == []
    assert len(texts(with_u32(last, child, 0x7FFFFFFF))) == 1


def test_a_string_without_room_for_its_nul_is_found_in_these_words() -> None:
    data = encoded(Node(name="abcd"))
    end = target_at(data, "name") + 8

    assert texts(data[:end]) == [
        f"offset {end}: NUL of Node.name passes the end: found 0, expected 1 bytes"
    ]


def test_only_the_letters_of_a_string_have_to_be_utf8() -> None:
    assert texts(encoded(Node(name="x" * 200))) == []  # its length, 0xC8, is none


# What is bounded -----------------------------------------------------------------------------


@pytest.mark.parametrize(("levels", "count"), [(64, 0), (65, 1)])
def test_a_table_of_a_vector_is_a_level_below_its_table(levels: int, count: int) -> None:
    node = Node()
    for _ in range(levels - 1):
        node = Node(children=[node])

    assert len(texts(encoded(node))) == count


def used(uses: int, more: bytes = b"", first: int | None = None, last: int | None = None) -> bytes:
    """Return a root with a table of a small vector used so often: 20 bytes a use, 16 are allowed.

    Args:
        uses: How many elements there are.
        more: Further tables, at the end.
        first: Where in `more` the table of the first element is, if there.
        last: The same of the last element.
    """
    table = struct.pack("<iI", 20, 4) + struct.pack("<II", 1, 0)  # sizes: a vector of one
    vtable = struct.pack("<10H", 20, 8, *[0] * 7, 4)
    root = struct.pack("<4HH", 10, 8, 0, 0, 4) + bytes(2) + struct.pack("<iII", 12, 4, uses)
    head = struct.pack("<I4s", 20, b"TEST") + root
    end = len(head) + 4 * uses + len(vtable)
    targets = [end] * uses
    if first is not None:
        targets[0] = end + len(table) + first
    if last is not None:
        targets[-1] = end + len(table) + last
    offsets = (target - (len(head) + 4 * i) for i, target in enumerate(targets))
    return head + struct.pack(f"<{uses}I", *offsets) + vtable + table + more


@pytest.mark.parametrize(("uses", "count"), [(15_000, 0), (16_453, 0), (16_454, 1), (17_500, 1)])
def test_small_vectors_are_counted_with_their_length_and_elements(uses: int, count: int) -> None:
    assert len(texts(used(uses))) == count  # before the last of 16,453 not a byte is left


def test_a_bad_table_counts_as_four_bytes() -> None:
    outside = struct.pack("<i", 2**31 - 1)

    (one,) = texts(used(16_460, outside, first=0))  # as many as there may be with it

    assert ": vtable of Node is outside: " in one
    assert len(texts(used(16_461, outside, first=0))) == 2


def test_a_string_that_uses_the_last_byte_that_may_be_visited_is_still_read() -> None:
    name = struct.pack("<I5s3x", 4, b"abc\xff")
    table = struct.pack("<3H2x", 6, 8, 4) + struct.pack("<iI", 8, 4) + name

    (one,) = texts(used(16_477, table, last=8))

    assert ": Node.name is not UTF-8: " in one
    assert texts(used(16_478, table, last=8)) != [one]


def test_tables_are_counted_also_where_they_hold_nothing_but_tables() -> None:
    chain = Node()
    for _ in range(50):
        chain = Node(child=chain)

    assert len(texts(reused(1000, chain))) == 1


def test_a_bad_table_does_not_use_up_what_sound_ones_may() -> None:
    data = encoded(Node(child=Node(reals=[1.0]), children=[Node(name="n")] * 3))
    child = target_at(data, "child")

    assert texts(put_u16(data, vtable_of(data, child), 7)) == [
        f"offset {vtable_of(data, child)}: vtable of Node has a bad size:"
        " found 7, expected an even size of 4 or more"
    ]
