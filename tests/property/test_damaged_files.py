"""Damaged files of every format: what holds for any damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.damage import DAMAGES, Damage, apply
from tests.fuzz.reading import answers, check_agreement, in_two_pieces, verdict
from tests.fuzz.seeds import own_files

NAMES = sorted(own_files())
WITH_DIGESTS = ["bp08.bpte", "segmented.bpte", "detached.bpte"]

numbers = st.integers(0, 2**32 - 1)
damages = st.lists(st.builds(Damage, st.sampled_from(DAMAGES), numbers, numbers), max_size=3)


@pytest.mark.parametrize("name", NAMES)
def test_files_of_our_own_writers_are_sound_and_read_to_their_end(name: str) -> None:
    data = own_files()[name]

    assert verdict(data) == "sound"
    check_agreement(data)


@settings(max_examples=300)
@given(name=st.sampled_from(NAMES), damages=damages)
def test_only_errors_of_the_tree_come_out_and_the_same_bytes_give_the_same_answers(
    name: str, damages: list[Damage]
) -> None:
    data = apply(own_files()[name], damages)

    assert answers(data) == answers(in_two_pieces(data))


@settings(max_examples=500)
@given(name=st.sampled_from(NAMES), damages=damages)
def test_what_verify_finds_sound_can_be_read_to_its_end(name: str, damages: list[Damage]) -> None:
    data = apply(own_files()[name], damages)

    if verdict(data) == "sound":
        check_agreement(data)


@settings(max_examples=200)
@given(name=st.sampled_from(WITH_DIGESTS), where=numbers, bit=st.integers(0, 7))
def test_any_changed_bit_of_a_bundle_with_digests_is_found(name: str, where: int, bit: int) -> None:
    sound = own_files()[name]

    damaged = apply(sound, [Damage("flip", where % len(sound), bit)])

    assert damaged != sound
    assert verdict(damaged) in ("refused", "findings")
