"""The drop-ins against ExecuTorch: the same bytes and records, and where not, who is right."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb

pytestmark = pytest.mark.executorch

if find_spec("executorch") is None or find_spec("torch") is None:
    pytest.skip("ExecuTorch and PyTorch are not installed", allow_module_level=True)

import torch
from executorch.exir import ExecutorchBackendConfig, schema
from executorch.exir._serialize import _cord, _named_data_store, _program, _serialize
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload, DataSerializer
from executorch.exir.tensor_layout import TensorLayout
from executorch.exir.tests.common import get_test_program
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorConfig
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer as Original
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

import cordbundle.executorch as ours
from cordbundle import ptd_schema
from cordbundle.inputs import blob_cord
from cordbundle.ptd_old_schema import OldFlatTensor, TensorMetadata
from tests.attacks.surgery import put_u32, root, target_at, weights_with
from tests.executorch_models import (
    CONFIGS,
    INPUTS,
    MODELS,
    Conditional,
    Counter,
    Linear,
    manager,
)
from tests.executorch_suite.originals import OriginalCalledError, forbidden

PTEFile = _program.PTEFile
Output = _named_data_store.NamedDataStoreOutput


def serialized(name: str) -> tuple[cb.Cord, dict[str, cb.Cord]]:
    """Serialize the same emitter's output with cordbundle."""
    theirs = manager(name)
    config = CONFIGS.get(name) or ExecutorchBackendConfig()
    serializer = ours.FlatTensorSerializer(FlatTensorConfig(config.segment_alignment))
    with forbidden():
        return ours.serialize_for_executorch(
            theirs._emitter_output, config, serializer, theirs._named_data
        )


# Exported models -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_has_executorchs_bytes(name: str) -> None:
    theirs = manager(name)

    pte, ptd_files = serialized(name)

    assert bytes(pte) == theirs.buffer
    assert {tag: bytes(cord) for tag, cord in ptd_files.items()} == {
        tag: bytes(cord) for tag, cord in theirs._tensor_data.items()
    }
    assert bool(ptd_files) == ("external" in name)


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_is_read_into_equal_records(name: str) -> None:
    data = manager(name).buffer
    expected = _program.deserialize_pte_binary(data)

    with forbidden():
        found = ours.deserialize_pte_binary(data)

    assert found == expected
    assert _types(found) == _types(expected)


def _types(value: Any) -> Any:
    """Return the classes of a tree of records; enumerations are equal to plain numbers."""
    if isinstance(value, list):
        return [_types(item) for item in value]
    fields = getattr(value, "__dataclass_fields__", {})
    return type(value), {name: _types(getattr(value, name)) for name in fields}


@pytest.mark.parametrize("name", INPUTS)
def test_the_runtime_runs_what_is_written(name: str) -> None:
    pte, ptd_files = serialized(name)
    files = [bytes(cord) for cord in (pte, *ptd_files.values())]  # which the runtime points into
    module = _load_for_executorch_from_buffer(*files)

    result = module.forward(INPUTS[name])

    torch.testing.assert_close(result[0], expected_output(name))


def expected_output(name: str) -> Any:
    """Run the model without ExecuTorch."""
    models: dict[str, Any] = {"mutable buffer": Counter(), "control flow": Conditional()}
    size = 64 if "delegate" in name else 4
    return models.get(name, Linear(size))(*INPUTS[name]).detach()


def test_real_programs_are_read_into_equal_records(real_files: Path) -> None:
    names = sorted(real_files.rglob("*.pte"))
    assert names
    for path in names:
        data = path.read_bytes()
        with forbidden():
            found = ours.deserialize_pte_binary(data)
        assert found == _program.deserialize_pte_binary(data), path.name


# Made programs -------------------------------------------------------------------------------


def made(*constants: bytes, delegates: tuple[bytes, ...] = ()) -> Any:
    program = get_test_program()
    program.constant_buffer = [schema.Buffer(data) for data in constants]
    program.backend_delegate_data = [schema.BackendDelegateInlineData(d) for d in delegates]
    inline = schema.DataLocation.INLINE
    program.execution_plan[0].delegates = [
        schema.BackendDelegate(f"d{n}", schema.BackendDelegateDataReference(inline, n), [])
        for n in range(len(delegates))
    ]
    return program


