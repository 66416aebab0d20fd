"""Encoding: the bytes of the `flatbuffers` package, payloads by reference, every value checked."""

from __future__ import annotations

import array
import enum
import math
import mmap
import struct
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from cordbundle.cord import Cord, Fill
from cordbundle.errors import LayoutError, TooLargeError
from cordbundle.flatbuffer import LIMIT, Far, FarSlot, Reader, byte_range, decode, encode
from tests.flatbuffer_samples import Empty, Leaf, Node, reference

PACKED = bytes.fromhex(
    "20000000 54455354 0000"  # root offset, identifier, padding
    "1600 1800 1400 0000 1000 0f00 0800 0000 0000 0000 0400"  # vtable of Node
    "16000000 14000000 28000000 000000 02 38000000 64000000"  # order, value, tag, children, name
    "03000000 000102 00"  # order
    "1000 1800 1700 0800 0000 0000 0000 0700"  # vtable of Leaf
    "10000000 000000 04 0200000000000000 00000000 000000 ff"  # level, wide, small
    "02000000 1c000000 04000000"  # children
    "f2ffffff 04000000 01000000 64000600"  # second child, "d", its vtable is that of the first
    "0800 0400"  # and begins here, two bytes before the next table
    "06000000 04000000 01000000 63000000"  # first child, "c"
    "02000000 61620000"  # "ab"
)
"""What the `flatbuffers` package 25.12.19 makes of `sample`."""

PARSED = bytes.fromhex(
    "20000000 54455354 0000"
    "1600 1800 0800 0000 0c00 0700 1000 0000 0000 0000 1400"
    "16000000 000000 02 68000000 34000000 20000000 04000000"
    "03000000 000102 00"
    "1000 1000 0600 0800 0000 0000 0000 0700"
    "10000000 0000 ff 04 0200000000000000"
    "02000000 1c000000 04000000"
    "f2ffffff 04000000 01000000 64000600 0800 0400"
    "06000000 04000000 01000000 63000000"
    "02000000 61620000"
)
"""What flatc 24.3.25 makes of the same as JSON."""


def sample() -> Node:
    """Return a node with a string, a union, vectors of scalars and of tables."""
    return Node(
        name="ab",
        value=Leaf(small=-1, wide=2, level=4),
        order=[0, 1, 2],
        children=[Node(name="c"), Node(name="d")],
    )


def encoded(root: object, **options: Any) -> bytes:
    """Encode and join."""
    return bytes(encode(root, b"TEST", **options).cord)


def test_bytes_are_those_of_the_generated_object_api() -> None:
    assert encoded(sample()) == PACKED == reference(sample(), b"TEST")


def test_flatc_order_lays_the_fields_of_a_table_by_size_then_by_id() -> None:
    assert encoded(sample(), order="flatc") == PARSED


def test_flatc_order_places_the_largest_scalars_last() -> None:
    leaf = Leaf(small=1, wide=2, flag=True, real=4.0, natural=5, level=3, huge=7)

    assert encoded(leaf, order="flatc") == bytes.fromhex(
        "1c000000 54455354 0000 1200 2400 0600 0c00 0700 1400 0800 0000 1c00"
        "12000000 0000 01 01 05000000 0200000000000000 0000000000001040 0700000000000000"
    )


def test_a_file_without_identifier_begins_with_the_root_offset() -> None:
    assert bytes(encode(sample(), None).cord) == reference(sample(), None)


def test_what_equals_its_default_is_left_out_and_what_does_not_is_stored() -> None:
    assert encoded(Leaf()) == encoded(Empty())
    assert encoded(Leaf(level=0)) == reference(Leaf(level=0), b"TEST") != encoded(Leaf())


def test_an_empty_vector_is_stored_and_an_absent_one_is_not() -> None:
    empty = Node(name="", children=[], data=b"", numbers=[], flags=[])

    assert encoded(empty) == reference(empty, b"TEST")
    assert encoded(Node()) == encoded(Empty())


