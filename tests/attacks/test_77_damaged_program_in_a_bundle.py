"""Tries: a bundle whose program has an index out of range.

Stopped by: the program is checked as a file of its own; offsets are those in the bundle.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import (
    bundle,
    bundled_program,
    found,
    plan,
    put_bytes,
    put_element,
    read,
)


def test_it_is_found_at_its_place() -> None:
    data, inner = bundle(), bundled_program()
    place = read(data).program_offset
    view = plan(inner)
    put_element(inner, view, "inputs", 0, 9)
    put_bytes(data, place, bytes(inner))
    what = "program: method 'forward': inputs: index of a value"
    assert found(data) == (place + position_of(view), what, "an index below 9", "9")
