"""Tries: weights of a schema before, which has the same identifier and version.

Stopped by: a file is told by the schema in which it is sound, and refused by name.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle import ptd_schema
from cordbundle.ptd_old_schema import OldFlatTensor, TensorMetadata
from tests.attacks.surgery import found, read, refusal, weights_with


def test_it_is_found_and_refused_as_what_it_is() -> None:
    tensors = [TensorMetadata("w", 6, [4], [0], 0, 0)]
    record = OldFlatTensor(0, 16, tensors, [ptd_schema.DataSegment(0, 16)])
    data = weights_with(record, bytes(16))
    place = int.from_bytes(data[:4], "little")
    what = "weights are of an older schema"
    expected = "the schema of ExecuTorch 0.7 or later"
    actual = "that of before, which has the same identifier"
    assert found(data) == (place, what, expected, actual)
    for call in (
        lambda: read(data).keys(),
        lambda: cb.load_ptd(bytes(data)),
        lambda: read(data).segment_ranges,
    ):
        assert refusal(call) == (cb.UnsupportedVersionError, what, place, expected, actual)
