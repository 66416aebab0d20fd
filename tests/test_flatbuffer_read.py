"""Lazy reading and whole decoding: what a file holds, and a clear refusal of what it may not."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cordbundle.cord import Cord
from cordbundle.errors import FormatError, TruncatedError
from cordbundle.flatbuffer import (
    ByteRange,
    Reader,
    VectorView,
    byte_range,
    decode,
    encode,
    position_of,
)
from cordbundle.source import SourceFile
from tests.flatbuffer_samples import Empty, Leaf, Node, reference, with_u32

FULL = Node(
    name="naïves",
    child=Node(name="inner"),
    children=[Node(name="a"), Node(), Node(name="b", data=b"xyz")],
    value=Leaf(-1, -(2**63), True, -0.5, 2**32 - 1, 0, 2**64 - 1),
    data=b"payload",
    numbers=[-(2**63), 2**63 - 1],
    sizes=[1, -1],
    order=[0, 255],
    flags=[True, False],
    reals=[float("inf"), 1.5],
    rest=b"",
)


def encoded(root: object) -> bytes:
    """Encode and join."""
    return bytes(encode(root, b"TEST").cord)


def reader(root: object) -> Reader:
    """Encode and read again."""
    return Reader(encoded(root), name="some.bin")


def test_a_view_has_the_attributes_of_its_dataclass() -> None:
    view = reader(FULL).root(Node)

    assert isinstance(view, Node)
    assert view.name == "naïves"
    assert view.child is not None
    assert view.child.name == "inner"
    assert view.data == b"payload"
    assert view.rest == b""
    assert view.numbers == [-(2**63), 2**63 - 1]
    assert view.order == [0, 255]
    assert view.flags == [True, False]
    assert view.reals == [float("inf"), 1.5]
    assert [node.name for node in view.children or ()] == ["a", None, "b"]


def test_the_member_of_a_union_is_told_by_its_class() -> None:
    leaf = reader(Node(value=Leaf(small=7))).root(Node).value
    empty = reader(Node(value=Empty())).root(Node).value

    assert isinstance(leaf, Leaf)
    assert (leaf.small, leaf.level, leaf.flag) == (7, 3, False)
    assert isinstance(empty, Empty)
    assert reader(Node()).root(Node).value is None


def test_absent_fields_read_as_their_default() -> None:
    view = reader(Leaf()).root(Leaf)

    assert (view.small, view.level, view.real, view.flag) == (0, 3, 0.0, False)
    assert reader(Node()).root(Node).numbers is None


def test_a_vector_of_tables_is_a_sequence_read_on_demand() -> None:
    children = reader(FULL).root(Node).children

    assert isinstance(children, VectorView)
    assert len(children) == 3
    assert children[-1].name == "b"
    assert [node.name for node in children[0:3:2]] == ["a", "b"]
    with pytest.raises(IndexError, match="index 3 of a vector of 3"):
        children[3]


def test_vectors_compare_element_by_element() -> None:
    sizes: Any = reader(Node(sizes=list(range(3000)))).root(Node).sizes

    assert sizes == list(range(3000))
    assert sizes == range(3000)
    assert sizes != list(range(2999))
    assert sizes != [*range(2999), 0]
    assert sizes != 3


def test_a_byte_vector_is_a_cord_over_the_source() -> None:
    payload = bytes(5000)
    view = Reader(encode(Node(data=payload), b"TEST").cord).root(Node)

    assert isinstance(view.data, Cord)
    assert [chunk.obj for chunk in view.data.chunks()] == [payload]
    assert next(view.data.chunks()).obj is payload


def test_the_place_of_a_byte_vector_counts_from_the_start_of_the_file() -> None:
    data = encoded(FULL)
    view = Reader(data, base=1000).root(Node)

    place = byte_range(view, "data")

    assert place == ByteRange(1000 + data.index(b"payload"), 7)
    assert byte_range(view.child, "data") is None
    assert position_of(view) == 1000 + struct.unpack_from("<I", data)[0]


def test_what_is_no_view_has_no_place_and_cannot_be_decoded() -> None:
    for ask in (position_of, decode, lambda node: byte_range(node, "data")):
        with pytest.raises(TypeError, match="Node is no view"):
            ask(Node())


def test_a_view_cannot_be_changed() -> None:
    view = reader(FULL).root(Node)

    with pytest.raises(AttributeError):
        view.name = "other"


def test_a_view_names_its_table_and_its_offset() -> None:
    assert repr(reader(Leaf()).root(Leaf)) == "<Leaf at offset 12>"


def test_decoding_gives_back_what_was_encoded() -> None:
    assert decode(reader(FULL).root(Node)) == FULL


def test_what_the_flatbuffers_package_writes_is_read() -> None:
    assert decode(Reader(reference(FULL, b"TEST")).root(Node)) == FULL


def test_decoding_by_reference_copies_no_byte_vector() -> None:
    payload = bytes(5000)
    view = Reader(encode(Node(data=payload), b"TEST").cord).root(Node)

    held = decode(view, by_reference=True).data
    joined = decode(view).data

    assert isinstance(held, Cord)
    assert next(held.chunks()).obj is payload
    assert joined == payload
    assert isinstance(joined, bytes)


def test_a_part_of_a_file_is_decoded_alone() -> None:
    children = reader(FULL).root(Node).children
    assert children is not None

    assert decode(children[2]) == Node(name="b", data=b"xyz")


def test_decoding_keeps_the_source_no_longer_than_its_result() -> None:
    source = Cord(encoded(FULL))
    view_reader = Reader(source)
    gone = weakref.ref(view_reader)
    gc.disable()
    try:
        decode(view_reader.root(Node))
        del view_reader

        assert gone() is None
    finally:
        gc.enable()


def test_decoding_leaves_the_garbage_collector_as_it_was() -> None:
    decode(reader(FULL).root(Node))
    assert gc.isenabled()
    gc.disable()
    try:
        decode(reader(FULL).root(Node))
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the sizes of all reads from files."""
    sizes: list[int] = []
    read_into = SourceFile.read_into

    def count(self: SourceFile, view: memoryview, offset: int) -> None:
        sizes.append(view.nbytes)
        read_into(self, view, offset)

    monkeypatch.setattr(SourceFile, "read_into", count)
    return sizes


