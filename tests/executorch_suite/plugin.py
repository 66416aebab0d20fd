"""A pytest plugin that runs ExecuTorch's own tests on cordbundle.

It patches before anything is collected and makes ExecuTorch's own serializers raise. At the end
the calls into cordbundle, and those of ExecuTorch's internals by tests of these internals, are
written to the file that `CORDBUNDLE_SUITE_CALLS` names.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections import Counter
from typing import Any

import pytest

from cordbundle.executorch import bundled, flat_tensor, install, named_data, programs
from tests.executorch_suite import originals

CALLS: Counter[str] = Counter()

_stack = contextlib.ExitStack()


def _count(owner: Any, name: str) -> None:
    function = getattr(owner, name)
    label = f"{owner.__name__.rpartition('.')[2]}.{name}"

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        CALLS[label] += 1
        return function(*args, **kwargs)

    setattr(owner, name, counted)


def pytest_configure(config: pytest.Config) -> None:
    """Count, patch and forbid."""
    for owner, names in (
        (programs, ("serialize_for_executorch", "serialize_pte_binary", "deserialize_pte_binary")),
        (named_data.NamedDataStore, ("__init__", "add_named_data", "externalize_pte_data")),
        (flat_tensor.FlatTensorSerializer, ("serialize", "deserialize")),
        (
            bundled,
            (
                "serialize_from_bundled_program_to_flatbuffer",
                "deserialize_from_flatbuffer_to_bundled_program",
            ),
        ),
    ):
        for name in names:
            _count(owner, name)
    install()
    _stack.enter_context(originals.forbidden())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the counts."""
    counts = {"cordbundle": CALLS, "internals": originals.CALLS}
    with open(os.environ["CORDBUNDLE_SUITE_CALLS"], "w", encoding="utf-8") as file:
        json.dump(counts, file, indent=1, sort_keys=True)
