"""A Cord against bytes: any sequence of operations, every kind of chunk."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path
from typing import TypeAlias
from unittest import mock

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from cordbundle import chunks as chunks_module
from cordbundle import cord as cord_module
from cordbundle.cord import Cord, Deferred, Digest, Fill

Model: TypeAlias = tuple[Cord, bytes]

STEP = 7
"""Bytes of a block in these tests, so that a few bytes already cross borders of blocks."""

CONTENT = bytes(range(200)) + b"abracadabra" * 5


class Produced(Deferred):
    """A deferred chunk of given bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data = data

    def produce(self) -> memoryview:
        return memoryview(self.data)


# Few letters, so that parts are found, equal and nearly equal often.
words = st.text("ab", max_size=20).map(str.encode) | st.binary(max_size=20)
bounds = st.integers(-60, 60) | st.none()


class CordMachine(RuleBasedStateMachine):
    """Make Cords from Cords; each must go on behaving as its bytes."""

    cords = Bundle("cords")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "content.bin"
        self.path.write_bytes(CONTENT)
        self.small_steps = [
            mock.patch.object(module, "STEP", STEP) for module in (chunks_module, cord_module)
        ]
        for patch in self.small_steps:
            patch.start()
        self.made: list[Model] = []

    def teardown(self) -> None:
        self.made.clear()
        for patch in self.small_steps:
            patch.stop()
        self.folder.cleanup()

    def keep(self, cord: Cord, data: bytes) -> Model:
        self.made.append((cord, data))
        return cord, data

    @initialize(target=cords)
    def empty(self) -> Model:
        return self.keep(Cord(), b"")

    @rule(target=cords, data=words)
    def memory(self, data: bytes) -> Model:
        return self.keep(Cord(bytearray(data)), data)

    @rule(target=cords, offset=st.integers(0, 100), size=st.integers(0, 60))
    def file(self, offset: int, size: int) -> Model:
        cord = Cord.from_file(self.path, offset, size)
        return self.keep(cord, CONTENT[offset : offset + size])

    @rule(target=cords, size=st.integers(0, 30), byte=st.sampled_from([0, 97, 255]))
    def fill(self, size: int, byte: int) -> Model:
        return self.keep(Cord.of(Fill(size, byte)), bytes([byte]) * size)

    @rule(target=cords, data=words)
    def deferred(self, data: bytes) -> Model:
        return self.keep(Cord.of(Produced(data)), data)

    @rule(target=cords, model=cords)
    def digest(self, model: Model) -> Model:
        cord, data = model[0][:], model[1]  # a Cord of its own, which nobody appends to
        return self.keep(Cord.of(Digest(cord)), xxhash.xxh3_128(data).digest())

    @rule(target=cords, first=cords, second=cords)
    def add(self, first: Model, second: Model) -> Model:
        return self.keep(first[0] + second[0], first[1] + second[1])

    @rule(target=cords, first=cords, data=words)
    def add_bytes(self, first: Model, data: bytes) -> Model:
        return self.keep(data + first[0] + data, data + first[1] + data)

    @rule(target=cords, first=cords, second=cords)
    def append(self, first: Model, second: Model) -> Model:
        cord = first[0][:]
        cord.append(second[0])
        return self.keep(cord, first[1] + second[1])

    @rule(target=cords, model=cords)
    def append_itself(self, model: Model) -> Model:
        cord = model[0][:]
        cord.append(cord)
        return self.keep(cord, model[1] * 2)

    @rule(target=cords, model=cords, start=bounds, stop=bounds)
    def slice(self, model: Model, start: int | None, stop: int | None) -> Model:
        return self.keep(model[0][start:stop], model[1][start:stop])

    @rule(model=cords, index=st.integers(-60, 60))
    def index(self, model: Model, index: int) -> None:
        cord, data = model
        if -len(data) <= index < len(data):
            assert cord[index] == data[index]
        else:
            with pytest.raises(IndexError):
                cord[index]

    @rule(first=cords, second=cords)
    def compare(self, first: Model, second: Model) -> None:
        assert (first[0] == second[0]) is (first[1] == second[1])
        assert (first[0] == second[1]) is (first[1] == second[1])
        if first[0].identity() == second[0].identity():
            assert first[1] == second[1]

    @rule(model=cords, other=cords, start=st.integers(-60, 60))
    def find(self, model: Model, other: Model, start: int) -> None:
        wanted = other[1][:12]
        assert model[0].find(wanted, start) == model[1].find(wanted, start)
        assert (wanted in model[0]) is (wanted in model[1])

    @rule(model=cords, start=st.integers(0, 60), size=st.integers(0, 20))
    def find_itself(self, model: Model, start: int, size: int) -> None:
        wanted = model[1][start : start + size]
        assert model[0].find(wanted) == model[1].find(wanted)

    @rule(model=cords, other=cords)
    def startswith(self, model: Model, other: Model) -> None:
        for size in (1, len(other[1])):
            is_one = model[1].startswith(other[1][:size])
            assert model[0].startswith(other[1][:size]) is is_one
            assert model[0].startswith(other[0][:size]) is is_one

    @rule(model=cords, size=st.integers(1, 30))
    def parts(self, model: Model, size: int) -> None:
        cord, data = model
        expected = [data[at : at + size] for at in range(0, len(data), size)]
        assert [bytes(part) for part in cord.parts(size)] == expected

    @rule(model=cords, offset=st.integers(0, 60), size=st.integers(0, 60))
    def readinto(self, model: Model, offset: int, size: int) -> None:
        buffer = bytearray(b"\xee" * size)
        expected = model[1][offset : offset + size]
        assert model[0].readinto(buffer, offset) == len(expected)
        assert buffer == expected.ljust(size, b"\xee")

    @rule(
        model=cords,
        moves=st.lists(
            st.tuples(st.integers(0, 60), st.sampled_from([os.SEEK_SET, os.SEEK_CUR])), max_size=5
        ),
        size=st.integers(0, 30),
    )
    def read(self, model: Model, moves: list[tuple[int, int]], size: int) -> None:
        mine, theirs = model[0].open(), io.BytesIO(model[1])
        for offset, whence in moves:
            assert mine.seek(offset, whence) == theirs.seek(offset, whence)
            assert mine.read(size) == theirs.read(size)
        assert mine.read() == theirs.read()

    @rule(model=cords)
    def flat(self, model: Model) -> None:
        view = model[0].try_flat()
        assert view is None or view == model[1]

    @rule(model=cords)
    def write(self, model: Model) -> None:
        file = io.BytesIO()
        model[0].write_to_file(file)
        assert file.getvalue() == model[1]

    @invariant()
    def the_newest_is_its_bytes(self) -> None:
        for cord, data in self.made[-1:]:
            cord.check_invariants()
            assert len(cord) == len(data)
            assert bool(cord) is bool(data)
            assert bytes(cord) == data
            assert b"".join(cord.chunks()) == data
            assert cord.xxh3_128() == xxhash.xxh3_128(data).digest()
            assert all(run.nbytes > 0 for run in cord.stream())

    @rule()
    def the_others_still_are(self) -> None:
        for cord, data in self.made:
            assert bytes(cord) == data


TestCordIsLikeBytes = CordMachine.TestCase
TestCordIsLikeBytes.settings = settings(max_examples=60, stateful_step_count=40)


@given(pieces=st.lists(st.binary(min_size=1, max_size=4), max_size=30), data=st.data())
def test_where_chunks_are_cut_does_not_show(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    one, other = Cord(), Cord()

    for piece in pieces:
        one.append(piece)
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        other.append(whole[start:stop])

    assert one == other
    assert one.xxh3_128() == other.xxh3_128()


@given(size=st.integers(0, 1 << 62), byte=st.integers(0, 255), data=st.data())
def test_a_huge_fill_is_sliced_like_a_small_one(size: int, byte: int, data: st.DataObject) -> None:
    cord = b"<" + Cord.of(Fill(size, byte)) + b">"
    start = data.draw(st.integers(0, size + 2))
    stop = data.draw(st.integers(start, size + 2))

    part = cord[start:stop]

    part.check_invariants()
    assert len(part) == stop - start
    if part:
        assert part[0] == (ord("<") if start == 0 else ord(">") if start == size + 1 else byte)
