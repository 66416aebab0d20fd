"""A pytest plugin that runs ExecuTorch's own tests on ExecuTorch, and what they serialize on both.

Whatever is serialized or read anywhere in these tests is so by cordbundle first, from equal
arguments. How the two compare is written at the end to the file that `CORDBUNDLE_SUITE_CALLS`
names: counts by function and outcome, and the tests with other bytes.
"""

from __future__ import annotations

import copy
import functools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from executorch.devtools.bundled_program import serialize as bundled_program
from executorch.exir._serialize import _program, _serialize
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

import cordbundle.executorch as ours

OUTCOMES: Counter[str] = Counter()
DIFFERENT: set[str] = set()


def _plain(result: Any) -> Any:
    """Return a result as values of which equal ones mean equal bytes."""
    if isinstance(result, tuple):
        pte, ptd_files = result
        return bytes(pte), {tag: bytes(cord) for tag, cord in ptd_files.items()}
    return bytes(result) if hasattr(result, "write_to_file") else result


def _compared(theirs: Callable[..., Any], mine: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def compared(*args: Any, **kwargs: Any) -> Any:
        found: Any = None
        error: Exception | None = None
        try:
            # From a copy, since some serializers that tests hand in note how they are called.
            found = _plain(mine(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
        except Exception as raised:  # looked at below
            error = raised
        try:
            expected = theirs(*args, **kwargs)
        except Exception:
            OUTCOMES[f"{theirs.__name__}: {'one raises' if error is None else 'both raise'}"] += 1
            raise
        if error is not None:
            raise error
        same = found == _plain(expected)
        OUTCOMES[f"{theirs.__name__}: {'same' if same else 'different'}"] += 1
        if not same:
            DIFFERENT.add(os.environ["PYTEST_CURRENT_TEST"].split(" ")[0].rpartition(":")[2])
        return expected

    return compared


def pytest_configure(config: pytest.Config) -> None:
    """Put both in the place of ExecuTorch's alone, wherever a loaded module holds it."""
    compared = {
        id(getattr(module, name)): _compared(getattr(module, name), getattr(ours, name))
        for module, name in (
            (_serialize, "serialize_for_executorch"),
            (_program, "serialize_pte_binary"),
            (_program, "deserialize_pte_binary"),
            (bundled_program, "serialize_from_bundled_program_to_flatbuffer"),
            (bundled_program, "deserialize_from_flatbuffer_to_bundled_program"),
        )
    }
    for key, module in list(sys.modules.items()):
        if key.startswith("executorch."):
            for name, value in list(vars(module).items()):
                if id(value) in compared:
                    setattr(module, name, compared[id(value)])
    for name in ("serialize", "deserialize"):

        def mine(self: Any, data: Any, *, name: str = name) -> Any:
            return getattr(ours.FlatTensorSerializer(self.config), name)(data)

        setattr(FlatTensorSerializer, name, _compared(getattr(FlatTensorSerializer, name), mine))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes."""
    with open(os.environ["CORDBUNDLE_SUITE_CALLS"], "w", encoding="utf-8") as file:
        json.dump({"outcomes": OUTCOMES, "different": sorted(DIFFERENT)}, file, indent=1)
