"""Tries: keys that all point to one layout of 1,000 dimensions.

Stopped by: what a walk visits is counted, up to four times the file and 64 KiB.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle import ptd_schema
from tests.attacks.surgery import findings, found, point_to_first, refusal, root, weights_with
from tests.support import peak


def test_it_is_found_and_refused_not_walked() -> None:
    layout = ptd_schema.TensorLayout(6, [1] * 1000, [0] * 1000)
    names = [ptd_schema.NamedData("k", 0, layout)]
    names += [ptd_schema.NamedData("k", 0) for _ in range(1000)]
    record = ptd_schema.FlatTensor(segments=[ptd_schema.DataSegment()], named_data=names)
    data = weights_with(record)
    point_to_first(data, root(data).named_data)
    what = "tables, vectors or strings are used too often"
    assert found(data)[1] == what
    assert refusal(lambda: cb.load_ptd(bytes(data)))[:2] == (cb.FormatError, what)
    assert peak(lambda: findings(data)) < 1 << 20
