"""Tries: a segment base 8 TiB behind the metadata, under a digest that would cover all of it.

Stopped by: the padding before the base is compared with the largest alignment before it is read.
"""

from __future__ import annotations

import cordbundle as cb
from cordbundle.cord import Fill
from tests.attacks.surgery import bundle, found, program, put_header, read
from tests.support import peak


def test_it_is_found_and_not_read() -> None:
    data = bundle("segmented", digest=True)
    old, far = read(data).header.segment_base_offset, 8 << 40
    end = read(data).metadata_end
    put_header(data, segment_base_offset=far)
    whole = cb.Cord(bytes(data[:old])) + cb.Cord.of(Fill(far - old)) + cb.Cord(bytes(data[old:]))
    said = (end, "padding before the segment base", "at most 1048580", str(far - end))
    assert found(whole) == said
    assert peak(lambda: found(whole)) < 1 << 22


def test_it_is_found_where_there_are_no_segments() -> None:
    data = bytes(cb.bundle(bytes(program()), [], form="detached").cord)
    far, tests = 8 << 40, bytearray(data)
    put_header(tests, segment_base_offset=far)
    whole = cb.Cord(bytes(tests)) + cb.Cord.of(Fill(far - len(tests)))
    what = "padding before the segment base"
    assert found(whole) == (len(data), what, "at most 1048580", str(far - len(data)))
