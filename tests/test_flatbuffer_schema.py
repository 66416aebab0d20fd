"""How a schema is read off its dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from cordbundle.flatbuffer.schema import Far, Kind, reachable, table_of
from tests.flatbuffer_samples import Empty, Leaf, Node


@dataclass
class Loose:
    """A table with a field that no flatbuffer can hold."""

    number: int = 0


@dataclass
class Mixed:
    """A union that holds something else than tables."""

    value: Leaf | str | None = None


@dataclass
class Nested:
    """A vector of vectors."""

    rows: Sequence[Sequence[int]] | None = None


def test_ids_follow_the_order_of_the_fields_and_a_union_takes_two() -> None:
    slots = {field.name: field.slot for field in table_of(Node).fields}

    assert slots == {
        "name": 0,
        "child": 1,
        "children": 2,
        "value": 4,
        "data": 5,
        "numbers": 6,
        "sizes": 7,
        "order": 8,
        "flags": 9,
        "reals": 10,
        "rest": 11,
    }
    assert [slot.is_tag for slot in table_of(Node).slots].index(True) == 3


def test_annotations_say_what_a_field_holds() -> None:
    kinds = {field.name: field.kind for field in table_of(Node).fields}

    assert kinds == {
        "name": Kind.STRING,
        "child": Kind.TABLE,
        "children": Kind.TABLES,
        "value": Kind.UNION,
        "data": Kind.BYTES,
        "numbers": Kind.SCALARS,
        "sizes": Kind.SCALARS,
        "order": Kind.SCALARS,
        "flags": Kind.SCALARS,
        "reals": Kind.SCALARS,
        "rest": Kind.BYTES,
    }


def test_members_of_a_union_keep_their_order() -> None:
    assert table_of(Node).field("value").members == (Empty, Leaf)


def test_tables_that_hold_themselves_are_listed_once() -> None:
    assert [table.cls for table in reachable(Node)] == [Node, Empty, Leaf]


def test_a_description_is_compiled_once() -> None:
    assert table_of(Leaf) is table_of(Leaf)


@pytest.mark.parametrize(
    ("cls", "text"),
    [(Loose, "int.*no table"), (Mixed, "str.*no table"), (Nested, "Sequence.*no table")],
)
def test_what_no_flatbuffer_can_hold_is_refused(cls: type, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        table_of(cls)


def test_an_unknown_field_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="table Leaf has no field nothing"):
        table_of(Leaf).field("nothing")


def test_far_vectors_are_equal_by_key() -> None:
    assert Far(1) == Far(1) != Far(2)
