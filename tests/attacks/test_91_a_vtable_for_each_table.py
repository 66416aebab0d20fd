"""Tries: methods of 8 bytes that each have a vtable of their own, for what a reader keeps of each.

Stopped by: what vtables say is kept of 4,096 at most.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

import cordbundle as cb
from tests.support import peak

COUNT = 20_000
WORD = 0x40004  # a vtable without fields, and where it stands, as seen from its table


def made() -> bytes:
    """Return a program that is filled with one word: at each there is a table, and a vtable."""
    head = struct.pack("<I4s4HiII", 16, b"ET12", 8, 12, 4, 8, 8, 0, 4)
    start = len(head) + 4 + 4 * COUNT
    offset = start + WORD - len(head) - 4  # the same for all, as both are of four bytes
    vector = struct.pack(f"<I{COUNT}I", COUNT, *[offset] * COUNT)
    return head + vector + struct.pack("<I", WORD) * (WORD // 4 + COUNT + 1)


@pytest.mark.parametrize("ask", [lambda file: file.verify(), lambda file: file.program()])
def test_memory_goes_with_the_file(ask: Callable[[cb.PteFile], object]) -> None:
    data = made()
    with cb.open(data) as file:
        assert isinstance(file, cb.PteFile)
        assert peak(lambda: ask(file)) < 16 * len(data)


def test_each_is_read() -> None:
    with cb.open(made()) as file:
        assert isinstance(file, cb.PteFile)
        plans = file.program().execution_plan or ()
        assert len(plans) == COUNT
        assert {plan.name for plan in plans} == {None}
