"""Whole files of generated programs and named data against ExecuTorch's."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer.schema import Kind, table_of

pytest.importorskip("flatbuffers")  # ExecuTorch's encoder

from tests.flatbuffer_samples import tables
from tests.test_program import as_executorch

BLOBS = st.binary(max_size=40) | st.sampled_from([b"", b"x" * 5000, b"same"])
ALIGNMENTS = st.sampled_from([1, 16, 64, 128])
KEYS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=9)

ENUMERATIONS: dict[str, list[int]] = {
    "scalar_type": [0, 1, 6, 11, 15, 22, 29],
    "shape_dynamism": [0, 1, 2],
    "location": [0, 1],
    "device_type": [0, 1],
}
"""Values that ExecuTorch has members for, by field."""


def sound(value: Any) -> Any:
    """Return a generated record as an exporter could have made it: complete, with known enums."""
    if isinstance(value, list):
        return [sound(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    made: dict[str, Any] = {}
    kind: type = type(value)
    for field in table_of(kind).fields:
        item = sound(getattr(value, field.name))
        if field.name in ENUMERATIONS and field.kind is Kind.SCALAR:
            members = ENUMERATIONS[field.name]
            item = members[item % len(members)]
        elif item is None and field.name in ("delegates", "values"):
            item = []
        made[field.name] = item
    return kind(**made)


@st.composite
def programs(draw: st.DrawFn) -> schema.Program:
    """Draw a program as an emitter gives it: all data inline, every payload used."""
    plans = sound(draw(st.lists(tables(schema.ExecutionPlan, 3), max_size=3)))
    payloads: list[schema.BackendDelegateInlineData] = []
    for plan in plans:
        for delegate in plan.delegates:
            delegate.processed = schema.BackendDelegateDataReference(0, len(payloads))
            payloads.append(schema.BackendDelegateInlineData(draw(BLOBS)))
    return schema.Program(
        version=draw(st.integers(0, 2**32 - 1)),
        execution_plan=plans,
        constant_buffer=[schema.Buffer(data) for data in draw(st.lists(BLOBS, max_size=4))],
        backend_delegate_data=payloads,
        segments=[],
        constant_segment=schema.SubsegmentOffsets(0, []),
        named_data=draw(st.sampled_from([None, []])),
    )


@st.composite
def stores(draw: st.DrawFn) -> cb.NamedDataStoreOutput:
    """Draw named data that ExecuTorch and we align alike: one alignment, absolute in both."""
    store = cb.NamedDataStore()
    for key in draw(st.lists(KEYS, unique=True, max_size=5)):
        store.add_named_data(key, draw(BLOBS), 1)
    return store.get_named_data_store_output()


MUTABLE = st.none() | st.lists(BLOBS.map(schema.Buffer), max_size=3)


@given(program=programs(), mutable=MUTABLE, named=st.none() | stores(), segment=ALIGNMENTS)
def test_a_generated_program_is_sound_and_reads_back_as_it_was_made(
    program: schema.Program,
    mutable: list[schema.Buffer] | None,
    named: cb.NamedDataStoreOutput | None,
    segment: int,
) -> None:
    cord = cb.serialize_pte(
        program, mutable_data=mutable, named_data=named, segment_alignment=segment
    )

    file = cb.open(cord)
    assert isinstance(file, cb.PteFile)
    file.check_structure()
    decoded = file.program()
    for plan in (*(decoded.execution_plan or ()), *(program.execution_plan or ())):
        for delegate in plan.delegates or ():
            delegate.processed = None
    assert decoded.execution_plan == program.execution_plan
    assert all(place.offset % segment == 0 for place in file.segment_ranges)
    expected = (
        {}
        if named is None
        else {k: named.buffers[e.buffer_index] for k, e in named.pte_data.items()}
    )
    assert {key: bytes(blob) for key, blob in file.named_data.items()} == expected


def _theirs(value: Any) -> Any:
    from executorch.exir import schema as exir_schema

    return as_executorch(value, exir_schema)


@pytest.mark.executorch
@pytest.mark.skipif(find_spec("executorch") is None, reason="ExecuTorch is not installed")
@given(
    program=programs(),
    mutable=MUTABLE,
    named=st.none() | stores(),
    segment=st.sampled_from([16, 48, 128, 4096]),
    tensor=st.none() | st.sampled_from([1, 16]),
    delegate=st.none() | st.sampled_from([1, 64]),
    extract=st.booleans(),
)
def test_a_generated_program_has_executorchs_bytes_and_records(
    program: schema.Program,
    mutable: list[schema.Buffer] | None,
    named: cb.NamedDataStoreOutput | None,
    segment: int,
    tensor: int | None,
    delegate: int | None,
    extract: bool,
) -> None:
    from executorch.exir._serialize import _program
    from executorch.exir._serialize._named_data_store import NamedDataStoreOutput
    from executorch.exir._serialize.data_serializer import DataEntry

    import cordbundle.executorch as ours
    from tests.executorch_suite.originals import forbidden

    if named is not None and not any(named.buffers):
        named = None  # a key that ExecuTorch would lose
    store = named and NamedDataStoreOutput(
        named.buffers,
        {key: DataEntry(e.buffer_index, 1, None) for key, e in named.pte_data.items()},
        {},
    )
    file = _program.PTEFile(_theirs(program), mutable and _theirs(mutable), store)
    options: dict[str, Any] = {
        "extract_delegate_segments": extract,
        "segment_alignment": segment,
        "constant_tensor_alignment": tensor,
        "delegate_alignment": delegate,
    }

    expected = bytes(_program.serialize_pte_binary(file, **options))
    with forbidden():
        found = ours.serialize_pte_binary(file, **options)
        record = ours.deserialize_pte_binary(found)

    assert bytes(found) == expected
    assert record == _program.deserialize_pte_binary(expected)


@pytest.mark.executorch
@pytest.mark.skipif(find_spec("executorch") is None, reason="ExecuTorch is not installed")
@given(
    items=st.dictionaries(KEYS, st.tuples(BLOBS, st.sampled_from([1, 16, 64])), max_size=6),
    segment=st.sampled_from([64, 128, 192]),
)
def test_generated_named_data_has_executorchs_bytes(
    items: dict[str, tuple[bytes, int]], segment: int
) -> None:
    from executorch.exir._serialize._named_data_store import NamedDataStore
    from executorch.exir._serialize.data_serializer import DataPayload
    from executorch.extension.flat_tensor.serialize.serialize import (
        FlatTensorConfig,
        FlatTensorSerializer,
    )

    import cordbundle.executorch as ours
    from tests.executorch_suite.originals import forbidden

    theirs = NamedDataStore()
    for key, (blob, alignment) in items.items():
        theirs.add_named_data(key, blob, alignment, "file" if alignment > 1 else None)
    output = theirs.get_named_data_store_output()
    payload = DataPayload(output.buffers, output.external_data.get("file", {}))
    config = FlatTensorConfig(segment)
    expected = bytes(FlatTensorSerializer(config).serialize(payload))

    with forbidden():
        mine = ours.NamedDataStore()
        for key, (blob, alignment) in items.items():
            mine.add_named_data(key, blob, alignment, "file" if alignment > 1 else None)
        found = ours.FlatTensorSerializer(config).serialize(payload)

    assert mine.get_named_data_store_output() == output
    assert bytes(found) == expected
