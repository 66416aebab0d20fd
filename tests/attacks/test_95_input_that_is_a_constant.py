"""Tries: an input that is a constant, which the runtime would overwrite in the file.

Stopped by: inputs have no data of their own in the file, unless memory is planned for them.
"""

from __future__ import annotations

from typing import Any

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, plan, program


def test_it_is_found() -> None:
    data = program(lambda plan: setattr(plan, "inputs", [3]))
    what = "method 'forward': inputs: constant"
    assert found(data) == (position_of(plan(data)), what, "a tensor that can be set", "value 3")


@pytest.mark.parametrize("location", [0, 1])
def test_external_data_is_found_too(location: int) -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        tensor: Any = (plan.values or ())[0].val
        tensor.allocation_info = None
        tensor.extra_tensor_info = schema.ExtraTensorInfo(0, "key", location)

    assert len(findings(program(change))) == location