def test_a_large_file_is_read_in_pages_where_it_is_touched(
    tmp_path: Path, counted: list[int]
) -> None:
    path = tmp_path / "large"
    root = Node(name="root", data=bytes(5 << 20), children=[Node(name="x", rest=b"r" * (5 << 20))])
    data = encoded(root)
    path.write_bytes(data)

    view = Reader(Cord.from_file(path)).root(Node)

    assert view.name == "root"
    assert [(node.name, byte_range(node, "rest")) for node in view.children or ()] == [
        ("x", ByteRange(data.index(b"rr"), 5 << 20))
    ]
    assert sum(counted) <= 4 * 65536


def test_pages_and_memory_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "large"
    root = Node(
        data=bytes(17 << 20),
        children=[Node(name="x" * 70000, sizes=list(range(40000))), FULL],
    )
    data = encoded(root)
    path.write_bytes(data)

    paged = Reader(Cord.from_file(path)).root(Node)

    assert decode(paged) == root == decode(Reader(data).root(Node))
    assert paged.children is not None
    assert paged.children[0].sizes == list(range(40000))


def test_no_more_than_sixteen_mebibytes_of_pages_are_kept(
    tmp_path: Path, counted: list[int]
) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(17 << 20)
    source = Reader(Cord.from_file(path))

    for page in range(257):
        source.read(page << 16, 1)
    source.read(1 << 16, 1)
    first = len(counted)
    source.read(0, 1)
    second = len(counted)
    source.read(1 << 16, 1)  # used since page 2 was, so that page 2 had to go

    assert (first, second, len(counted)) == (257, 258, 258)


def test_threads_may_share_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "large"
    children = [Node(name=f"n{number}", rest=bytes(60000)) for number in range(400)]
    path.write_bytes(encoded(Node(children=children)))
    view = Reader(Cord.from_file(path)).root(Node)

    def names(_: int) -> list[str | None]:
        return [node.name for node in view.children or ()]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(names, range(8)))

    assert found == [[f"n{number}" for number in range(400)]] * 8


def read_lazily(data: bytes) -> object:
    """Touch the fields that the damaged files are about."""
    view = Reader(data, name="some.bin", base=100).root(Node)
    touched: list[Any] = [view.name, view.child, view.value, view.data, list(view.numbers or ())]
    return [touched, [node.name for node in view.children or ()]]


def decode_whole(data: bytes) -> object:
    """Decode everything."""
    return decode(Reader(data, name="some.bin", base=100).root(Node))


