"""Tries: an offset of a constant behind its segment, so that room - offset wraps.

Stopped by: offsets are compared with the size of the segment, and no difference is negative.
"""

from __future__ import annotations

from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, program, put_element, root, value


def test_it_is_found() -> None:
    data = program()
    table = root(data).constant_segment
    put_element(data, table, "offsets", 1, 2**64 - 8)
    assert sorted(findings(data)) == sorted(
        [
            (
                position_of(table),
                "constants begin after their segment",
                "at most 16",
                f"offset 1 is {2**64 - 8}",
            ),
            (
                position_of(value(data, 3)),
                "value 3 of method 'forward': constant is shorter than its sizes",
                "16 bytes",
                "0",
            ),
        ]
    )
