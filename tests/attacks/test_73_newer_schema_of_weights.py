"""Tries: weights of a schema version that is not known.

Stopped by: the version is read first.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle import ptd_schema
from tests.attacks.surgery import read, refusal, weights_with


def test_it_is_refused() -> None:
    data = weights_with(ptd_schema.FlatTensor(version=1, segments=[], named_data=[]))
    expected = (cb.UnsupportedVersionError, "newer schema version", None, "at most 0", "1")
    assert refusal(lambda: read(data)) == expected