def test_an_empty_vector_of_wide_elements_aligns_the_whole_file() -> None:
    assert encode(Node(numbers=[]), b"TEST").alignment == 8
    assert encode(Node(sizes=[]), b"TEST").alignment == 4


@pytest.mark.parametrize("align", [1, 2, 16, 64, 1024])
def test_the_alignment_of_a_marked_byte_vector_is_the_callers(align: int) -> None:
    node = Node(name="x", data=b"payload", child=Node(data=b"y"))

    result = encode(node, b"TEST", alignments={"data": align})

    assert bytes(result.cord) == reference(node, b"TEST", {"data": align})
    assert result.alignment == max(4, align)
    place = byte_range(Reader(result.cord).root(Node), "data")
    assert place is not None
    assert place.offset % align == 0


@pytest.mark.parametrize("align", [0, -1, 3, 100])
def test_an_alignment_that_is_no_power_of_two_is_refused_by_name(align: int) -> None:
    with pytest.raises(LayoutError, match=f"data alignment is no power of two: found {align}"):
        encode(Node(), b"TEST", alignments={"data": align})


def test_equal_vtables_are_shared_between_tables_of_all_kinds() -> None:
    one, two = encoded(Node(name="a")), encoded(Node(name="a", child=Node(name="a")))

    assert two.count(one[8:16]) == 1
    assert two == reference(Node(name="a", child=Node(name="a")), b"TEST")


def test_large_payloads_are_chunks_by_reference_and_the_rest_is_joined() -> None:
    large, small = bytes(4096), bytes(4095)
    file = Cord(bytearray(10))

    result = encode(Node(data=large, child=Node(data=small, rest=file)), b"TEST")

    chunks = list(result.cord.chunks())
    held = [chunk.obj for chunk in chunks]
    assert len(chunks) == 5
    assert any(item is large for item in held)
    assert any(item is next(file.chunks()).obj for item in held)
    assert bytes(result.cord) == reference(
        Node(data=large, child=Node(data=small, rest=bytes(10))), b"TEST"
    )


