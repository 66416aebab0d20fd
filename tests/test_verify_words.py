"""The checks of records by themselves: every finding word for word."""

from __future__ import annotations

import pytest

from cordbundle.record_check import Shapes, check_keys, shape_problem, shown


def test_keys_are_told_one_by_one_with_their_places() -> None:
    entries = [("a", 0), (None, 0), ("", 1), ("b\0", 0), ("a", 2), ("a", 0), ("c", 1)]

    found = [str(one) for one in check_keys(entries, 2, lambda number: 100 + number)]

    assert found == [
        "offset 101: named data without a key: found none, expected text",
        "offset 102: named data without a key: found '', expected text",
        "offset 103: key holds NUL: found 'b\\x00', expected text without NUL",
        "offset 104: key is used twice: found 'a', expected unique keys",
        "offset 104: segment of key 'a' does not exist: found 2, expected an index below 2",
        "offset 105: key is used twice: found 'a', expected unique keys",
    ]


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ((6, (2, 3), (1, 0)), None),
        ((6, (), ()), None),
        ((6, (0,) * 16, tuple(range(16))), None),
        ((8, (2,), (0,)), ("unknown scalar type", "one of the schema", "8")),
        ((6, None, (0,)), ("sizes missing", "a vector", "none")),
        ((6, (2,), None), ("dim order missing", "a vector", "none")),
        ((6, (1,) * 17, tuple(range(17))), ("too many dimensions", "at most 16", "17")),
        ((6, (2, -1), (0, 1)), ("negative size", "0 or more", "[2, -1]")),
        (
            (6, (2, 3), (0, 2)),
            ("dim order is no permutation of the dimensions", "each below 2 once", "[0, 2]"),
        ),
        (
            (6, (2,), tuple(range(40))),
            (
                "dim order is no permutation of the dimensions",
                "each below 1 once",
                str(list(range(17))),
            ),
        ),
    ],
)
def test_the_facts_of_a_tensor_are_told_in_these_words(
    facts: tuple[int, tuple[int, ...] | None, tuple[int, ...] | None],
    problem: tuple[str, str, str] | None,
) -> None:
    assert shape_problem(*facts) == problem


def test_bytes_of_a_tensor_are_told_up_to_the_largest_size() -> None:
    shapes = Shapes()
    limit = (2**31 - 1, 2**29, 1)

    assert shapes[6, (2, 3), (0, 1)] == (24, None)
    assert shapes[8, (2,), (0,)] == (None, ("unknown scalar type", "one of the schema", "8"))
    assert shapes[6, limit, (0, 1, 2)] == (4 * (2**31 - 1) * 2**29, None)
    largest = (7, 7, 73, 127, 337, 92737, 649657)
    assert shapes[1, largest, tuple(range(7))] == (2**63 - 1, None)
    nbytes, problem = shapes[6, (2**31 - 1, 2**31 - 1, 2), (0, 1, 2)]
    assert nbytes is None
    assert problem == (
        "sizes of the tensor overflow",
        "at most 9223372036854775807 bytes",
        "sizes [2147483647, 2147483647, 2]",
    )


def test_a_long_name_is_shown_by_its_beginning() -> None:
    assert shown(None) == "None"
    assert shown("k" * 80) == repr("k" * 80)
    assert shown("k" * 81) == repr("k" * 80 + "...")
