"""One pass over ranges: what each look sees."""

from __future__ import annotations

import pytest

from cordbundle.chunks import STEP
from cordbundle.cord import Cord, Fill
from cordbundle.digest import xxh3_128
from cordbundle.scan import DigestOf, Range, Zeros, scan


def cord_with(size: int, *places: int) -> Cord:
    """Return zeros, with a byte of the number of each place in it."""
    cord, end = Cord(), 0
    for number, place in enumerate(places, 1):
        cord += Cord.of(Fill(place - end)) + Cord(bytes([number]))
        end = place + 1
    return cord + Cord.of(Fill(size - end))


def test_the_first_byte_that_is_not_zero_is_kept_though_others_follow_in_later_blocks() -> None:
    zeros = Zeros()

    scan(cord_with(3 * STEP, 7, STEP + 3, 2 * STEP + 1), [Range(2, 3 * STEP, zeros)])

    assert zeros.found == (5, 1)


def test_a_byte_in_a_later_block_is_found_at_its_place_in_the_range() -> None:
    zeros = Zeros()

    scan(cord_with(3 * STEP, 2 * STEP + 1), [Range(2, 3 * STEP, zeros)])

    assert zeros.found == (2 * STEP - 1, 1)


def test_a_look_sees_its_own_ranges_and_zeros_in_place_of_what_it_is_not_to_see() -> None:
    digest, zeros = DigestOf(), Zeros()
    ranges = [
        Range(0, 2, digest),
        Range(2, 4, digest, as_zeros=True),
        Range(4, 6, digest),
        Range(7, 9, zeros),
    ]

    scan(Cord(b"abcdef!\0\0!"), ranges)

    assert digest.value == xxh3_128([b"ab\0\0ef"])
    assert zeros.found is None


@pytest.mark.parametrize("byte", range(1, 256))
def test_every_byte_but_zero_is_told_from_zero(byte: int) -> None:
    zeros = Zeros()

    scan(Cord(bytes([0, 0, byte, 0])), [Range(0, 4, zeros)])

    assert zeros.found == (2, byte)


def test_empty_ranges_are_finished_and_hide_none_behind_them() -> None:
    first, middle, last = DigestOf(), DigestOf(), DigestOf()

    scan(Cord(b"abcdef"), [Range(0, 0, first), Range(1, 3, middle), Range(6, 6, last)])

    assert [one.value for one in (first, middle, last)] == [
        xxh3_128([b""]),
        xxh3_128([b"bc"]),
        xxh3_128([b""]),
    ]


def test_a_digest_is_empty_until_its_range_has_passed() -> None:
    digest = DigestOf()
    digest.update(memoryview(b"abc"))

    assert digest.value == b""


def test_a_look_is_shown_bytes_alone_and_finished_behind_its_last_range() -> None:
    class Told:
        def __init__(self) -> None:
            self.runs: list[bytes] = []

        def update(self, run: memoryview) -> None:
            self.runs.append(bytes(run))

        def finish(self) -> None:
            self.runs.append(b"end")

    one, other = Told(), Told()

    scan(
        Cord(b"abcdef"), [Range(0, 2, one), Range(3, 3, one), Range(4, 5, one), Range(5, 6, other)]
    )

    assert one.runs == [b"ab", b"e", b"end"]
    assert other.runs == [b"f", b"end"]


@pytest.mark.parametrize(
    ("ranges", "total"),
    [
        ([(STEP, STEP + 10), (STEP + 20, STEP + 30)], 30),
        ([(0, 1), (STEP, STEP + 1)], STEP + 1),
        ([(0, 1), (STEP + 1, STEP + 2)], 2),
    ],
)
def test_ranges_less_than_a_step_apart_are_read_together(
    ranges: list[tuple[int, int]], total: int
) -> None:
    calls: list[tuple[int, int]] = []
    parts = [Range(start, stop, Zeros()) for start, stop in ranges]

    scan(cord_with(2 * STEP), parts, lambda *done: calls.append(done))

    assert calls == [(0, total), (total, total)]