def field_at(data: bytes, name: str) -> int:
    """Return where the offset of a root's field is."""
    view: Any = Reader(data).root(Node)
    return int(view._at + view._offsets[view._table.field(name).slot])


def damaged(name: str, value: int) -> bytes:
    """Return a sound file with the offset of one field replaced."""
    data = encoded(Node(name="n", children=[Node()], data=b"d", numbers=[1], value=Leaf(small=1)))
    return with_u32(data, field_at(data, name), value)


def target_at(data: bytes, name: str) -> int:
    """Return where the offset of a root's field points."""
    at = field_at(data, name)
    return at + int(struct.unpack_from("<I", data, at)[0])


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
@pytest.mark.parametrize("name", ["name", "children", "data", "numbers", "value"])
@pytest.mark.parametrize("value", [0, 2**31, 2**32 - 1])
def test_an_offset_of_zero_or_past_the_end_is_refused_with_its_place(
    read: Callable[[bytes], object], name: str, value: int
) -> None:
    data = damaged(name, value)

    with pytest.raises(FormatError) as caught:
        read(data)

    assert caught.value.source == "some.bin"
    assert caught.value.offset is not None
    assert caught.value.offset >= 100


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (0, r"offset is zero at offset 100: found 0, expected 1 or more"),
        (255, r"offset points past the end at offset 100: found 255, expected at most 4"),
        (2, r"vtable of Node is outside at offset 102"),
    ],
)
def test_a_root_offset_that_points_nowhere_is_refused(offset: int, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        Reader(struct.pack("<I", offset) + b"TEST", base=100).root(Node)


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
@pytest.mark.parametrize("name", ["name", "children", "data", "numbers"])
def test_a_vector_longer_than_the_file_is_refused_without_reading_it(
    read: Callable[[bytes], object], name: str
) -> None:
    data = encoded(Node(name="n", children=[Node()], data=b"d", numbers=[1]))
    at = target_at(data, name)

    with pytest.raises(TruncatedError, match=f"Node.{name} passes the end at offset {100 + at}"):
        read(with_u32(data, at, 2**32 - 1))


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
def test_strings_end_with_nul_and_are_utf8(read: Callable[[bytes], object]) -> None:
    data = encoded(Node(name="name"))
    at = data.index(b"name")
    no_nul = data[: at + 4] + b"!" + data[at + 5 :]
    no_text = data[: at + 1] + b"\xff" + data[at + 2 :]

    with pytest.raises(FormatError, match=f"NUL at offset {104 + at}: found 33, expected 0"):
        read(no_nul)
    with pytest.raises(FormatError, match=f"Node.name is not UTF-8 at offset {101 + at}"):
        read(no_text)


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
def test_an_unknown_tag_of_a_union_is_refused(read: Callable[[bytes], object]) -> None:
    data = encoded(Node(value=Leaf(small=1)))
    view: Any = Reader(data).root(Node)
    at = view._at + view._offsets[3]

    with pytest.raises(FormatError, match=r"unknown union tag at .*found 3, expected 0 to 2"):
        read(data[:at] + b"\3" + data[at + 1 :])


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0, 2, "bad size .*found 2"),
        (0, 7, "bad size .*found 7"),
        (0, 60000, "passes the end .*expected 60000 bytes"),
        (4, 3, "Node.name overlaps what stands before it .*expected 4 or more"),
        (4, 60000, "table Node passes the end"),
    ],
)
def test_a_bad_vtable_is_refused(
    read: Callable[[bytes], object], offset: int, value: int, text: str
) -> None:
    data = bytearray(encoded(Node(name="n")))
    (root,) = struct.unpack_from("<I", data)
    vtable = root - struct.unpack_from("<i", data, root)[0]
    struct.pack_into("<H", data, vtable + offset, value)

    with pytest.raises(FormatError, match=text):
        read(bytes(data))


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
@pytest.mark.parametrize("back", [2**31 - 1, -(2**31)])
def test_a_vtable_outside_the_file_is_refused(read: Callable[[bytes], object], back: int) -> None:
    data = encoded(Node(name="n"))
    (root,) = struct.unpack_from("<I", data)

    with pytest.raises(FormatError, match="vtable of Node is outside"):
        read(with_u32(data, root, back & 0xFFFFFFFF))


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
def test_an_offset_of_zero_in_a_vector_of_tables_is_refused(
    read: Callable[[bytes], object],
) -> None:
    data = encoded(Node(children=[Node(), Node()]))

    with pytest.raises(FormatError, match=r"offset.* is zero"):
        read(with_u32(data, target_at(data, "children") + 8, 0))


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
def test_a_table_cut_by_the_end_is_refused_though_its_vtable_is_known(
    read: Callable[[bytes], object],
) -> None:
    data = encoded(Node(children=[Node(name="a"), Node(name="b")]))
    first = target_at(data, "children") + 4
    child = first + int(struct.unpack_from("<I", data, first)[0])
    vtable = child - int(struct.unpack_from("<i", data, child)[0])
    data = with_u32(data, first + 4, len(data) - first - 4)
    data += struct.pack("<i", len(data) - vtable)

    with pytest.raises(TruncatedError, match=f"table Node passes the end at .* {len(data) + 96}"):
        read(data)


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
def test_half_a_union_is_refused(read: Callable[[bytes], object]) -> None:
    data = bytearray(encoded(Node(value=Leaf(small=1))))
    (root,) = struct.unpack_from("<I", data)
    vtable = root - struct.unpack_from("<i", data, root)[0]
    struct.pack_into("<H", data, vtable + 4 + 2 * 4, 0)

    with pytest.raises(FormatError, match=r"half a union .*found type 2 and no value"):
        read(bytes(data))


