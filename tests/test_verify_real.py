"""What `verify` says of public files: nothing, but of the one that no reader of today takes."""

from __future__ import annotations

from pathlib import Path

import pytest

import cordbundle as cb

SOUND: list[tuple[int, str, str, str]] = []

OUTCOMES = {
    "add.pte": SOUND,
    "add_no_extended_header.pte": SOUND,
    "bundled_program.bpte": SOUND,
    "const_methods.pte": SOUND,
    "dtypes.pte": SOUND,
    "dynamic.pte": SOUND,
    "keyword_spotting.pte": SOUND,
    "linear.pte": SOUND,
    "linear_constant_buffer.pte": SOUND,
    "linear_old_schema.ptd": [
        (
            68,
            "weights are of an older schema",
            "the schema of ExecuTorch 0.7 or later",
            "that of before, which has the same identifier",
        )
    ],
    "lstm.pte": SOUND,
    "multi.pte": SOUND,
    "quantized.pte": SOUND,
    "softmax.pte": SOUND,
    "stories260k_qnn.pte": SOUND,
    "tutorial_bundled_program.bp": SOUND,
    "xor.ptd": SOUND,
    "xor.pte": SOUND,
}

HEADERLESS = {
    "add_no_extended_header.pte",
    "bundled_program.bpte",
    "dtypes.pte",
    "linear.pte",
    "linear_constant_buffer.pte",
    "softmax.pte",
    "tutorial_bundled_program.bp",
}
"""Files whose metadata is the whole file."""


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_public_file_has_the_findings_that_it_should_have(real_files: Path, name: str) -> None:
    with cb.open(real_files / name) as file:
        said = [(one.offset, one.what, one.expected, one.actual) for one in file.verify()]

    assert said == OUTCOMES[name]


def test_every_public_file_is_in_the_table(real_files: Path) -> None:
    assert set(OUTCOMES) == {one.name for one in real_files.iterdir() if one.suffix != ".md"}


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_public_file_is_refused_or_found_cut_at_any_of_its_last_bytes(
    real_files: Path, name: str
) -> None:
    data = (real_files / name).read_bytes()
    for size in (len(data) - 1, len(data) - 7, len(data) * 3 // 4, len(data) // 2):
        try:
            file = cb.open(data[:size])
        except cb.FormatError:
            continue
        assert file.verify() != []


@pytest.mark.parametrize("name", [name for name in OUTCOMES if name not in HEADERLESS])
def test_bytes_after_a_public_file_with_a_header_are_found(real_files: Path, name: str) -> None:
    data = (real_files / name).read_bytes()
    file = cb.open(data + b"more")

    said = [(one.offset, one.what, one.actual) for one in file.verify()]

    assert (len(data), "bytes after the last segment", "4") in said


@pytest.mark.parametrize("name", sorted(HEADERLESS))
def test_bytes_after_a_public_file_without_a_header_are_found(real_files: Path, name: str) -> None:
    data = (real_files / name).read_bytes()

    said = [(one.offset, one.what, one.actual) for one in cb.open(data + b"more").verify()]

    assert said == [(len(data), "bytes after the flatbuffer", "4")]
