"""Putting this package's functions and classes in the place of ExecuTorch's.

Rules of this file: ExecuTorch's modules bind these names by value, and so do others, so every
loaded module is swept, on the way in and on the way out; it is one switch for the whole process,
counted, behind a lock; the originals are remembered once, and wrapped only where JSON is made.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from functools import cache
from types import CodeType, ModuleType
from typing import Any
from weakref import WeakSet

from cordbundle.executorch import bundled, flat_tensor, named_data, programs
from cordbundle.executorch.blobs import CordBackedData

__all__ = ["install", "patched", "uninstall"]


@cache
def _replacements() -> dict[str, tuple[object, object]]:
    """Return (original, ours) by name; importing the modules that define the originals."""
    from executorch.devtools.bundled_program import serialize as bundled_originals
    from executorch.exir._serialize import _named_data_store, _program, _serialize
    from executorch.extension.flat_tensor.serialize import serialize as flat_originals

    rooms: tuple[tuple[ModuleType, ModuleType, tuple[str, ...]], ...] = (
        (_serialize, programs, ("serialize_for_executorch",)),
        (_program, programs, ("serialize_pte_binary", "deserialize_pte_binary")),
        (_named_data_store, named_data, ("NamedDataStore",)),
        (flat_originals, flat_tensor, ("FlatTensorSerializer",)),
        (
            bundled_originals,
            bundled,
            (
                "serialize_from_bundled_program_to_flatbuffer",
                "deserialize_from_flatbuffer_to_bundled_program",
            ),
        ),
    )
    return {
        name: (getattr(theirs, name), getattr(ours, name))
        for theirs, ours, names in rooms
        for name in names
    }


@cache
def _methods() -> tuple[tuple[type, str, object], ...]:
    """Return (class, name, ours) of methods: of making file names of external tags, and JSON."""
    from executorch.exir.program._program import ExecutorchProgram, ExecutorchProgramManager
    from executorch.exir.serde.export_serialize import EnumEncoder

    original = EnumEncoder.default

    def default(self: Any, obj: Any) -> Any:
        """Encode a value; a blob by reference as the `bytes` that it is in ExecuTorch."""
        return original(self, bytes(obj) if isinstance(obj, CordBackedData) else obj)

    return (
        (ExecutorchProgram, "write_tensor_data_to_file", programs.write_tensor_data_to_file),
        (ExecutorchProgramManager, "write_tensor_data_to_file", programs.write_tensor_data_to_file),
        (EnumEncoder, "default", default),
    )


class _Patch:
    """The switch: how many want it on, what was loaded before, and what was changed for them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._wanted = 0
        self._known: WeakSet[ModuleType] = WeakSet()
        self._changed: list[tuple[ModuleType | type, str, object, object]] = []

    def on(self) -> None:
        with self._lock:
            replaced = {id(theirs): ours for theirs, ours in _replacements().values()}
            if not self._wanted:
                self._known = WeakSet(_modules())
            self._wanted += 1
            for module, name, value in _bindings():
                if id(value) in replaced:
                    self._set(module, name, value, replaced[id(value)])
            for owner, name, ours in _methods():
                if vars(owner)[name] is not ours:
                    self._set(owner, name, vars(owner)[name], ours)

    def _set(self, owner: ModuleType | type, name: str, theirs: object, ours: object) -> None:
        self._changed.append((owner, name, theirs, ours))
        setattr(owner, name, ours)

    def off(self) -> None:
        with self._lock:
            if self._wanted == 0:
                raise RuntimeError("uninstall() without install()")
            self._wanted -= 1
            if self._wanted:
                return
            for owner, name, theirs, ours in reversed(self._changed):
                if vars(owner).get(name) is ours:
                    setattr(owner, name, theirs)
            self._changed.clear()
            restored = {id(ours): theirs for theirs, ours in _replacements().values()}
            for module, name, value in _bindings():
                if id(value) in restored and self._came_by_patch(module):
                    setattr(module, name, restored[id(value)])

    def _came_by_patch(self, module: ModuleType) -> bool:
        """Tell whether what a module has of ours was given to it by the patch."""
        return module not in self._known and not _imports_cordbundle(module)


def _modules() -> Iterator[ModuleType]:
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):  # some packages put other objects there
            yield module


def _bindings() -> Iterator[tuple[ModuleType, str, object]]:
    for module in _modules():
        for name, value in list(vars(module).items()):
            yield module, name, value


def _imports_cordbundle(module: ModuleType) -> bool:
    """Tell whether a module has an import statement for this package, or is a part of it."""
    if module.__name__.partition(".")[0] == "cordbundle":
        return True
    get_code = getattr(getattr(module, "__loader__", None), "get_code", None)
    code = get_code(module.__name__) if get_code else None  # an extension has none
    return code is not None and _names_cordbundle(code)


def _names_cordbundle(code: CodeType) -> bool:
    return any(name.partition(".")[0] == "cordbundle" for name in code.co_names) or any(
        isinstance(inner, CodeType) and _names_cordbundle(inner) for inner in code.co_consts
    )


_patch = _Patch()


def install() -> None:
    """Put this package's functions and classes in the place of ExecuTorch's, until `uninstall`.

    It is for the whole process, all threads; calls are counted. Every loaded module that binds one
    of the originals is changed, O(modules); modules imported later get the replacements from there.
    Objects that were made before stay what they are.
    """
    _patch.on()


def uninstall() -> None:
    """Undo one `install`; the last one puts every original back.

    That is every binding that was changed, and those in modules that were first imported meanwhile,
    unless such a module has an import statement for `cordbundle`: it took ours on purpose. Objects
    that were made meanwhile stay what they are.

    Raises:
        RuntimeError: There is no `install` to undo.
    """
    _patch.off()


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """Run a block with ExecuTorch on cordbundle; see `install`. Blocks may be nested."""
    install()
    try:
        yield
    finally:
        uninstall()
