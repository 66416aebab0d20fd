"""Tries: named data whose key is missing, which the runtime follows unasked.

Stopped by: every blob has a key.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from tests.attacks.surgery import found, metadata, whole_plan


@pytest.mark.parametrize(("key", "actual"), [(None, "none"), ("", "''")])
def test_it_is_found(key: str | None, actual: str) -> None:
    record = schema.Program(
        execution_plan=[whole_plan()],
        segments=[schema.DataSegment()],
        named_data=[schema.NamedData(key, 0)],
    )
    assert found(metadata(record))[1:] == ("named data without a key", "text", actual)
