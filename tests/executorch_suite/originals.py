"""ExecuTorch's own serializers, and a way to make sure that they do not run.

Their bodies are exchanged, so that whoever holds them, by whatever name, gets an error; only its
internals still run where a test calls them itself, to look at a result.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

from executorch.devtools.bundled_program import serialize as bundled_program
from executorch.exir._serialize import (
    _flatbuffer,
    _flatbuffer_program,
    _named_data_store,
    _program,
    _serialize,
)
from executorch.extension.flat_tensor.serialize import serialize as flat_tensor

PUBLIC: tuple[FunctionType, ...] = (
    _serialize.serialize_for_executorch,
    _program.serialize_pte_binary,
    _program.deserialize_pte_binary,
    _named_data_store.NamedDataStore.__init__,
    _named_data_store.NamedDataStore.add_named_data,
    flat_tensor.FlatTensorSerializer.__init__,
    flat_tensor.FlatTensorSerializer.serialize,
    flat_tensor.FlatTensorSerializer.deserialize,
    bundled_program.serialize_from_bundled_program_to_flatbuffer,
    bundled_program.deserialize_from_flatbuffer_to_bundled_program,
    bundled_program._bundled_program_schema_to_flatbuffer,
    bundled_program.convert_to_flatbuffer,
    bundled_program.convert_from_flatbuffer,
)
"""What may not run at all."""

INTERNAL: tuple[FunctionType, ...] = (
    _flatbuffer_program._program_to_flatbuffer,
    _flatbuffer_program._flatbuffer_to_program,
    _flatbuffer._flatc_compile,
    _flatbuffer._flatc_decompile,
)
"""What runs only for a test, or a backend, that calls it or its neighbours in these modules."""

INTERNAL_FILES = {module.__file__ for module in (_flatbuffer, _flatbuffer_program, flat_tensor)} | {
    __file__
}

CALLS: Counter[str] = Counter()
"""How often tests called internals, by name."""


class OriginalCalledError(BaseException):
    """One of ExecuTorch's own serializers was called; no `except Exception` may hide it."""


_originals: dict[str, Callable[..., Any] | None] = {}


@contextlib.contextmanager
def forbidden() -> Iterator[None]:
    """Make ExecuTorch's own serializers raise while the block runs."""
    codes: list[tuple[FunctionType, CodeType]] = []
    for function in PUBLIC + INTERNAL:
        codes.append((function, function.__code__))
        _exchange(function, may_run=function in INTERNAL)
    try:
        yield
    finally:
        for function, code in codes:
            function.__code__ = code


def _exchange(function: FunctionType, *, may_run: bool) -> None:
    name = f"{function.__module__}.{function.__qualname__}"
    _originals[name] = _copied(function) if may_run else None
    function.__code__ = _stand_in.__code__.replace(co_name=name)


def _stand_in(*args: Any, **kwargs: Any) -> Any:
    # Its code runs with the globals of the function whose place it takes.
    from tests.executorch_suite.originals import instead_of_original

    return instead_of_original(args, kwargs)


def _copied(function: FunctionType) -> Callable[..., Any]:
    copied = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def instead_of_original(args: Any, kwargs: Any) -> Any:
    """Run an original for a test that asked for it, or raise."""
    frame = sys._getframe(1)
    name = frame.f_code.co_name
    original = _originals[name]
    if original is None or not _may_call(frame):
        raise OriginalCalledError(name)
    CALLS[original.__name__] += 1
    return original(*args, **kwargs)


def _may_call(frame: FrameType | None) -> bool:
    """Tell whether a test calls, or a backend that makes its own payload with flatc.

    Nothing but the internals themselves may stand between.
    """
    while frame is not None and frame.f_code.co_filename in INTERNAL_FILES:
        frame = frame.f_back
    if frame is None:
        return False
    folders = os.path.dirname(frame.f_code.co_filename).split(os.sep)
    return folders[-1] in ("test", "tests") or "backends" in folders
