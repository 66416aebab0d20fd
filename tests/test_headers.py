"""Extended headers: one table of exact bytes, both directions, cut at every byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordbundle.errors import FormatError, TruncatedError, UnsupportedVersionError
from cordbundle.headers import (
    BUNDLE_HEADER,
    FLAT_TENSOR_HEADER,
    HEAD_SIZE,
    HEADER_OFFSET,
    PROGRAM_HEADER,
    ExtendedHeader,
    HeaderFormat,
    identify,
    insert_header,
    parse_header,
)

PROGRAM = (
    PROGRAM_HEADER,
    ExtendedHeader(
        flatbuffer_size=0x1122334455667788,
        segment_base_offset=0x99AABBCCDDEEFF00,
        segment_data_size=0x0102030405060708,
        length=32,
    ),
    b"eh00\x20\x00\x00\x00"
    b"\x88\x77\x66\x55\x44\x33\x22\x11\x00\xff\xee\xdd\xcc\xbb\xaa\x99"
    b"\x08\x07\x06\x05\x04\x03\x02\x01",
)
FLAT_TENSOR = (
    FLAT_TENSOR_HEADER,
    ExtendedHeader(
        flatbuffer_offset=48,
        flatbuffer_size=496,
        segment_base_offset=544,
        segment_data_size=216,
        length=40,
    ),
    b"FH01\x28\x00\x00\x00"
    b"\x30\x00\x00\x00\x00\x00\x00\x00\xf0\x01\x00\x00\x00\x00\x00\x00"
    b"\x20\x02\x00\x00\x00\x00\x00\x00\xd8\x00\x00\x00\x00\x00\x00\x00",
)
BUNDLE = (
    BUNDLE_HEADER,
    ExtendedHeader(
        flatbuffer_offset=64,
        flatbuffer_size=1000,
        segment_base_offset=4096,
        segment_data_size=1 << 33,
        digest=b"0123456789abcdef",
        length=56,
    ),
    b"bh00\x38\x00\x00\x00"
    b"\x40\x00\x00\x00\x00\x00\x00\x00\xe8\x03\x00\x00\x00\x00\x00\x00"
    b"\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00"
    b"0123456789abcdef",
)
OLD_PROGRAM = (  # of before ExecuTorch 1.0: no segment data size; read, never written
    PROGRAM_HEADER,
    ExtendedHeader(
        flatbuffer_size=13704, segment_base_offset=13824, segment_data_size=None, length=24
    ),
    b"eh00\x18\x00\x00\x00\x88\x35\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x00\x00\x00",
)
EMPTY_PROGRAM = (
    PROGRAM_HEADER,
    ExtendedHeader(length=32),
    b"eh00\x20\x00\x00\x00" + b"\x00" * 24,
)
WRITTEN = [PROGRAM, FLAT_TENSOR, BUNDLE, EMPTY_PROGRAM]
READ = [*WRITTEN, OLD_PROGRAM]
IDS_WRITTEN = ["eh00", "FH01", "bh00", "eh00 of zeros"]
IDS_READ = [*IDS_WRITTEN, "eh00 of 24 bytes"]

Case = tuple[HeaderFormat, ExtendedHeader, bytes]
BEGIN = b"\x1c\x00\x00\x00XXXX"  # root offset and identifier, which the header does not look at
REST = b"\xff" * HEAD_SIZE  # what follows a header belongs to others


@pytest.mark.parametrize("case", WRITTEN, ids=IDS_WRITTEN)
def test_a_header_is_written_as_these_bytes(case: Case) -> None:
    form, header, raw = case

    assert form.pack(header, slot=len(raw)) == raw
    assert form.length == len(raw)


@pytest.mark.parametrize("case", WRITTEN, ids=IDS_WRITTEN)
def test_a_header_is_filled_with_zeros_up_to_its_slot(case: Case) -> None:
    form, header, raw = case

    assert form.pack(header, slot=64) == raw + bytes(64 - len(raw))


@pytest.mark.parametrize("case", READ, ids=IDS_READ)
def test_these_bytes_are_read_as_the_header(case: Case) -> None:
    form, header, raw = case

    assert parse_header((BEGIN + raw + REST)[:HEAD_SIZE], form, "file") == header


@pytest.mark.parametrize("case", READ, ids=IDS_READ)
def test_a_file_that_ends_with_its_header_is_read(case: Case) -> None:
    form, header, raw = case

    assert parse_header(BEGIN + raw, form, "file") == header


@pytest.mark.parametrize("case", READ, ids=IDS_READ)
def test_a_header_cut_at_any_byte_behind_its_magic_is_truncated(case: Case) -> None:
    form, _, raw = case

    for cut in range(HEADER_OFFSET + 4, HEADER_OFFSET + len(raw)):
        with pytest.raises(TruncatedError) as caught:
            parse_header((BEGIN + raw)[:cut], form, "cut.bin")
        assert (caught.value.source, caught.value.offset) == ("cut.bin", cut)
        assert caught.value.actual == f"{cut} bytes"


@pytest.mark.parametrize("case", READ, ids=IDS_READ)
def test_a_file_that_ends_before_the_magic_has_no_header(case: Case) -> None:
    form, _, raw = case

    for cut in range(HEADER_OFFSET + 4):
        assert parse_header((BEGIN + raw)[:cut], form, "file") is None


@pytest.mark.parametrize("case", READ, ids=IDS_READ)
def test_a_header_with_any_other_magic_is_none(case: Case) -> None:
    form, _, raw = case

    for place in range(4):
        other = bytearray(BEGIN + raw)
        other[HEADER_OFFSET + place] ^= 1
        assert parse_header(bytes(other), form, "file") is None


@pytest.mark.parametrize(
    ("case", "minimum"), [(PROGRAM, 24), (FLAT_TENSOR, 40), (BUNDLE, 56)], ids=IDS_WRITTEN[:3]
)
def test_a_length_below_the_minimum_is_refused(case: Case, minimum: int) -> None:
    form, _, raw = case

    for length in range(minimum):
        head = BEGIN + raw[:4] + length.to_bytes(4, "little") + raw[8:]
        with pytest.raises(FormatError, match="too small") as caught:
            parse_header(head, form, "file")
        assert caught.value.offset == 12
        assert (caught.value.actual, caught.value.expected) == (length, f"at least {minimum}")


def test_a_header_that_is_too_small_is_refused_in_these_words() -> None:
    with pytest.raises(FormatError) as caught:
        parse_header(BEGIN + b"eh00\x08\0\0\0" + bytes(56), PROGRAM_HEADER, "model.pte")

    assert str(caught.value) == (
        "model.pte: length of the extended header eh00 is too small at offset 12:"
        " found 8, expected at least 24"
    )


@pytest.mark.parametrize(
    ("head", "needed"),
    [
        (BEGIN + b"eh00\x20\0\0", 32),  # its length is not there: the shortest that can be
        (BEGIN + b"eh00\x20\0\0\0", 40),
        (BEGIN + b"eh00\x18\0\0\0" + bytes(15), 32),
        (BEGIN + b"eh00\xff\0\0\0" + bytes(23), 40),  # of a longer one, what is known
    ],
)
def test_a_header_that_is_cut_is_refused_in_these_words(head: bytes, needed: int) -> None:
    with pytest.raises(TruncatedError) as caught:
        parse_header(head, PROGRAM_HEADER, "model.pte")

    assert str(caught.value) == (
        f"model.pte: file ends inside the extended header at offset {len(head)}:"
        f" found {len(head)} bytes, expected at least {needed} bytes"
    )


@pytest.mark.parametrize("length", [24, 25, 31, 32, 33, 64, 0xFFFFFFFF])
def test_a_program_has_a_segment_data_size_only_where_its_length_covers_it(length: int) -> None:
    head = BEGIN + b"eh00" + length.to_bytes(4, "little") + PROGRAM[2][8:] + REST

    header = parse_header(head[:HEAD_SIZE], PROGRAM_HEADER, "file")

    assert header is not None
    assert header.length == length
    assert header.segment_data_size == (0x0102030405060708 if length >= 32 else None)


def test_a_longer_header_of_a_later_version_is_read_for_what_is_known() -> None:
    form, header, raw = FLAT_TENSOR

    longer = parse_header(BEGIN + raw[:4] + b"\x30\x00\x00\x00" + raw[8:] + REST, form, "file")

    assert longer is not None
    assert longer.length == 48
    assert longer.segment_data_size == header.segment_data_size


@pytest.mark.parametrize(
    ("form", "name", "offset"),
    [
        (PROGRAM_HEADER, "flatbuffer_size", 16),
        (PROGRAM_HEADER, "segment_data_size", 32),
        (FLAT_TENSOR_HEADER, "flatbuffer_offset", 16),
        (FLAT_TENSOR_HEADER, "segment_base_offset", 32),
        (BUNDLE_HEADER, "digest", 48),
    ],
)
def test_a_field_is_found_at_its_offset_in_the_file(
    form: HeaderFormat, name: str, offset: int
) -> None:
    assert form.offset_of(name) == offset


def test_metadata_ends_where_offset_and_size_say() -> None:
    assert FLAT_TENSOR[1].metadata_end == 544
    assert ExtendedHeader(flatbuffer_size=1088).metadata_end == 1088


def test_a_header_moves_the_root_by_its_own_size() -> None:
    head = insert_header(b"\xfc\x00\x00\x00BP08", b"h" * 64)

    assert head == b"\x3c\x01\x00\x00BP08" + b"h" * 64


# What a file is ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identifier", "name", "form"),
    [
        (b"ET12", "ExecuTorch program (.pte)", PROGRAM_HEADER),
        (b"FT01", "ExecuTorch weights (.ptd)", FLAT_TENSOR_HEADER),
        (b"BP08", "bundled program (.bpte)", BUNDLE_HEADER),
        (b"BPS1", "segmented bundled program (.bpte)", BUNDLE_HEADER),
    ],
)
def test_a_file_is_known_by_its_identifier(
    identifier: bytes, name: str, form: HeaderFormat
) -> None:
    kind = identify(b"\x80\x02\x00\x00" + identifier, "file", 8)

    assert (kind.identifier, kind.name, kind.header) == (identifier, name, form)


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2", "a Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>Not found", "an HTML page"),
        (b"\n  <HTML>\n<head><title>Sign in</title>", "an HTML page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied", "an HTML page"),
        (b"PK\x03\x04\x00\x00\x08\x08\x00\x00archive/data.pkl", "a zip archive"),
        (b"\x80\x02}q\x00(X\x06\x00\x00\x00weight", "a Python pickle"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "gzip data"),
        (b"\x7fELF\x02\x01\x01" + bytes(57), "an executable"),
        (b"GGUF\x03\x00\x00\x00" + bytes(64), "a GGUF model"),
        (b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"w":{"dtype":"F32"', "safetensors"),
        (b"\x80\x02\x00\x00\x00\x00\x00\x00" + b'{"w":{"dtype":"F32"', "safetensors"),
        (b'{"error": "rate limit exceeded"}', "JSON"),
        (bytes(HEAD_SIZE), "zeros"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_what_it_looks_like(head: bytes, word: str) -> None:
    with pytest.raises(FormatError, match=f"this looks like {word}") as caught:
        identify(head[:HEAD_SIZE], "model.pte", 10_000)

    assert caught.value.source == "model.pte"
    assert type(caught.value) is FormatError


@pytest.mark.parametrize("size", [8, 30])
def test_bytes_that_look_like_nothing_are_refused_with_what_was_found(size: int) -> None:
    head = (b"\x01\x02\x03\x04QRST" + bytes(range(1, 23)))[:size]

    with pytest.raises(FormatError, match="no ExecuTorch file") as caught:
        identify(head, "model.pte", size)

    assert (caught.value.offset, caught.value.actual) == (4, "b'QRST'")
    assert "b'ET12' or b'FT01' or b'BP08' or b'BPS1'" in str(caught.value)
    assert caught.value.cause is None


@pytest.mark.parametrize(
    ("head", "found"), [(b"", "an empty file"), (b"\x1c\x01\x01\x01ET1", "7 bytes")]
)
def test_a_file_too_short_to_be_anything_is_truncated(head: bytes, found: str) -> None:
    with pytest.raises(TruncatedError, match="too short") as caught:
        identify(head, "model.pte", len(head))

    assert (caught.value.actual, caught.value.expected) == (found, "at least 8 bytes")


@pytest.mark.parametrize(
    ("identifier", "name", "known"),
    [
        (b"ET13", "ExecuTorch program", "b'ET12'"),
        (b"FT02", "ExecuTorch weights", "b'FT01'"),
        (b"BP07", "bundled program", "b'BP08'"),
    ],
)
@pytest.mark.parametrize("root", [b"\x1c\x00\x00\x00", b"\x80\x02\x00\x00", b"\x1f\x8b\x00\x00"])
def test_another_version_of_a_known_kind_is_unsupported(
    root: bytes, identifier: bytes, name: str, known: str
) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"unknown version of {name}") as caught:
        identify(root + identifier + bytes(64), "file", 1000)

    assert (caught.value.offset, caught.value.expected) == (4, known)
    assert caught.value.actual == repr(identifier)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (
            b"",
            "m.pte: too short for any ExecuTorch file at offset 0: found an empty file, expected at"
            " least 8 bytes; the download or the copy may have failed",
        ),
        (
            b"\x20\0\0\0ET13",
            "m.pte: unknown version of ExecuTorch program (.pte) at offset 4: found b'ET13',"
            " expected b'ET12'",
        ),
        (
            b"\x20\0\0\0QRST",
            "m.pte: no ExecuTorch file at offset 4: found b'QRST', expected b'ET12' or b'FT01' or"
            " b'BP08' or b'BPS1'",
        ),
        (
            b'{"error": 1}',
            "m.pte: no ExecuTorch file at offset 4: found b'ror\"', expected b'ET12' or b'FT01' or"
            " b'BP08' or b'BPS1'; this looks like JSON; perhaps an error message instead of the"
            " file",
        ),
    ],
)
def test_what_is_no_file_of_ours_is_refused_in_these_words(head: bytes, text: str) -> None:
    with pytest.raises(FormatError) as caught:
        identify(head, "m.pte", len(head))

    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("head", "cause"),
    [
        (b"\xff\xff\xff\xff\0\0\0\0{", "this looks like safetensors; `cordbundle ptd` makes"),
        (b"\0\0\0\0\1\0\0\0{", None),  # a header of 4 GiB is none
        (b"  <HEAD><title>Sign in", "this looks like an HTML page"),
        (b'["not", "found"]', "this looks like JSON"),
        (b"XXXXXXXX", None),
        (b"\0\0X\0\0\0\0\0", None),
        (b"\0\0\0\0ET\x011", None),  # no version: not two letters or digits
        (b"\0\0\0\0ET1\x01", None),
    ],
)
def test_a_stranger_is_taken_for_what_it_begins_like_and_for_nothing_else(
    head: bytes, cause: str | None
) -> None:
    with pytest.raises(FormatError, match="no ExecuTorch file") as caught:
        identify(head, "m.pte", len(head))

    found = caught.value.cause
    assert found is None if cause is None else str(found).startswith(cause)


PUBLIC = [  # name, identifier, length of the header, its flatbuffer end, base, segment data size
    ("add.pte", b"ET12", 32, 1088, 1152, 432),
    ("add_no_extended_header.pte", b"ET12", None, 0, 0, 0),
    ("bundled_program.bpte", b"BP08", None, 0, 0, 0),
    ("const_methods.pte", b"ET12", 32, 2272, 2304, 40),
    ("dtypes.pte", b"ET12", None, 0, 0, 0),
    ("dynamic.pte", b"ET12", 32, 1072, 1152, 560),
    ("keyword_spotting.pte", b"ET12", 32, 14904, 14976, 39216),
    ("linear.pte", b"ET12", None, 0, 0, 0),
    ("linear_constant_buffer.pte", b"ET12", None, 0, 0, 0),
    ("linear_old_schema.ptd", b"FT01", 40, 272, 272, 64),
    ("lstm.pte", b"ET12", 32, 1856, 1920, 432),
    ("multi.pte", b"ET12", 32, 2240, 2304, 8),
    ("quantized.pte", b"ET12", 32, 1216, 1280, 1312),
    ("softmax.pte", b"ET12", None, 0, 0, 0),
    ("stories260k_qnn.pte", b"ET12", 32, 18688, 18688, 1331456),
    ("tutorial_bundled_program.bp", b"BP08", None, 0, 0, 0),
    ("xor.ptd", b"FT01", 40, 544, 544, 216),
    ("xor.pte", b"ET12", 24, 13704, 13824, None),
]


@pytest.mark.parametrize("facts", PUBLIC, ids=lambda facts: facts[0])
def test_a_public_file_is_what_it_is(
    real_files: Path, facts: tuple[str, bytes, int | None, int, int, int | None]
) -> None:
    name, identifier, length, end, base, size = facts
    with (real_files / name).open("rb") as file:
        head = file.read(HEAD_SIZE)

    kind = identify(head, name, (real_files / name).stat().st_size)
    header = parse_header(head, kind.header, name)

    assert kind.identifier == identifier
    if length is None:
        assert header is None
    else:
        assert header is not None
        assert header.length == length
        assert (header.metadata_end, header.segment_base_offset) == (end, base)
        assert header.segment_data_size == size


def test_every_public_file_is_in_the_table(real_files: Path) -> None:
    files = {one.name for one in real_files.iterdir() if one.suffix != ".md"}

    assert files == {one[0] for one in PUBLIC}