NAMED = Output(
    buffers=[b"one", b"", b"three" * 99],
    pte_data={"a": DataEntry(2, 64, None), "b": DataEntry(1, 0, None), "c": DataEntry(2, 64, None)},
    external_data={"outside": {"d": DataEntry(0, 16, None)}},
)

PTE_FILES = {
    "nothing": lambda: PTEFile(made()),
    "placeholder": lambda: PTEFile(made(b"")),
    "constants": lambda: PTEFile(made(b"", b"a", b"bc" * 50, b"")),
    "mutable": lambda: PTEFile(made(b""), mutable_data=[schema.Buffer(b""), schema.Buffer(b"x")]),
    "no mutable bytes": lambda: PTEFile(made(b""), mutable_data=[schema.Buffer(b"")]),
    "delegates": lambda: PTEFile(made(b"", delegates=(b"d" * 5000, b"", b"e", b"e"))),
    "named": lambda: PTEFile(made(b"", b"c"), named_data=NAMED),
    "no names": lambda: PTEFile(made(b""), named_data=Output([], {}, {})),
    "all": lambda: PTEFile(
        made(b"", b"c", delegates=(b"d",)), mutable_data=[schema.Buffer(b"x")], named_data=NAMED
    ),
}
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"extract_delegate_segments": True},
    {"segment_alignment": 4096, "constant_tensor_alignment": 128},
    {"delegate_alignment": 1, "extract_delegate_segments": True},
    {"delegate_alignment": 1024, "constant_tensor_alignment": 1},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", PTE_FILES)
def test_a_made_program_has_executorchs_bytes_and_reads_back_equal(
    name: str, options: dict[str, Any]
) -> None:
    expected = bytes(_program.serialize_pte_binary(PTE_FILES[name](), **options))

    with forbidden():
        found = ours.serialize_pte_binary(PTE_FILES[name](), **options)
        record = ours.deserialize_pte_binary(found)

    assert bytes(found) == expected
    assert record == _program.deserialize_pte_binary(expected)


@pytest.mark.parametrize("alignment", [3, 100, 65536])
def test_an_odd_segment_alignment_is_honoured_as_executorch_does(alignment: int) -> None:
    # With constants aligned to 1, so that their own alignment asks for nothing more.
    options: dict[str, Any] = {"segment_alignment": alignment, "constant_tensor_alignment": 1}
    expected = bytes(_program.serialize_pte_binary(PTE_FILES["constants"](), **options))

    with forbidden():
        found = ours.serialize_pte_binary(PTE_FILES["constants"](), **options)

    assert bytes(found) == expected


@pytest.mark.parametrize("index", [5, -1])
def test_a_delegate_index_out_of_range_is_an_error_from_the_tree(index: int) -> None:
    program = made(b"", delegates=(b"d",))
    program.execution_plan[0].delegates[0].processed.index = index

    with pytest.raises(cb.LayoutError, match="delegate 'd0' of method 'forward'"):
        ours.serialize_pte_binary(PTEFile(program), extract_delegate_segments=True)


# Where ExecuTorch is wrong -------------------------------------------------------------------


def test_executorch_does_not_align_blobs_from_the_start_of_the_file_and_we_do() -> None:
    named = Output([b"x" * 8], {"k": DataEntry(0, 4096, None)}, {})
    file = PTEFile(made(b"", b"c"), named_data=named)

    theirs = bytes(_program.serialize_pte_binary(file))
    found = bytes(ours.serialize_pte_binary(file))

    assert theirs.find(b"x" * 8) % 4096 != 0
    assert found.find(b"x" * 8) % 4096 == 0
    assert _load_for_executorch_from_buffer(found).method_names() == ["forward"]


def test_executorch_takes_the_first_keys_alignment_for_a_shared_blob_and_we_all() -> None:
    named = Output([b"y", b"x" * 8], {"o": DataEntry(0, 1, None)}, {})
    named.pte_data |= {"a": DataEntry(1, 1, None), "b": DataEntry(1, 4096, None)}
    file = PTEFile(made(b""), named_data=named)

    theirs = bytes(_program.serialize_pte_binary(file))
    found = bytes(ours.serialize_pte_binary(file))

    assert theirs.find(b"x" * 8) % 4096 != 0
    assert found.find(b"x" * 8) % 4096 == 0
    assert _load_for_executorch_from_buffer(found).method_names() == ["forward"]


