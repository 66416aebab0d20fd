"""Tries: a value of a kind that no schema has, to be cast to another.

Stopped by: a tag is compared with the number of members.
"""

from __future__ import annotations

import cordbundle as cb
from tests.attacks.surgery import at, found, methods, plan, program, refusal


def test_it_is_found_and_refused() -> None:
    data = program()
    view = (plan(data).values or ())[0]
    place = at(view, "val", tag=True)
    data[place] = 200
    what = "EValue.val: unknown union tag"
    assert found(data) == (place, what, "0 to 11", "200")
    assert refusal(lambda: methods(data)) == (cb.FormatError, what, place, "0 to 11", "200")
