"""Tries: a list of tensors that come after it, so that the runtime would read what it has not made.

Stopped by: the items of a list of tensors are values before the list.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, metadata, value, whole_plan
from tests.support import tensor


@pytest.mark.parametrize("kind", [schema.TensorList, schema.OptionalTensorList])
def test_it_is_found(kind: type[schema.TensorList | schema.OptionalTensorList]) -> None:
    values = [schema.EValue(it) for it in (tensor([]), kind([0, 2]), tensor([]), kind([2, 0]))]
    data = metadata(schema.Program(execution_plan=[whole_plan(values=values)]))
    what = "value 1 of method 'f': items: index of a value"
    assert findings(data) == [(position_of(value(data, 1)), what, "an index below 1", "2")]