def test_executorch_loses_a_key_whose_blob_is_empty_and_alone_and_we_keep_it() -> None:
    file = PTEFile(made(b""), named_data=Output([b""], {"k": DataEntry(0, 1, None)}, {}))

    theirs = _program.deserialize_pte_binary(bytes(_program.serialize_pte_binary(file)))
    found = bytes(ours.serialize_pte_binary(file))

    assert theirs.named_data is None
    assert ours.deserialize_pte_binary(found).named_data == file.named_data
    assert _load_for_executorch_from_buffer(found).method_names() == ["forward"]


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_executorch_does_not_align_weights_from_the_start_of_their_file_and_we_do(
    shared: bool,
) -> None:
    emitted = manager("external constants")._emitter_output
    ((tag, constants),) = emitted.external_constant_map.items()
    key, index = list(constants.items())[-1]
    data = emitted.external_constant_buffer[index]
    entries = {"first": DataEntry(1, 1, None)} if shared else {}
    entries["aligned"] = DataEntry(1, 4096, None)
    payload = DataPayload([b"other", data], {"other": DataEntry(0, 1, None), **entries})
    store = Output(payload.buffers, {}, {tag: payload.named_data})

    theirs = bytes(Original().serialize(payload))
    found = bytes(ours.FlatTensorSerializer().serialize(payload))
    pte, ptd_files = ours.serialize_for_executorch(
        emitted,
        ExecutorchBackendConfig(external_constants=True),
        ours.FlatTensorSerializer(),
        store,
    )

    assert theirs.find(data) % 4096 != 0
    assert found.find(data) % 4096 == 0
    assert bytes(ptd_files[tag]).find(data) % 4096 == 0
    assert key in cb.load_ptd(ptd_files[tag])
    files = [bytes(cord) for cord in (pte, ptd_files[tag])]
    result = _load_for_executorch_from_buffer(*files).forward(INPUTS["external constants"])
    torch.testing.assert_close(result[0], expected_output("external constants"))


def test_executorch_crashes_on_external_constants_without_a_store_and_we_do_not() -> None:
    theirs = manager("external constants")
    config = ExecutorchBackendConfig(external_constants=True)
    with pytest.raises(AttributeError):
        _serialize.serialize_for_executorch(theirs._emitter_output, config, Original(), None)

    pte, ptd_files = ours.serialize_for_executorch(
        theirs._emitter_output, config, ours.FlatTensorSerializer(), None
    )

    files = [bytes(cord) for cord in (pte, *ptd_files.values())]
    module = _load_for_executorch_from_buffer(*files)
    assert module.forward(INPUTS["external constants"])[0].shape == (2, 4)


# Stores and serializers ----------------------------------------------------------------------


class Recording(DataSerializer):  # type: ignore[misc]  # ExecuTorch has no types
    """A third serializer."""

    def __init__(self) -> None:
        self.payloads: list[DataPayload] = []

    def serialize(self, data: DataPayload) -> Any:
        self.payloads.append(data)
        return _cord.Cord(b"".join(data.buffers))

    def deserialize(self, blob: Any) -> DataPayload:
        raise NotImplementedError


def filled(store: Any) -> Any:
    torch.manual_seed(0)
    weight = torch.randn(2, 3, 4, 5)
    store.add_named_data("weight", weight, 16, "file")
    store.add_named_data("last", weight.contiguous(memory_format=torch.channels_last), 1, "file")
    store.add_named_data("same", weight.clone(), 128, "file")
    store.add_named_data("row", torch.ones(1, 3, 1, 1), 1, "file")
    store.add_named_data("column", torch.ones(1, 3, 1, 1).to(memory_format=torch.channels_last))
    pixel = torch.ones(1, 1, 1, 2).to(memory_format=torch.channels_last)  # torch: (0, 2, 3, 1)
    store.add_named_data("pixel", pixel, 1, "file")
    store.add_named_data("brain", torch.ones(3, dtype=torch.bfloat16), 1, "file")
    store.add_named_data("none", torch.ones(0, 3), 1, "file")
    store.add_named_data("plain", b"bytes" * 9, 3, "other")
    return store


def test_a_store_gives_executorchs_records() -> None:
    expected = filled(_named_data_store.NamedDataStore()).get_named_data_store_output()

    with forbidden():
        found = filled(ours.NamedDataStore()).get_named_data_store_output()

    assert found == expected
    assert _types(found.external_data["file"]["last"]) == _types(
        expected.external_data["file"]["last"]
    )


