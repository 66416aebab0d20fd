"""xxh3-128: known digests, streamed and nested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import xxhash

from cordbundle.cord import Cord, Digest, Fill
from cordbundle.digest import DIGEST_SIZE, Hasher, xxh3_128

GOLDEN = [  # XXH3 128 bits, seed 0, canonical form, as the `xxhsum -H2` tool prints it
    (b"", "99aa06d3014798d86001c324468d497f"),
    (b"a", "a96faf705af16834e6c632b61e964e1f"),
    (b"abc", "06b05ab6733a618578af5f94892f3950"),
]


@pytest.mark.parametrize(("data", "digest"), GOLDEN)
def test_a_digest_is_the_published_one(data: bytes, digest: str) -> None:
    assert xxh3_128([data]).hex() == digest
    assert Cord(data).xxh3_128().hex() == digest
    assert len(bytes.fromhex(digest)) == DIGEST_SIZE == Hasher().digest_size


def test_a_digest_does_not_depend_on_where_the_bytes_are_cut() -> None:
    assert xxh3_128([b"", b"a", b"", b"bc"]).hex() == "06b05ab6733a618578af5f94892f3950"


def test_each_buffer_is_used_before_the_next_is_asked_for() -> None:
    def through_one_buffer() -> Iterator[bytearray]:
        buffer = bytearray(1)
        for byte in b"abc":
            buffer[0] = byte
            yield buffer

    assert xxh3_128(through_one_buffer()).hex() == "06b05ab6733a618578af5f94892f3950"


def test_a_fill_is_digested_as_its_bytes() -> None:
    size = (1 << 20) + 3

    assert Cord.of(Fill(size, 7)).xxh3_128() == xxhash.xxh3_128(b"\x07" * size).digest()


def test_a_digest_chunk_stands_for_the_digest_of_its_cord() -> None:
    cord = Cord.of(Digest(Cord(b"abc")))

    assert len(cord) == 16
    assert bytes(cord).hex() == "06b05ab6733a618578af5f94892f3950"


def test_digest_chunks_nest() -> None:
    inner = Cord(b"head") + Cord.of(Digest(Cord(b"abc")))
    outer = Cord.of(Digest(inner), Digest(inner))

    head = b"head" + bytes.fromhex("06b05ab6733a618578af5f94892f3950")
    assert bytes(outer) == 2 * xxhash.xxh3_128(head).digest()
    assert outer.xxh3_128() == xxhash.xxh3_128(bytes(outer)).digest()


def test_a_digest_chunk_sees_what_its_cord_holds_when_read() -> None:
    covered = Cord(b"a")
    cord = Cord.of(Digest(covered))

    covered.append(b"bc")

    assert bytes(cord).hex() == "06b05ab6733a618578af5f94892f3950"


def test_a_part_of_a_digest_chunk_is_that_part() -> None:
    assert bytes(Cord.of(Digest(Cord(b"abc")))[2:5]).hex() == "5ab673"
