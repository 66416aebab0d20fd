"""The public surface: which names there are, and how each is called."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType

import pytest

import cordbundle as cb

ERRORS = [
    "CaseMismatchError",
    "CordBundleError",
    "DuplicateKeyError",
    "FormatError",
    "IntegrityError",
    "LayoutError",
    "SourceChangedError",
    "TooLargeError",
    "TruncatedError",
    "UnsupportedVersionError",
    "WriteError",
]

NAMES = [
    *ERRORS,
    "Bundle",
    "BundleFile",
    "Cord",
    "DataEntry",
    "DataPayload",
    "Delegate",
    "Finding",
    "Layout",
    "Method",
    "MethodTestCase",
    "MethodTestSuite",
    "NamedDataStore",
    "NamedDataStoreOutput",
    "Placement",
    "PtdFile",
    "PteEditor",
    "PteFile",
    "Rewrite",
    "ScalarType",
    "Segment",
    "SegmentRange",
    "TensorLayout",
    "TensorSpec",
    "TensorView",
    "ValueSpec",
    "WriteReport",
    "bundle",
    "load_ptd",
    "open",
    "ptd_from_safetensors",
    "rewrite",
    "save_ptd",
    "serialize_ptd",
    "serialize_pte",
    "write",
    "write_all",
]

WRITING = "durability='file', progress=None"

FUNCTIONS: dict[str, str] = {
    "bundle": "(program, method_test_suites, *, named_data=None, form='auto', alignment=4096,"
    " digest=True, check=True)",
    "load_ptd": "(source)",
    "open": "(source)",
    "ptd_from_safetensors": "(sources, *, max_bytes=None, segment_alignment=128)",
    "rewrite": "(file)",
    "save_ptd": f"(tensors, target, *, {WRITING})",
    "serialize_ptd": "(named_data, *, segment_alignment=128)",
    "serialize_pte": "(program, *, mutable_data=None, named_data=None, segment_alignment=128,"
    " constant_tensor_alignment=None, delegate_alignment=None, extract_delegate_segments=True)",
    "write": f"(cord, target, *, {WRITING})",
    "write_all": f"(cords, *, {WRITING})",
}

CLASSES: dict[str, str] = {
    "Cord": "(data=None)",
    "MethodTestCase": "(inputs, expected_outputs=())",
    "MethodTestSuite": "(method_name, test_cases)",
    "PteEditor": "(file)",
    "Segment": "(name, data, alignment=1, length_prefix=False)",
    "TensorView": "(scalar_type, sizes, dim_order, cord)",
    "WriteReport": "(nbytes, seconds, transfers)",
    "Finding": "(offset, what, expected, actual)",
}

METHODS: dict[str, str] = {
    "Bundle.write": f"(target, *, {WRITING})",
    "BundleFile.check": "()",
    "BundleFile.suite": "(method_name)",
    "BundleFile.verify": "(progress=None)",
    "Cord.append": "(data)",
    "Cord.check_invariants": "()",
    "Cord.chunks": "()",
    "Cord.find": "(wanted, start=0)",
    "Cord.from_file": "(path, offset=0, size=None)",
    "Cord.open": "()",
    "Cord.parts": "(size)",
    "Cord.readinto": "(buffer, offset=0)",
    "Cord.startswith": "(prefix)",
    "Cord.try_flat": "()",
    "Cord.write_to_file": "(outfile)",
    "Cord.xxh3_128": "()",
    "PtdFile.check": "()",
    "PtdFile.keys": "()",
    "PtdFile.verify": "(progress=None)",
    "PteFile.check": "()",
    "PteFile.program": "()",
    "PteFile.verify": "(progress=None)",
    "Rewrite.write": f"(target, *, {WRITING})",
    "TensorView.numpy": "()",
    "TensorView.torch": "()",
}

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "Bundle": ("cord", "form", "layout", "notes"),
    "BundleFile": ("close", "closed", "cord", "form", "layout", "named_data", "program", "suites"),
    "PtdFile": ("close", "closed", "cord"),
    "PteFile": ("close", "closed", "cord", "methods", "named_data", "segments"),
    "TensorView": ("data", "dim_order", "nbytes", "scalar_type", "sizes", "strides"),
}


def call(name: str) -> str:
    """Return how a public name is called: parameters and defaults, without types and `self`."""
    found: Callable[..., object] = cb  # type: ignore[assignment]  # a module, to begin with
    for part in name.split("."):
        found = getattr(found, part)
    signature = inspect.signature(found)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(parameters))


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(cb.__all__) == sorted(NAMES)
    assert len(set(cb.__all__)) == len(cb.__all__)


def test_what_the_package_binds_is_public_or_a_module_of_its_own() -> None:
    bound = {name for name in vars(cb) if not name.startswith("_")}
    modules = {name for name in bound if isinstance(getattr(cb, name), ModuleType)}
    assert bound - modules - {"annotations"} == set(NAMES)
    assert {getattr(cb, name).__name__ for name in modules} == {
        f"cordbundle.{name}" for name in modules
    }


def test_no_module_has_a_public_name_which_importing_it_would_replace() -> None:
    modules = {module.name for module in pkgutil.iter_modules(cb.__path__)}
    assert modules & set(NAMES) == set()


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES, *METHODS])
def test_a_public_name_is_called_as_the_design_says(name: str) -> None:
    assert call(name) == {**FUNCTIONS, **CLASSES, **METHODS}[name]


def test_no_public_function_is_left_out_here() -> None:
    public = {name for name in NAMES if inspect.isfunction(getattr(cb, name))}
    assert public == set(FUNCTIONS)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_takes_its_facts_by_keyword(name: str) -> None:
    facts = "source=None, offset=None, expected=None, actual=None, cause=None)"
    number = "errno=None, " if name == "WriteError" else ""
    assert call(name) == f"(what, *, {number}{facts}"


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_public_class_has_the_attributes_of_the_design(name: str) -> None:
    assert set(ATTRIBUTES[name]) <= set(dir(getattr(cb, name)))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_says_what_it_is(name: str) -> None:
    documented: object = getattr(cb, name)
    text = inspect.getdoc(documented) or ""
    assert text and text == inspect.cleandoc(documented.__doc__ or "")  # its own, not inherited