@pytest.mark.parametrize("tag", ["file", "other"])
def test_a_flat_tensor_file_has_executorchs_bytes_and_reads_back_equal(tag: str) -> None:
    output = filled(_named_data_store.NamedDataStore()).get_named_data_store_output()
    payload = DataPayload(output.buffers, output.external_data[tag])
    config = FlatTensorConfig(segment_alignment=384)  # a multiple of all that is asked for
    expected = bytes(Original(config).serialize(payload))
    read = Original().deserialize(_cord.Cord(expected))

    with forbidden():
        found = ours.FlatTensorSerializer(config).serialize(payload)
        back = ours.FlatTensorSerializer().deserialize(found)

    assert bytes(found) == expected
    assert back == read
    assert _types(replace(back, buffers=list(back.buffers))) == _types(read)


def test_segments_that_were_read_are_cut_out_of_the_file_when_they_are_asked_for() -> None:
    entries = {key: DataEntry(index, 1, None) for index, key in enumerate("abc")}
    payload = DataPayload([b"a" * 300, b"bc", b"d"], entries)
    data = bytearray(bytes(ours.FlatTensorSerializer().serialize(payload)))

    read = ours.FlatTensorSerializer().deserialize(data).buffers

    assert read == payload.buffers
    assert read[1:] == payload.buffers[1:]
    assert read != payload.buffers[1:]
    assert type(copy.deepcopy(read)) is type(pickle.loads(pickle.dumps(read))) is list
    data[data.index(b"bc")] = ord("B")
    assert (read[1], type(read[1])) == (b"Bc", bytes)


@pytest.mark.parametrize(
    "named", [{}, {"k": DataEntry(0, 0, None)}], ids=["nothing", "an empty blob"]
)
def test_a_flat_tensor_file_without_bytes_has_executorchs(named: dict[str, DataEntry]) -> None:
    payload = DataPayload([b""], named)

    with forbidden():
        found = ours.FlatTensorSerializer().serialize(payload)

    assert bytes(found) == bytes(Original().serialize(payload))


def test_weights_of_the_older_schema_are_refused_by_name() -> None:
    tensors = [TensorMetadata("w", 6, [4], [0], 0, 0)]
    old = weights_with(OldFlatTensor(0, 16, tensors, [ptd_schema.DataSegment(0, 16)]), bytes(16))

    with pytest.raises(
        cb.UnsupportedVersionError, match="<memory>: weights are of an older schema"
    ):
        ours.FlatTensorSerializer().deserialize(bytes(old))


def test_weights_of_a_newer_version_are_refused_before_their_metadata_is_read() -> None:
    data = weights_with(ptd_schema.FlatTensor(7, [], [ptd_schema.NamedData("k", 9)]))
    entry = root(data).named_data[0]
    put_u32(data, target_at(entry, "key"), 2**31)  # longer than the file

    with pytest.raises(
        NotImplementedError, match="newer schema version: found 7, expected at most"
    ):
        ours.FlatTensorSerializer().deserialize(bytes(data))


@pytest.mark.parametrize("kind", [Original, ours.FlatTensorSerializer])
def test_tensors_of_a_store_reach_any_serializer(kind: Any) -> None:
    output = filled(ours.NamedDataStore()).get_named_data_store_output()
    emitted = manager("external constants")._emitter_output
    third = Recording()

    _, by_third = ours.serialize_for_executorch(emitted, ExecutorchBackendConfig(), third, output)
    _, found = ours.serialize_for_executorch(emitted, ExecutorchBackendConfig(), kind(), output)

    (constants,) = emitted.external_constant_map
    assert list(found) == list(by_third) == [constants, "file", "other"]
    assert list(cb.load_ptd(bytes(found["file"]))) == [
        "weight",
        "last",
        "same",
        "row",
        "pixel",
        "brain",
        "none",
    ]
    assert all(isinstance(blob, bytes) for blob in third.payloads[0].buffers)


def test_constants_of_the_emitter_come_first_and_are_merged_with_the_store() -> None:
    emitted = manager("external constants")._emitter_output
    (tag,) = emitted.external_constant_map
    store = ours.NamedDataStore()
    store.add_named_data("extra", b"blob", 16, tag)

    _, files = ours.serialize_for_executorch(
        emitted,
        ExecutorchBackendConfig(),
        ours.FlatTensorSerializer(),
        store.get_named_data_store_output(),
    )

    assert list(cb.load_ptd(files[tag])) == [*emitted.external_constant_map[tag], "extra"]


