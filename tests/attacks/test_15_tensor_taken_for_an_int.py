"""Tries: a tensor's table read as an integer's through a changed tag.

Stopped by: what refers to the value is told its kind.
"""

from __future__ import annotations

from tests.attacks.surgery import at, findings, plan, program


def test_what_refers_to_it_is_found() -> None:
    data = program()
    data[at((plan(data).values or ())[0], "val", tag=True)] = 3
    assert sorted(what for _, what, _, _ in findings(data)) == [
        "instruction 2 of chain 0 of method 'forward': target of a move: kind of a value",
        "value 4 of method 'forward': items: kind of a value",
        "value 5 of method 'forward': items: kind of a value",
    ]