@pytest.mark.parametrize("read", [read_lazily, decode_whole])
def test_values_that_overlap_are_refused(read: Callable[[bytes], object]) -> None:
    data = bytearray(encoded(Node(name="n", child=Node())))
    (root,) = struct.unpack_from("<I", data)
    vtable = root - struct.unpack_from("<i", data, root)[0]
    struct.pack_into("<HH", data, vtable + 4, 4, 6)

    with pytest.raises(FormatError, match=r"Node.child overlaps .*\(4, 6\), expected 8 or more"):
        read(bytes(data))


def test_a_table_may_share_a_vtable_that_gives_a_smaller_size() -> None:
    data = bytearray(encoded(Leaf(wide=5)))
    (root,) = struct.unpack_from("<I", data)
    vtable = root - struct.unpack_from("<i", data, root)[0]
    struct.pack_into("<H", data, vtable + 2, 8)

    assert decode(Reader(bytes(data)).root(Leaf)) == Leaf(wide=5)


def test_fields_of_a_newer_schema_are_passed_over() -> None:
    data = encoded(Leaf(small=1, huge=9))

    assert decode(Reader(data).root(Empty)) == Empty()


def test_a_file_cut_anywhere_is_refused() -> None:
    data = encoded(FULL)

    for size in range(len(data)):
        with pytest.raises(FormatError):
            decode(Reader(data[:size]).root(Node))


def nested(depth: int) -> Node:
    """Return a node with that many nodes above each other."""
    node = Node()
    for _ in range(depth - 1):
        node = Node(child=node)
    return node


def test_tables_are_nested_up_to_64_levels() -> None:
    decoded = decode(reader(nested(64)).root(Node))

    assert decoded == nested(64)
    with pytest.raises(FormatError, match=r"nested too deeply .*expected at most 64 levels"):
        decode(reader(nested(65)).root(Node))


def test_siblings_are_no_levels() -> None:
    wide = Node(children=[Node(child=Node()) for _ in range(100)])

    assert decode(reader(wide).root(Node)) == wide


def reused(count: int, first: Node) -> bytes:
    """Return a file whose root lists one child many times."""
    data = encoded(Node(children=[first] + [Node()] * (count - 1)))
    at = target_at(data, "children") + 4
    child = at + int(struct.unpack_from("<I", data, at)[0])
    table = b"".join(struct.pack("<I", child - (at + 4 * number)) for number in range(count))
    return data[:at] + table + data[at + len(table) :]


@pytest.mark.parametrize(
    "child",
    [Node(sizes=[0] * 500), Node(name="n" * 2000), Node(value=Leaf(1, 2, True, 0.5, 3, 4, 5))],
    ids=["vector", "string", "table"],
)
def test_a_file_that_uses_one_place_many_times_is_not_walked(child: Node) -> None:
    assert decode(Reader(reused(10, child)).root(Node)).children == [child] * 10
    with pytest.raises(FormatError, match="used too often"):
        decode(Reader(reused(5000, child)).root(Node))
