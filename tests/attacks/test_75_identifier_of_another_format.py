"""Tries: a file of one format with the identifier of another.

Stopped by: each format is read by its own schema and header, and what does not fit is found.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cordbundle as cb
from tests.attacks.surgery import bundle, findings, program, put_bytes, read, refusal, weights


def test_weights_called_a_program_are_found_and_refused() -> None:
    data = weights()
    put_bytes(data, 4, b"ET12")
    said = findings(data)
    assert (8, "unknown extended header", "b'eh00'", "b'FH01'") in said
    assert len(said) > 1


def test_a_program_called_weights_is_refused() -> None:
    data = program()
    put_bytes(data, 4, b"FT01")
    what = "weights file has no extended header"
    assert refusal(lambda: read(data))[:3] == (cb.FormatError, what, 8)


def test_a_program_called_a_bundle_is_found() -> None:
    data = program()
    put_bytes(data, 4, b"BP08")
    assert (8, "unknown extended header", "b'bh00'", "b'eh00'") in findings(data)


@pytest.mark.parametrize("made", [weights, bundle])
def test_another_format_is_refused_where_a_program_is_asked_for(
    made: Callable[[], bytearray],
) -> None:
    data = bytes(made())
    name = {b"FT01": "weights (.ptd)", b"BP08": "a bundled program (.bpte)"}[data[4:8]]
    kind, _, offset, expected, actual = refusal(lambda: cb.bundle(data, []))
    assert (kind, offset, expected) == (cb.FormatError, 4, "b'ET12'")
    assert name in actual


@pytest.mark.parametrize("identifier", [b"ET13", b"FT02", b"BP09"])
def test_another_version_is_refused(identifier: bytes) -> None:
    data = program()
    put_bytes(data, 4, identifier)
    assert refusal(lambda: read(data))[0] is cb.UnsupportedVersionError