REFUSED = [
    pytest.param(lambda: torch.ones(2, 3, 4).permute(2, 0, 1), "channels-last", id="permuted"),
    pytest.param(lambda: torch.ones(2).to("meta"), "meta", id="meta"),
    pytest.param(lambda: torch.ones(2).to_sparse(), "sparse", id="sparse"),
    pytest.param(lambda: torch.ones(2, dtype=torch.cfloat).conj(), "conj", id="conjugated"),
    pytest.param(lambda: torch.ones(2, dtype=torch.cfloat), "complex64", id="complex"),
]


@pytest.mark.parametrize(("make", "text"), REFUSED)
def test_a_tensor_that_cannot_be_stored_is_refused_by_its_key(make: Any, text: str) -> None:
    with pytest.raises(cb.LayoutError, match=f"key 'w': .*{text}"):
        ours.NamedDataStore().add_named_data("w", make())


def test_other_tensors_are_stored_exactly() -> None:
    store = ours.NamedDataStore()
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.quint8)
    base = torch.arange(8.0)
    for key, tensor in {
        "float8": torch.ones(3).to(torch.float8_e4m3fn),
        "float8 without negative zero": torch.ones(3).to(torch.float8_e5m2fnuz),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "quantized": quantized,
        "view": base[2:4],
    }.items():
        store.add_named_data(key, tensor)

    assert [bytes(blob_cord(blob)) for blob in store.buffers] == [
        b"\x38" * 3,
        b"\x40" * 3,
        b"\0\0\x80?" * 2,
        b"\3" * 3,
        b"\0\0\0@\0\0@@",
    ]


def test_file_backed_data_is_taken_by_reference(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"payload" * 9)
    data = _cord.FileBackedData(str(path))
    store = ours.NamedDataStore()
    store.add_named_data("k", data, 16)
    named = store.get_named_data_store_output()

    cord = ours.serialize_pte_binary(PTEFile(made(b""), named_data=named))
    cord.check_invariants()

    assert named.buffers == [data]
    assert bytes(cord).endswith(b"payload" * 9)
    path.write_bytes(b"other!!" * 9)
    with pytest.raises(cb.SourceChangedError):
        cb.write(cord, tmp_path / "m.pte")


def test_a_newer_flat_tensor_file_is_refused_as_in_executorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from executorch.extension.flat_tensor.serialize import serialize

    serializer = ours.FlatTensorSerializer()
    monkeypatch.setattr(serialize, "_FLAT_TENSOR_VERSION", 7)
    newer = serializer.serialize(DataPayload([b"x"], {"k": DataEntry(0, 1, None)}))
    assert serializer.deserialize(newer).buffers == [b"x"]
    monkeypatch.undo()

    with pytest.raises(NotImplementedError, match="newer schema version: found 7"):
        serializer.deserialize(newer)
    with pytest.raises(cb.UnsupportedVersionError):
        serializer.deserialize(bytes(newer))


# Damaged files -------------------------------------------------------------------------------


def test_a_program_cut_anywhere_is_an_error_from_the_tree() -> None:
    data = bytes(ours.serialize_pte_binary(PTE_FILES["all"](), extract_delegate_segments=True))

    for size in range(len(data)):
        with pytest.raises(cb.FormatError):
            ours.deserialize_pte_binary(data[:size])


def test_a_flat_tensor_file_cut_anywhere_is_an_error_from_the_tree() -> None:
    payload = DataPayload(
        [b"one"], {"k": DataEntry(0, 1, TensorLayout(schema.ScalarType.BYTE, [3], [0]))}
    )
    data = bytes(ours.FlatTensorSerializer().serialize(payload))

    for size in range(len(data)):
        with pytest.raises(cb.FormatError):
            ours.FlatTensorSerializer().deserialize(data[:size])


def test_a_number_that_is_in_no_enumeration_is_an_error_from_the_tree() -> None:
    program = made(b"")
    program.execution_plan[0].values[4].val.scalar_type = 99
    data = bytes(ours.serialize_pte_binary(PTEFile(program)))

    with pytest.raises(cb.FormatError, match=r"Tensor\.scalar_type is unknown: found 99"):
        ours.deserialize_pte_binary(data)


