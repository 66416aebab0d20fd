"""What opened files of all kinds share: what is refused, word for word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.cord import Cord
from cordbundle.flatbuffer import Finding, encode
from cordbundle.headers import PROGRAM_HEADER, ExtendedHeader, flatbuffer_with_header
from tests.attacks.surgery import put_header, with_segments
from tests.faults import counted_call
from tests.support import program

ROOT = schema.Program(
    execution_plan=[],
    segments=[schema.DataSegment(0, 8), schema.DataSegment(8, 100)],
    named_data=[schema.NamedData("a", 0), schema.NamedData("b", 1), schema.NamedData("c", 2)],
)
METADATA = encode(ROOT, schema.PROGRAM_IDENTIFIER).cord
END = len(METADATA) + 32
BASE = 256


def file(size: int, base: int = BASE, data_size: int | None = 8, end: int = END) -> bytes:
    """Return a program of so many bytes, whose header says these things."""
    header = PROGRAM_HEADER.pack(ExtendedHeader(0, end, base, data_size), 32)
    return bytes(flatbuffer_with_header(METADATA, header)).ljust(size, b"\0")[:size]


def refused(data: bytes) -> str:
    with pytest.raises(cb.FormatError) as caught:
        cb.PteFile(Cord(data), "m.pte")
    return str(caught.value)


def opened(data: bytes) -> cb.PteFile:
    return cb.PteFile(Cord(data), "m.pte")


def test_a_file_as_long_as_its_header_says_is_opened() -> None:
    assert opened(file(BASE + 8)).segment_ranges == (
        cb.SegmentRange(BASE, 8),
        cb.SegmentRange(BASE + 8, 100),
    )
    assert opened(file(END, base=0, data_size=0)).metadata_end == END
    assert opened(file(BASE, data_size=0)).header is not None


def test_another_kind_of_file_is_named_with_its_kind() -> None:
    bundle = bytes(cb.bundle(program([]), []).cord)

    assert refused(bundle) == (
        "m.pte: another kind of file at offset 4: found b'BP08', a bundled program (.bpte),"
        " expected b'ET12'"
    )
    with pytest.raises(cb.FormatError, match=r"expected b'BP08' or b'BPS1'$"):
        cb.BundleFile(Cord(program([])), "m.bpte")


def test_a_file_that_ends_before_its_metadata_or_segments_do_is_refused() -> None:
    assert refused(file(END, end=END + 1, base=0, data_size=0)) == (
        f"m.pte: file ends before its metadata do at offset {END}: found {END} bytes,"
        f" expected {END + 1} bytes; a download or copy is 1 byte short"
    )
    assert refused(file(BASE + 7)) == (
        f"m.pte: file ends before its segments do at offset {BASE + 7}: found {BASE + 7} bytes,"
        f" expected {BASE + 8} bytes; a download or copy is 1 byte short"
    )


def test_an_end_beyond_all_files_is_no_matter_of_a_short_download() -> None:
    last = 2**63 - 1

    assert refused(file(BASE + 8, base=last, data_size=1)) == (
        f"m.pte: segments would end where no file can at offset 8: found {last + 1},"
        f" expected at most {last}"
    )
    assert "a download or copy is" in refused(file(BASE + 8, base=last, data_size=0))


def test_a_segment_that_is_not_there_or_not_whole_is_refused_by_what_it_is_for() -> None:
    found = opened(file(BASE + 8))

    assert bytes(found.segment(0, "key 'a'")) == bytes(8)
    with pytest.raises(cb.TruncatedError) as short:
        found.segment(1, "key 'b'")
    assert str(short.value) == (
        f"m.pte: key 'b' ends after the file at offset {BASE + 8}: found an end at {BASE + 108},"
        f" expected an end at or before {BASE + 8}"
    )
    for index in (2, -1):
        with pytest.raises(cb.FormatError) as absent:
            found.segment(index, "key 'c'")
        assert str(absent.value) == (
            f"m.pte: segment of key 'c' does not exist: found {index}, expected an index below 2"
        )


def test_an_empty_range_may_stand_anywhere() -> None:
    assert len(opened(file(BASE + 8)).range_of(10**6, 0, "nothing")) == 0


def test_an_unknown_scalar_type_is_refused_by_what_has_it() -> None:
    with pytest.raises(cb.FormatError) as caught:
        opened(file(BASE + 8)).scalar_type(8, "input 0")

    assert str(caught.value).startswith("m.pte: input 0 has an unknown scalar type: found 8,")
    assert str(caught.value).endswith(str([kind.value for kind in cb.ScalarType]))


def test_a_file_is_shown_by_its_name_and_size_and_as_closed() -> None:
    found = opened(file(BASE + 8))

    assert repr(found) == f"<PteFile 'm.pte', {BASE + 8} bytes>"
    found.close()
    assert repr(found) == "<PteFile 'm.pte', closed>"


def test_the_structure_is_checked_up_to_where_segments_stand() -> None:
    with pytest.raises(cb.FormatError) as outside:
        opened(file(BASE + 8)).check_structure()
    assert str(outside.value) == (
        f"m.pte: segment 1 ends after the file at offset {BASE + 8}:"
        f" found an end at {BASE + 108}, 100 bytes missing,"
        f" expected an end at or before {BASE + 8}"
    )

    broken = bytearray(file(BASE + 200, data_size=None))
    broken[0] = 9  # the root offset
    with pytest.raises(cb.FormatError, match=r"^m\.pte: "):
        opened(bytes(broken)).check_structure()
    whole = file(BASE + 8 + 100 + 5, data_size=108)
    opened(whole).check_structure()  # trailing bytes are no matter of structure
    assert [one.what for one in opened(whole).verify()] == [
        "segment of key 'c' does not exist",
        "bytes after the last segment",
    ]


def test_findings_are_reported_as_done_where_no_payload_is_read() -> None:
    calls: list[tuple[int, int]] = []

    opened(file(BASE + 108, data_size=108)).verify(lambda *done: calls.append(done))

    assert calls == [(END, END)]


def test_a_file_too_short_or_with_a_damaged_header_is_refused_by_its_name() -> None:
    damaged = bytearray(file(BASE + 8))
    put_header(damaged, length=8)

    assert refused(b"abc") == (
        "m.pte: too short for any ExecuTorch file at offset 0: found 3 bytes,"
        " expected at least 8 bytes; the download or the copy may have failed"
    )
    assert refused(bytes(damaged)).startswith("m.pte: ")


def test_damaged_metadata_is_refused_by_the_name_of_the_file() -> None:
    found = opened(file(BASE + 8)[:8] + b"\xff" * (END - 8) + bytes(BASE + 8 - END))

    with pytest.raises(cb.FormatError, match=r"^m\.pte: "):
        _ = found.segment_ranges


def test_closing_forgets_what_was_read_on_demand() -> None:
    found = opened(file(BASE + 8))
    assert len(found.segment_ranges) == 2

    found.close()

    with pytest.raises(ValueError, match=r"^m\.pte is closed$"):
        _ = found.segment_ranges


def test_a_damaged_flatbuffer_is_told_before_the_places_of_segments() -> None:
    broken = bytearray(file(BASE + 8))
    end = broken.index(b"\1\0\0\0a\0") + 5  # of a key
    broken[end] = 7

    with pytest.raises(cb.FormatError) as caught:
        opened(bytes(broken)).check_structure()
    assert str(caught.value) == (
        f"m.pte: NamedData.key does not end with NUL at offset {end}: found 7, expected 0"
    )


class Worn(cb.PteFile):
    """A program whose check ends with an error."""

    where: int | None = None

    def _contents(self) -> Iterator[Finding]:
        yield Finding(7, "first", "one", "two")
        raise cb.FormatError("last", offset=self.where, expected=3, actual=4)


@pytest.mark.parametrize(("where", "text"), [(None, "offset 0"), (9, "offset 9")])
def test_an_error_that_ends_a_check_is_its_last_finding(where: int | None, text: str) -> None:
    worn = Worn(Cord(file(BASE + 108, data_size=108)), "m.pte")
    worn.where = where

    assert [str(one) for one in worn.verify()] == sorted(
        ["offset 7: first: found two, expected one", f"{text}: last: found 4, expected 3"]
    )


# Padding -------------------------------------------------------------------------------------


def apart(*gaps: int, last: bytes = b"X") -> bytearray:
    """Return a program of segments of one byte, with gaps between them that end with a byte."""
    offsets, data = [0], b"s"
    for gap in gaps:
        data += (last if gap else b"").rjust(gap, b"\0")
        offsets.append(len(data))
        data += b"s"
    table = [schema.DataSegment(offset, 1) for offset in offsets]
    return with_segments(schema.Program(execution_plan=[], segments=table), data)


def paddings(data: bytes | bytearray) -> list[str]:
    return [str(one) for one in opened(bytes(data)).verify()]


def test_padding_behind_one_that_is_too_long_to_be_read_is_looked_at() -> None:
    data = apart((1 << 20) + 1, 2, 0, 3)
    end = len(data)

    assert paddings(data) == [
        f"offset {end - 7}: padding: found 88, expected 0",
        f"offset {end - 2}: padding: found 88, expected 0",
    ]


@pytest.mark.parametrize("data_size", [None, 0])
def test_a_byte_behind_a_base_without_segments_is_no_padding(data_size: int | None) -> None:
    data = with_segments(schema.Program(execution_plan=[]), b"")
    end = len(data)
    put_header(data, segment_base_offset=end + 8)
    if data_size is None:
        put_header(data, length=24)
    last = end if data_size is None else end + 8

    assert paddings(data + bytes(8) + b"\7") == [
        f"offset {last}: bytes after the last segment: found {end + 9 - last}, expected none"
    ]


def test_gaps_that_stand_together_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(apart(*[3] * 300, last=b"\0"))

    with cb.open(tmp_path / "m.pte") as found, counted_call("preadv") as calls:
        assert found.verify() == []
    assert len(calls) < 10
