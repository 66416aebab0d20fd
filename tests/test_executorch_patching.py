"""Patching: `to_executorch()` and all around it run on cordbundle, and everything is put back."""

from __future__ import annotations

import importlib
import io
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import cordbundle as cb

pytestmark = pytest.mark.executorch

if find_spec("executorch") is None or find_spec("torch") is None:
    pytest.skip("ExecuTorch and PyTorch are not installed", allow_module_level=True)

import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program import serialize as bundled_originals
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.exir._serialize import _named_data_store, _program, _serialize
from executorch.exir.program import _program as manager_module
from executorch.extension.flat_tensor.serialize import serialize as flat_originals

import cordbundle.executorch as ours
from cordbundle.executorch import patching, version
from tests.executorch_models import CONFIGS, MODELS, manager
from tests.executorch_suite.originals import forbidden

NAMES: dict[str, tuple[ModuleType, ...]] = {
    "serialize_for_executorch": (_serialize, manager_module),
    "serialize_pte_binary": (_program, _serialize),
    "deserialize_pte_binary": (_program,),
    "NamedDataStore": (_named_data_store, _program, _serialize, manager_module),
    "FlatTensorSerializer": (flat_originals,),
    "serialize_from_bundled_program_to_flatbuffer": (bundled_originals,),
    "deserialize_from_flatbuffer_to_bundled_program": (bundled_originals,),
}
"""Where each name is bound, among other places."""

BEFORE = {name: getattr(modules[0], name) for name, modules in NAMES.items()}