def test_a_segment_index_that_does_not_exist_is_an_error_from_the_tree() -> None:
    from cordbundle import program as description
    from cordbundle.flatbuffer import encode
    from cordbundle.headers import PROGRAM_HEADER, ExtendedHeader, insert_header

    root = description.Program(named_data=[description.NamedData("k", 3)], execution_plan=[])
    flat = bytes(encode(root, description.PROGRAM_IDENTIFIER).cord)
    size = len(flat) + 32
    header = ExtendedHeader(0, size, size, 1)
    head = insert_header(flat[:8], PROGRAM_HEADER.pack(header, 32))

    with pytest.raises(cb.FormatError, match="segment of key 'k' does not exist"):
        ours.deserialize_pte_binary(head + flat[8:] + b"x")


def with_tables(**tables: Any) -> bytes:
    """Return a program without constants, with one segment of four bytes and these tables."""
    from cordbundle import program as description
    from cordbundle.flatbuffer import encode
    from cordbundle.headers import PROGRAM_HEADER, ExtendedHeader, insert_header

    root = description.Program(
        execution_plan=[], constant_buffer=[], backend_delegate_data=[], **tables
    )
    flat = bytes(encode(root, description.PROGRAM_IDENTIFIER).cord)
    size = len(flat) + 32
    head = insert_header(flat[:8], PROGRAM_HEADER.pack(ExtendedHeader(0, size, size, 4), 32))
    return head + flat[8:] + b"data"


def test_a_segment_that_is_listed_twice_is_read_as_by_executorch_and_found_by_verify() -> None:
    from cordbundle import program as description

    data = with_tables(
        segments=[description.DataSegment(0, 4), description.DataSegment(0, 4)],
        named_data=[description.NamedData("a", 0), description.NamedData("b", 1)],
    )

    found = ours.deserialize_pte_binary(data)

    assert found == _program.deserialize_pte_binary(data)
    assert found.named_data.buffers == [b"data"]
    (finding,) = cb.open(data).verify()
    assert "segment 1 begins inside segment 0" in finding.what
    with pytest.raises(cb.FormatError, match="segment 1 overlaps"):
        cb.rewrite(cb.open(data))


def test_a_table_of_constants_without_offsets_is_none_as_in_executorch() -> None:
    from cordbundle import program as description

    data = with_tables(
        segments=[description.DataSegment(0, 4)],
        named_data=[description.NamedData("a", 0)],
        constant_segment=description.SubsegmentOffsets(0, []),
    )

    found = ours.deserialize_pte_binary(data)

    assert found == _program.deserialize_pte_binary(data)
    assert (found.program.constant_buffer, found.named_data.buffers) == ([], [b"data"])
    assert cb.open(data).verify() == []
    assert bytes(cb.rewrite(cb.open(data)).cord) == data


# External tags as file names -----------------------------------------------------------------


def test_external_files_get_the_names_that_executorch_gives_them(tmp_path: Path) -> None:
    cords = {"a": cb.Cord(b"1"), "b.ptd": cb.Cord(b"2")}

    cb.write_all(ours.tensor_data_paths(cords, tmp_path))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ptd", "b.ptd"]


@pytest.mark.parametrize("tag", ["../x", "/etc/x", "", ".ptd", "..", "a\0b", "a/b", "c:\\x", "c:x"])
def test_a_tag_that_is_no_file_name_is_refused(tag: str) -> None:
    with pytest.raises(cb.LayoutError, match="external tag is no file name"):
        ours.tensor_data_paths({tag: cb.Cord()}, "folder")


@pytest.mark.parametrize("tags", [("a", "a.ptd"), ("Model", "model"), ("\u00e9", "e\u0301")])
def test_two_tags_that_would_be_one_file_are_refused(tags: tuple[str, str]) -> None:
    with pytest.raises(cb.DuplicateKeyError, match="would be one file"):
        ours.tensor_data_paths(dict.fromkeys(tags, cb.Cord()), "folder")


# The guard itself ----------------------------------------------------------------------------


def test_the_guard_of_these_tests_catches_executorchs_own_serializers() -> None:
    with forbidden():
        with pytest.raises(OriginalCalledError):
            _serialize.serialize_pte_binary(PTE_FILES["nothing"]())
        with pytest.raises(OriginalCalledError):
            _named_data_store.NamedDataStore()
        with pytest.raises(OriginalCalledError):
            Original()

    assert bytes(_program.serialize_pte_binary(PTE_FILES["nothing"]()))
