"""Tries: a segment base 8 TiB behind the metadata, in a sparse file.

Stopped by: padding is never read or held.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.cord import Fill
from tests.attacks.surgery import findings, program, put_header, read
from tests.support import peak


def test_it_is_read_in_little_memory() -> None:
    data = program()
    base = 8 << 40
    put_header(data, segment_base_offset=base)
    whole = cb.Cord(bytes(data[:1128])) + cb.Cord.of(Fill(base - 1128))
    whole.append(bytes(data[1152:]))
    assert findings(whole) == []
    assert bytes(read(whole).named_data["key"]) == b"blob"
    assert peak(lambda: findings(whole)) < 1 << 20