def bound() -> dict[tuple[str, str], object]:
    """Return every binding of an original or of a replacement in a module of ExecuTorch."""
    replaced = {id(value) for value in (*BEFORE.values(), *(getattr(ours, n) for n in NAMES))}
    return {
        (module.__name__, name): value
        for key, module in list(sys.modules.items())
        if key.startswith("executorch.")
        for name, value in list(vars(module).items())
        if id(value) in replaced
    }


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Check that a test leaves every binding as it was."""
    before = bound()
    yield
    after = bound()
    assert {key: after[key] for key in before} == before
    assert not {id(value) for value in after.values()} & {id(getattr(ours, n)) for n in NAMES}


# What runs on cordbundle ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["linear", "external constants", "two delegates"])
def test_to_executorch_and_writing_run_on_cordbundle_with_the_same_bytes(
    name: str, tmp_path: Path
) -> None:
    expected = manager(name)

    with ours.patched(), forbidden():
        mine = MODELS[name]().to_executorch(CONFIGS.get(name))
        file = io.BytesIO()
        mine.write_to_file(file)
        mine.write_tensor_data_to_file(str(tmp_path))
        mine.save(str(tmp_path / "m.pte"))

    assert isinstance(mine._pte_data, cb.Cord)
    assert all(isinstance(cord, cb.Cord) for cord in mine._tensor_data.values())
    assert mine.buffer == file.getvalue() == (tmp_path / "m.pte").read_bytes() == expected.buffer
    for tag, cord in expected._tensor_data.items():
        assert (tmp_path / f"{tag}.ptd").read_bytes() == bytes(cord)


def test_a_backend_fills_our_store_while_it_lowers() -> None:
    from executorch.backends.xnnpack import xnnpack_preprocess

    with ours.patched(), forbidden():
        assert xnnpack_preprocess.NamedDataStore is ours.NamedDataStore
        mine = MODELS["delegate with external data"]().to_executorch()

    assert mine.buffer == manager("delegate with external data").buffer
    assert isinstance(mine._tensor_data["weights"], cb.Cord)


def test_a_bundled_program_is_made_on_cordbundle() -> None:
    case = MethodTestCase([torch.ones(2, 4)], [])
    program = BundledProgram(manager("linear"), [MethodTestSuite("forward", [case])])
    with ours.patched(), forbidden():
        data = bundled_originals.serialize_from_bundled_program_to_flatbuffer(program)
        record = bundled_originals.deserialize_from_flatbuffer_to_bundled_program(data)

    assert type(data) is bytes
    assert record.program == manager("linear").buffer


def test_a_program_manager_of_a_patched_export_can_be_bundled_by_manager() -> None:
    with ours.patched():
        mine = MODELS["linear"]().to_executorch()

    assert bytes(cb.bundle(mine, []).cord).find(manager("linear").buffer) == 4096
    assert mine._buffer is None


# Bindings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_binding_is_replaced_inside_and_put_back_outside(name: str) -> None:
    mine = getattr(ours, name)
    with ours.patched():
        assert [getattr(module, name) for module in NAMES[name]] == [mine] * len(NAMES[name])
    assert [getattr(module, name) for module in NAMES[name]] == [BEFORE[name]] * len(NAMES[name])


def test_bindings_under_other_names_and_in_other_packages_are_replaced_too() -> None:
    module = ModuleType("someones_exporter")
    module.Store = BEFORE["NamedDataStore"]  # type: ignore[attr-defined]  # as an import does
    sys.modules[module.__name__] = module
    try:
        with ours.patched():
            assert vars(module)["Store"] is ours.NamedDataStore
        assert vars(module)["Store"] is BEFORE["NamedDataStore"]
    finally:
        del sys.modules[module.__name__]


def test_a_module_of_executorch_that_is_first_imported_inside_is_put_back_too() -> None:
    name = "executorch.devtools.pte_tool.diff_pte"
    known = sys.modules.pop(name, None)
    try:
        with ours.patched():
            module = importlib.import_module(name)
            assert module.deserialize_pte_binary is ours.deserialize_pte_binary
        assert module.deserialize_pte_binary is BEFORE["deserialize_pte_binary"]
    finally:
        if known is not None:
            sys.modules[name] = known


@pytest.mark.parametrize(
    ("line", "keeps"),
    [
        ("from executorch.exir._serialize._named_data_store import NamedDataStore", False),
        ("from cordbundle.executorch import NamedDataStore", True),
    ],
)
def test_anybodys_module_that_is_first_imported_inside_keeps_only_what_it_took_by_our_name(
    line: str, keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "someones_late_exporter.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with ours.patched():
            module = importlib.import_module("someones_late_exporter")
            assert module.NamedDataStore is ours.NamedDataStore
        expected = ours.NamedDataStore if keeps else BEFORE["NamedDataStore"]
        assert module.NamedDataStore is expected
    finally:
        sys.modules.pop("someones_late_exporter", None)


def test_a_module_without_source_that_is_made_inside_is_put_back() -> None:
    module = ModuleType("someones_made_exporter")
    try:
        with ours.patched():
            module.Store = _named_data_store.NamedDataStore  # type: ignore[attr-defined]
            sys.modules[module.__name__] = module
            assert vars(module)["Store"] is ours.NamedDataStore
        assert vars(module)["Store"] is BEFORE["NamedDataStore"]
    finally:
        sys.modules.pop(module.__name__, None)


def test_a_module_that_took_ours_on_purpose_keeps_it() -> None:
    module = ModuleType("someones_other_exporter")
    module.Store = ours.NamedDataStore  # type: ignore[attr-defined]  # as an import does
    sys.modules[module.__name__] = module
    try:
        with ours.patched():
            pass
        assert vars(module)["Store"] is ours.NamedDataStore
    finally:
        del sys.modules[module.__name__]


def test_a_binding_that_somebody_changed_inside_is_left_as_it_is() -> None:
    mine = object()
    with ours.patched():
        _serialize.serialize_pte_binary = mine
    try:
        assert _serialize.serialize_pte_binary is mine
    finally:
        _serialize.serialize_pte_binary = BEFORE["serialize_pte_binary"]


# Nesting, errors, threads --------------------------------------------------------------------


def test_everything_is_put_back_after_an_exception() -> None:
    with pytest.raises(KeyError), ours.patched():
        raise KeyError("inside")

    assert _serialize.serialize_for_executorch is BEFORE["serialize_for_executorch"]


def test_only_the_last_of_nested_blocks_puts_back() -> None:
    with ours.patched():
        with ours.patched():
            pass
        assert _serialize.serialize_for_executorch is ours.serialize_for_executorch
        ours.install()
    assert _serialize.serialize_for_executorch is ours.serialize_for_executorch
    ours.uninstall()
    assert _serialize.serialize_for_executorch is BEFORE["serialize_for_executorch"]


def test_uninstalling_what_is_not_installed_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="without install"):
        ours.uninstall()


def test_threads_may_patch_at_the_same_time() -> None:
    wrong: list[object] = []

    def work() -> None:
        for _ in range(5):
            with ours.patched():
                if _serialize.serialize_for_executorch is not ours.serialize_for_executorch:
                    wrong.append(_serialize.serialize_for_executorch)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert _serialize.serialize_for_executorch is BEFORE["serialize_for_executorch"]


def test_nobody_patches_while_another_thread_puts_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = patching._bindings
    others: list[threading.Thread] = []

    def sweep_with_a_rival() -> Iterator[tuple[ModuleType, str, object]]:
        monkeypatch.undo()
        others.append(threading.Thread(target=ours.install))
        others[0].start()
        others[0].join(0.5)
        assert others[0].is_alive()  # it waits
        yield from sweep()

    ours.install()
    monkeypatch.setattr(patching, "_bindings", sweep_with_a_rival)
    try:
        ours.uninstall()
    finally:
        others[0].join()
        inside = _serialize.serialize_for_executorch
        ours.uninstall()

    assert inside is ours.serialize_for_executorch
    assert _serialize.serialize_for_executorch is BEFORE["serialize_for_executorch"]


# Versions and borders ------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["1.4.0", "1.6.0a1", "2.5.1", "1.50.0"])
def test_another_version_of_executorch_is_refused_by_name(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "version", lambda package: found)

    with pytest.raises(cb.UnsupportedVersionError, match=rf"executorch.*found {found}.*1\.5\.\*"):
        version.check_version()


@pytest.mark.parametrize("found", ["1.5.0", "1.5.1+cpu", "1.5.2.dev1"])
def test_every_patch_of_the_version_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda package: found)

    version.check_version()

    assert version.SUPPORTED == "1.5"


def test_importing_cordbundle_does_not_import_executorch() -> None:
    import subprocess

    code = "import cordbundle, sys; print([m for m in ('executorch', 'torch') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"


def test_signatures_are_executorchs() -> None:
    import inspect

    for name, original in BEFORE.items():
        if inspect.isfunction(original):
            theirs, mine = inspect.signature(original), inspect.signature(getattr(ours, name))
            assert [(p.name, p.kind, p.default) for p in mine.parameters.values()] == [
                (p.name, p.kind, p.default) for p in theirs.parameters.values()
            ]
            continue
        for method in ("__init__", *(n for n in vars(original) if not n.startswith("_"))):
            if inspect.isfunction(getattr(original, method, None)):
                theirs = inspect.signature(getattr(original, method))
                mine = inspect.signature(getattr(getattr(ours, name), method))
                assert [(p.name, p.kind, p.default) for p in mine.parameters.values()] == [
                    (p.name, p.kind, p.default) for p in theirs.parameters.values()
                ], method


def test_external_data_is_written_inside_the_folder_alone(tmp_path: Path) -> None:
    made = manager("external constants")
    folder = tmp_path / "out"
    folder.mkdir()
    made.write_tensor_data_to_file(folder)
    theirs = {path.name: path.read_bytes() for path in folder.iterdir()}
    before = type(made).__dict__["write_tensor_data_to_file"]

    with ours.patched():
        for path in folder.iterdir():
            path.unlink()
        made.write_tensor_data_to_file(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == theirs
        made._tensor_data = {"../x": cb.Cord(b"x")}
        with pytest.raises(cb.LayoutError, match="x"):
            made.write_tensor_data_to_file(folder)

    assert len(theirs) == 1
    assert not (tmp_path / "x.ptd").exists()
    assert type(made).__dict__["write_tensor_data_to_file"] is before
