"""Tries: a second file hidden behind the last segment.

Stopped by: the end that header or segments give is compared with the size of the file.
"""

from __future__ import annotations

import pytest

from tests.attacks.surgery import found, methods, program, put_header, weights


@pytest.mark.parametrize("length", [24, 32])
def test_they_are_found_and_the_file_is_read(length: int) -> None:
    data = program() + b"hidden"
    put_header(data, length=length)
    assert found(data) == (1412, "bytes after the last segment", "none", "6")
    assert list(methods(data)) == ["forward"]


def test_they_are_found_in_weights() -> None:
    data = weights() + b"hidden"
    assert found(data) == (644, "bytes after the last segment", "none", "6")
