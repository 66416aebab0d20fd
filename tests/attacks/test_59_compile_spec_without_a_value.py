"""Tries: an option of a delegate without a value, which the runtime follows unasked.

Stopped by: key and value have to be there.
"""

from __future__ import annotations

import pytest

from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import delegate, found, program


@pytest.mark.parametrize("spec", [schema.CompileSpec("key"), schema.CompileSpec(None, b"value")])
def test_it_is_found(spec: schema.CompileSpec) -> None:
    data = program(lambda plan: setattr((plan.delegates or ())[0], "compile_specs", [spec]))
    word = "value" if spec.key else "key"
    what = f"delegate 0 of method 'forward': compile spec without a {word}"
    assert found(data) == (position_of(delegate(data)), what, "a key and a value", "none")
