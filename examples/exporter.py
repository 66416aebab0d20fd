"""An exporter of an invented format, on cordbundle's Cord, Layout and write alone.

The format "TOY1" is built like ExecuTorch's: a small flatbuffer that describes blobs, an extended
header behind its identifier, and the blobs as segments, each aligned from the start of the file.

    table Blob { name: string; offset: uint64; size: uint64; }   // offset counts from the base
    table Toy { blobs: [Blob]; }                                 // identifier "TOY1"

    python examples/exporter.py OUT.toy weights=weights.bin tokenizer=tokenizer.json

What to take from it for an exporter of your own: describe blobs as segments, plan once with no
head to learn their offsets from the base, build the metadata with these, plan again with its size,
and write one Cord. No blob is read before it is written, and the file appears whole or not at all.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence

import flatbuffers

import cordbundle as cb

ALIGNMENT = 4096
HEADER = struct.Struct("<4sIQQ")  # magic, its own length, segment base, bytes of segments
HEADER_SLOT = 32  # the header, padded so that what follows keeps its alignment


def plan(blobs: Mapping[str, cb.Cord]) -> list[cb.Segment]:
    """Describe every blob as a segment."""
    return [cb.Segment(name, data, ALIGNMENT) for name, data in blobs.items()]


def metadata(segments: Sequence[cb.Segment], layout: cb.Layout) -> bytes:
    """Build the flatbuffer by the exporter's own means; here, by hand."""
    builder = flatbuffers.Builder()
    tables = []
    for number, segment in enumerate(segments):
        name = builder.CreateString(segment.name)
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUint64Slot(1, layout.relative(number), 0)
        builder.PrependUint64Slot(2, len(segment.data), 0)
        tables.append(builder.EndObject())
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    vector = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TOY1")
    return bytes(builder.Output())


def export(blobs: Mapping[str, cb.Cord]) -> cb.Cord:
    """Return the whole file, every blob by reference."""
    segments = plan(blobs)
    described = metadata(segments, cb.Layout.plan(segments))
    layout = cb.Layout.plan(segments, head_size=HEADER_SLOT + len(described))
    header = HEADER.pack(b"th00", HEADER.size, layout.base, layout.segment_data_size)
    root = struct.unpack_from("<I", described)[0] + HEADER_SLOT
    head = struct.pack("<I", root) + described[4:8] + header.ljust(HEADER_SLOT, b"\0")
    return cb.Cord(head) + described[8:] + layout.body()


def main(arguments: Sequence[str]) -> None:
    """Write the file named first with the blobs named after it."""
    target, *pairs = arguments
    named = (pair.split("=", 1) for pair in pairs)
    cord = export({name: cb.Cord.from_file(path) for name, path in named})
    report = cb.write(cord, target)
    print(f"{target}: {report.nbytes} bytes in {report.seconds:.3f} s, {dict(report.transfers)}")


if __name__ == "__main__":
    main(sys.argv[1:])
