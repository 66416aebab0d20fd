"""The error tree: what is caught by what, what an error says, what survives pickling."""

from __future__ import annotations

import copy
import pickle

import pytest

from cordbundle import errors
from cordbundle.errors import (
    CordBundleError,
    FormatError,
    IntegrityError,
    SourceChangedError,
    TruncatedError,
    WriteError,
)

TREE = {
    "CordBundleError": {"CordBundleError", "Exception"},
    "FormatError": {"FormatError", "CordBundleError", "ValueError", "Exception"},
    "TruncatedError": {
        "TruncatedError",
        "FormatError",
        "CordBundleError",
        "ValueError",
        "Exception",
    },
    "UnsupportedVersionError": {
        "UnsupportedVersionError",
        "FormatError",
        "CordBundleError",
        "ValueError",
        "Exception",
    },
    "IntegrityError": {
        "IntegrityError",
        "FormatError",
        "CordBundleError",
        "ValueError",
        "Exception",
    },
    "LayoutError": {"LayoutError", "CordBundleError", "ValueError", "Exception"},
    "TooLargeError": {
        "TooLargeError",
        "LayoutError",
        "CordBundleError",
        "ValueError",
        "Exception",
    },
    "CaseMismatchError": {"CaseMismatchError", "CordBundleError", "ValueError", "Exception"},
    "DuplicateKeyError": {"DuplicateKeyError", "CordBundleError", "ValueError", "Exception"},
    "SourceChangedError": {"SourceChangedError", "CordBundleError", "OSError", "Exception"},
    "WriteError": {"WriteError", "CordBundleError", "OSError", "Exception"},
}


def test_the_module_exports_every_class_of_the_tree() -> None:
    assert set(errors.__all__) == set(TREE)


@pytest.mark.parametrize("name", sorted(TREE))
def test_an_error_is_caught_as_its_family_and_as_the_builtin_of_its_kind(name: str) -> None:
    kind = getattr(errors, name)

    assert {one.__name__ for one in kind.__mro__} - {"BaseException", "object"} == TREE[name]


def test_the_tree_at_the_top_of_the_file_is_the_tree() -> None:
    drawn = errors.__doc__ or ""

    for name, family in TREE.items():
        builtin = next(iter(family & {"ValueError", "OSError"}), "Exception")
        inherits = name in {"TruncatedError", "UnsupportedVersionError", "IntegrityError"}
        assert (
            f"{name} " if inherits or name == "TooLargeError" else f"{name}({builtin})"
        ) in drawn


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FormatError("no program"), "no program"),
        (FormatError("no program", source="a.pte"), "a.pte: no program"),
        (FormatError("no program", offset=0), "no program at offset 0"),
        (FormatError("no program", actual="text"), "no program: found text"),
        (FormatError("no program", expected="bytes"), "no program: expected bytes"),
        (FormatError("no program", actual=0, expected=""), "no program: found 0, expected "),
        (FormatError("no program", cause="try again"), "no program; try again"),
        (
            TruncatedError(
                "segment 3 ends past the file",
                source="a.pte",
                offset=1088,
                expected="2000 bytes",
                actual="1500 bytes",
                cause="download it again",
            ),
            "a.pte: segment 3 ends past the file at offset 1088: "
            "found 1500 bytes, expected 2000 bytes; download it again",
        ),
        (
            WriteError("disk is full", errno=28, source="out.bpte", actual=7),
            "out.bpte: disk is full: found 7",
        ),
    ],
)
def test_an_error_says_where_what_was_found_what_was_expected_and_why(
    error: CordBundleError, text: str
) -> None:
    assert str(error) == text


def test_an_error_carries_its_facts_as_attributes() -> None:
    error = IntegrityError(
        "digest differs", source="a.bpte", offset=56, expected=b"x", actual=b"y", cause="damage"
    )

    assert (error.what, error.source, error.offset) == ("digest differs", "a.bpte", 56)
    assert (error.expected, error.actual, error.cause) == (b"x", b"y", "damage")


def test_a_write_error_has_the_number_of_the_system() -> None:
    assert WriteError("disk is full", errno=28).errno == 28
    assert WriteError("took nothing").errno is None


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
@pytest.mark.parametrize(
    "error",
    [
        FormatError("no program", source="a.pte", offset=4, expected=1, actual=2, cause="why"),
        SourceChangedError("changed", source="a.pte", expected=1, actual=2, cause="why"),
        WriteError("full", errno=28, source="out", offset=3, expected=9, actual=1, cause="why"),
    ],
)
def test_an_error_crosses_a_process_border_whole(error: CordBundleError, again: object) -> None:
    assert callable(again)
    other = again(error)

    assert type(other) is type(error)
    assert str(other) == str(error)
    for name in ("what", "source", "offset", "expected", "actual", "cause"):
        assert getattr(other, name) == getattr(error, name)
    assert getattr(other, "errno", None) == getattr(error, "errno", None)
