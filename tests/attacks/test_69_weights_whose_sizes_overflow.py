"""Tries: weights with sizes whose product is small again in 64 bits.

Stopped by: the product is exact and has to stay below 2**63.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle import ptd_schema
from tests.attacks.surgery import found, refusal, weights_of


def test_it_is_found_and_refused() -> None:
    layout = ptd_schema.TensorLayout(6, [2**30, 2**30, 4], [0, 1, 2])  # 2**64 bytes and more
    data = weights_of(layout)
    what, room = "sizes of the tensor overflow", f"at most {2**63 - 1} bytes"
    assert found(data)[1:] == (f"key 'k': {what}", room, f"sizes {[2**30, 2**30, 4]}")
    assert refusal(lambda: cb.load_ptd(bytes(data)))[1:4] == (f"key 'k': {what}", None, room)
