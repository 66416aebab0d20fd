"""Tries: two external tensors of one name, the second of which is larger than the data.

Stopped by: no tensor of a name has more bytes than the first one of it.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, metadata, value, whole_plan
from tests.support import tensor


def external(size: int, name: str) -> schema.EValue:
    return schema.EValue(tensor([size], extra_tensor_info=schema.ExtraTensorInfo(0, name, 1)))


@pytest.mark.parametrize("sizes", [(4, 5), (4, 4), (5, 4)])
def test_it_is_found(sizes: tuple[int, int]) -> None:
    values = [external(sizes[0], "w"), external(9, "x"), external(sizes[1], "w")]
    data = metadata(schema.Program(execution_plan=[whole_plan(values=values)]))
    what = "value 2 of method 'f': external data 'w' is of a shorter tensor too"
    expected = [(position_of(value(data, 2)), what, "20 bytes", "16")]
    assert findings(data) == (expected if sizes == (4, 5) else [])