@pytest.mark.parametrize(
    "payload",
    [
        bytearray(b"abc"),
        memoryview(b"abc"),
        array.array("B", b"abc"),
        [97, 98, 99],
        (97, 98, 99),
        Cord(b"ab") + b"c",
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_a_byte_vector_may_be_given_as_anything_that_holds_bytes(payload: Any) -> None:
    assert encoded(Node(rest=payload)) == reference(Node(rest=b"abc"), b"TEST")


def test_a_memory_map_is_held_as_long_as_the_result_and_no_longer() -> None:
    with mmap.mmap(-1, 8192) as mapped:
        result = encode(Node(rest=mapped), b"TEST")  # type: ignore[arg-type]
        assert bytes(result.cord) == reference(Node(rest=bytes(8192)), b"TEST")
        with pytest.raises(BufferError):
            mapped.close()

        del result  # without a run of the garbage collector


def test_a_far_vector_leaves_an_offset_of_zero_that_can_be_patched() -> None:
    root = Node(name="x", data=Far(7), child=Node(data=Far(8)))

    result = encode(root, b"TEST")

    data = bytes(result.cord)
    assert [slot.far for slot in result.fars] == [Far(7), Far(8)]
    assert [struct.unpack_from("<I", data, slot.position) for slot in result.fars] == [(0,), (0,)]
    target = len(data)
    vector = result.patched({slot.position: target - slot.position for slot in result.fars})
    vector.append(struct.pack("<I", 3) + b"far")
    view = Reader(vector).root(Node)
    assert view.data == b"far"
    assert view.child is not None
    assert view.child.data == b"far"


def test_patching_copies_only_the_memory_that_holds_the_position() -> None:
    payload = bytes(5000)
    result = encode(Node(data=payload, rest=Far(0)), b"TEST")

    patched = result.patched({0: 99})

    before, after = list(result.cord.chunks()), list(patched.chunks())
    assert bytes(after[0][:4]) == struct.pack("<I", 99)
    assert bytes(before[0][:4]) != bytes(after[0][:4])
    assert [chunk.obj for chunk in before[1:]] == [chunk.obj for chunk in after[1:]]
    assert all(a.obj is b.obj for a, b in zip(before[1:], after[1:], strict=True))


@pytest.mark.parametrize(
    ("position", "value", "error"),
    [(0, 2**32, TooLargeError), (0, -1, LayoutError), (10**6, 1, LayoutError)],
)
def test_patches_are_checked(position: int, value: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode(sample(), b"TEST").patched({position: value})


def test_a_number_is_not_patched_across_the_end_of_the_metadata() -> None:
    result = encode(Node(data=bytes(5000)), b"TEST")
    end = next(result.cord.chunks()).nbytes

    with pytest.raises(LayoutError, match="no such position in the metadata"):
        result.patched({end - 2: 1})


def test_a_payload_is_not_patched() -> None:
    result = encode(Node(data=bytes(5000)), b"TEST")

    with pytest.raises(LayoutError, match="no such position in the metadata"):
        result.patched({200: 1})


def test_far_positions_are_those_of_the_field() -> None:
    result = encode(Node(data=Far(1)), b"TEST")

    assert result.fars == (FarSlot(len(result.cord) - 4, Far(1)),)


@pytest.mark.parametrize(
    ("root", "text"),
    [
        (Leaf(small=128), "Leaf.small is no int8: found 128, expected -128 to 127"),
        (Leaf(natural=-1), "Leaf.natural is no uint32: found -1, expected 0 to 4294967295"),
        (Leaf(wide=2**63), "Leaf.wide is no int64"),
        (Leaf(huge=2**64), "Leaf.huge is no uint64"),
        (Leaf(flag=2), "Leaf.flag is no bool"),  # type: ignore[arg-type]
        (Leaf(small=None), "Leaf.small is no int8: found None"),  # type: ignore[arg-type]
        (Leaf(small=1.5), "Leaf.small is no int8: found 1.5"),  # type: ignore[arg-type]
        (Leaf(small="1"), "Leaf.small is no int8: found '1'"),  # type: ignore[arg-type]
        (Leaf(real="nought"), "Leaf.real is no float64"),  # type: ignore[arg-type]
        (Leaf(real=10**400), "Leaf.real is no float64"),
        (Node(sizes=[1, 2**31]), r"Node.sizes\[1\] is no int32: found 2147483648"),
        (Node(sizes=[2**31] + [1] * 99), r"Node.sizes\[0\] is no int32"),
        (Node(order=[0, 1, 256]), r"Node.order\[2\] is no uint8"),
        (Node(reals=[0.5, None]), r"Node.reals\[1\] is no float64"),  # type: ignore[list-item]
        (Node(flags=[True, 2]), r"Node.flags\[1\] is no bool"),  # type: ignore[list-item]
        (Node(name=5), "Node.name is no string: found int"),  # type: ignore[arg-type]
        (Node(name="a\ud800"), "Node.name holds half of a surrogate pair.* at character 1"),
        (Node(data=5), "Node.data is not bytes-like: found int"),  # type: ignore[arg-type]
        (Node(rest=[1, -1]), r"Node.rest\[1\] is no uint8"),  # type: ignore[arg-type]
        (Node(value=Node()), "Node.value is of a class.*found Node, expected Empty, Leaf"),  # type: ignore[arg-type]
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_value_that_does_not_fit_is_named(root: object, text: str) -> None:
    with pytest.raises(LayoutError, match=text):
        encode(root, b"TEST")


@pytest.mark.parametrize("identifier", [b"", b"BP0", b"BP08X"])
def test_a_file_identifier_has_four_bytes(identifier: bytes) -> None:
    with pytest.raises(LayoutError, match="file identifier is not 4 bytes long"):
        encode(Node(), identifier)


def test_a_flatbuffer_above_two_gibibytes_is_refused_before_anything_is_written() -> None:
    half = Cord.of(Fill(2**30))

    with pytest.raises(TooLargeError, match=f"expected at most {LIMIT}"):
        encode(Node(data=half, rest=half), b"TEST")


def test_a_payload_that_no_length_field_can_count_is_refused() -> None:
    with pytest.raises(TooLargeError, match=f"expected at most {LIMIT}"):
        encode(Node(data=Cord.of(Fill(2**32 + 5))), b"TEST")


def test_a_table_further_than_the_limit_from_its_vtable_is_refused() -> None:
    far_apart = [Node(name="a"), Node(data=Cord.of(Fill(LIMIT - 200))), Node(name="b" * 400)]

    with pytest.raises(TooLargeError, match=f"expected at most {LIMIT}"):
        encode(Node(children=far_apart), b"TEST")


def test_a_payload_just_below_the_limit_is_taken() -> None:
    payload = Cord.of(Fill(LIMIT - 127))

    result = encode(Node(rest=payload), b"TEST")

    assert LIMIT - 127 < len(result.cord) <= LIMIT
    assert Reader(result.cord).root(Node).rest == payload


class Colour(enum.IntEnum):
    """An enumeration, as ExecuTorch's schema has them."""

    RED = 1
    FAR_OUT = 1000


def test_enumerations_count_as_their_numbers_and_are_checked_too() -> None:
    assert encoded(Leaf(small=Colour.RED)) == encoded(Leaf(small=1))
    with pytest.raises(LayoutError, match=r"Leaf\.small is no int8"):
        encode(Leaf(small=Colour.FAR_OUT), b"TEST")


def test_numbers_that_equal_a_whole_number_count_as_it_in_any_order() -> None:
    numpy = pytest.importorskip("numpy")
    whole = encoded(Node(sizes=[1, 2], value=Leaf(small=1, flag=True)))

    odd: list[Any] = [[numpy.int64(1), 2.0], numpy.array([1, 2]), (True, 2)]
    for sizes in odd:
        leaf = Leaf(small=numpy.int8(1), flag=numpy.bool_(True))
        assert encoded(Node(sizes=sizes, value=leaf)) == whole


def test_infinities_may_be_given_as_executorch_spells_them() -> None:
    spelled = Leaf(real="-inf")  # type: ignore[arg-type]

    assert encoded(spelled) == encoded(Leaf(real=float("-inf")))


def test_nan_is_kept() -> None:
    assert math.isnan(decode(Reader(encoded(Leaf(real=float("nan")))).root(Leaf)).real)


def test_negative_zero_is_dropped_like_the_package_does_unless_asked_for() -> None:
    leaf = Leaf(real=-0.0)

    assert encoded(leaf) == reference(leaf, b"TEST") == encoded(Leaf())
    kept = decode(Reader(encoded(leaf, signed_zero=True)).root(Leaf))
    assert struct.pack("<d", kept.real) == struct.pack("<d", -0.0)
    assert encoded(Leaf(), signed_zero=True) == encoded(Leaf())


def test_zeros_of_both_signs_in_one_file_keep_their_sign_in_vectors() -> None:
    root = Node(reals=[0.0], child=Node(reals=[-0.0]))

    assert encoded(root) == reference(root, b"TEST")


def test_objects_with_the_same_attributes_stand_in_and_unions_go_by_class_name() -> None:
    @dataclass
    class Leaf:  # of another module, with the same name
        small: int = -1
        wide: int = 2
        flag: bool = False
        real: float = 0.0
        natural: int = 0
        level: int = 4
        huge: int = 0

    absent = dict.fromkeys(("child", "data", "numbers", "sizes", "flags", "reals", "rest"))
    empty = {**absent, "children": None, "value": None, "order": None}
    other = SimpleNamespace(
        **absent,
        name="ab",
        value=Leaf(),
        order=[0, 1, 2],
        children=[SimpleNamespace(**empty, name="c"), SimpleNamespace(**empty, name="d")],
    )

    assert encoded(other, schema=Node) == PACKED


def test_a_view_is_encoded_without_being_decoded() -> None:
    view = Reader(PACKED).root(Node)

    assert encoded(view, schema=Node) == PACKED


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from tests.test_flatbuffer_encode import encoded, sample;"
        "print(encoded(sample()).hex(), end='')"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert found == {PACKED.hex().encode()}
