"""Blobs by reference in ExecuTorch's hands: whatever it does with its own, it does with these."""

from __future__ import annotations

import copy
import hashlib
import io
import operator
import pickle
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cordbundle as cb

pytestmark = pytest.mark.executorch

if find_spec("executorch") is None or find_spec("torch") is None:
    pytest.skip("ExecuTorch and PyTorch are not installed", allow_module_level=True)

import torch
from executorch.exir import EdgeProgramManager, to_edge
from executorch.exir._serialize import _cord, _named_data_store
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.exir.backend.backend_api import to_backend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.serde import export_serialize
from executorch.exir.serde.serialize import deserialize, serialize
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

import cordbundle.executorch as ours
from cordbundle.cord import Deferred
from cordbundle.executorch.blobs import CordBackedData, SegmentBytes
from cordbundle.inputs import blob_cord

PAYLOAD = b"0123456789" * 20


def held(data: bytes = PAYLOAD) -> CordBackedData:
    return CordBackedData(cb.Cord(data[:7]) + data[7:])


def written(data: Any) -> bytes:
    file = io.BytesIO()
    data.write_to_file(file)
    return file.getvalue()


# One blob ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        len,
        lambda data: data.prefix(0),
        lambda data: data.prefix(32),
        lambda data: data.prefix(1000),
        lambda data: data.sha256(),
        lambda data: data.to_bytes(),
        written,
        lambda data: bytes(_cord.Cord(data)),
        lambda data: written(_cord.Cord(data)),
        lambda data: data.close(),
        lambda data: operator.is_(data.__enter__(), data),
        lambda data: data.__exit__(None, None, None),
    ],
)
def test_a_blob_answers_as_file_backed_data_of_the_same_bytes(
    asked: Callable[[Any], object], tmp_path: Path
) -> None:
    path = tmp_path / "blob"
    path.write_bytes(PAYLOAD)

    assert asked(held()) == asked(_cord.FileBackedData(str(path)))


def test_every_method_of_file_backed_data_has_its_own_answer() -> None:
    public = {name for name in vars(_cord.FileBackedData) if not name.startswith("_")}

    assert public - set(vars(CordBackedData)) == set()


def test_moving_from_a_file_gives_file_backed_data(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(PAYLOAD)

    made = CordBackedData.move_from(str(path))

    assert type(made) is _cord.FileBackedData
    assert made.to_bytes() == PAYLOAD


def test_a_blob_equals_the_same_bytes_in_both_directions_and_no_others() -> None:
    assert held() == PAYLOAD
    assert operator.eq(PAYLOAD, held())
    assert held() == held()
    assert held() != PAYLOAD[:-1] + b"x"
    assert held() != held(PAYLOAD + b"x")
    assert held() != "text"
    with pytest.raises(TypeError, match="unhashable"):
        hash(held())


def test_a_pickle_of_a_blob_is_bytes_and_a_deep_copy_still_refers() -> None:
    tensor = torch.zeros(2)
    data = CordBackedData(blob_cord(tensor))

    pickled, copied = pickle.loads(pickle.dumps(data)), copy.deepcopy(data)
    tensor[0] = 1.0

    assert type(pickled) is bytes
    assert pickled == bytes(8)
    assert copied == data == b"\0\0\x80\x3f\0\0\0\0"


def test_a_digest_is_that_of_now() -> None:
    tensor = torch.zeros(2)
    data = CordBackedData(blob_cord(tensor))
    before = data.sha256()

    tensor[0] = 1.0

    assert before == hashlib.sha256(bytes(8)).digest()
    assert data.sha256() == hashlib.sha256(b"\0\0\x80\x3f\0\0\0\0").digest()


def test_our_inputs_take_its_cord_alone_and_in_executorchs_cord() -> None:
    data = held()
    theirs = _cord.Cord(b"head")
    theirs.append(data)

    assert blob_cord(data) is data.cord
    joined = blob_cord(theirs)
    assert bytes(joined) == b"head" + PAYLOAD
    assert joined.raw_chunks[1:] == data.cord.raw_chunks
    assert all(map(operator.is_, joined.raw_chunks[1:], data.cord.raw_chunks))


class Unreadable(Deferred):
    """A blob whose bytes must not be looked at."""

    def produce(self) -> memoryview:
        raise RuntimeError("the bytes were looked at")


def test_stores_pass_a_blob_on_without_reading_it() -> None:
    first, second = ours.NamedDataStore(), ours.NamedDataStore()
    first.add_named_data("key", cb.Cord.of(Unreadable(1000)), 16, "file")

    second.merge_named_data_store(first.get_named_data_store_output())
    output = second.get_named_data_store_output()

    assert isinstance(output.buffers[0], CordBackedData)
    assert len(output.buffers[0]) == 1000
    assert output.external_data == {"file": {"key": DataEntry(0, 16, None)}}


# What stores put out ---------------------------------------------------------------------------


def test_what_a_store_puts_out_is_bytes_or_file_backed_for_executorch(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"path")
    kinds = [b"bytes", bytearray(b"array"), memoryview(b"view"), cb.Cord(b"cord"), path]
    store = ours.NamedDataStore()
    for number, data in enumerate([*kinds, torch.ones(1), _cord.FileBackedData(str(path))]):
        store.add_named_data(f"{number}", data)

    buffers = store.get_named_data_store_output().buffers

    assert all(isinstance(data, bytes | _cord.FileBackedData) for data in buffers)
    assert buffers == [b"bytes", b"array", b"view", b"cord", b"path", b"\0\0\x80\x3f"]


def test_executorchs_own_store_and_serializer_take_what_ours_puts_out() -> None:
    tensor = torch.arange(6.0)
    store, theirs = ours.NamedDataStore(), _named_data_store.NamedDataStore()
    store.add_named_data("a", tensor, 16, "file")
    theirs.add_named_data("b", tensor, 16, "file")

    theirs.merge_named_data_store(store.get_named_data_store_output())
    output = theirs.get_named_data_store_output()
    payload = DataPayload(output.buffers, output.external_data["file"])

    assert len(output.buffers) == 1  # equal ones are found
    expected = bytes(FlatTensorSerializer().serialize(payload))
    assert bytes(ours.FlatTensorSerializer().serialize(payload)) == expected
    merged = store.get_named_data_store_output()
    direct = DataPayload(merged.buffers, merged.external_data["file"])
    found = bytes(FlatTensorSerializer().serialize(direct))
    (read,) = cb.load_ptd(found).values()
    assert bytes(read.data if isinstance(read, cb.TensorView) else read) == tensor.numpy().tobytes()


class KeepsTensorsBackend(BackendDetails):  # type: ignore[misc]  # ExecuTorch has no types
    """Hands a tensor over as named data."""

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: Any) -> PreprocessResult:
        store = _named_data_store.NamedDataStore()
        store.add_named_data("tensor", torch.arange(3.0), 16)
        store.add_named_data("bytes", b"data", 16)
        return PreprocessResult(b"processed", {}, store.get_named_data_store_output())


class AddsOne(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Calls(torch.nn.Module):
    def __init__(self, lowered: torch.nn.Module) -> None:
        super().__init__()
        self.lowered = lowered

    def forward(self, x: torch.Tensor) -> Any:
        return self.lowered(x)


def lowered() -> tuple[Any, EdgeProgramManager]:
    example = (torch.ones(3),)
    edge = to_edge(torch.export.export(AddsOne(), example))
    module = to_backend("KeepsTensorsBackend", edge.exported_program(), [])
    return module, to_edge(torch.export.export(Calls(module), example))


TRIED: dict[str, Callable[[Any, EdgeProgramManager], object]] = {
    "the lowered module alone": lambda module, edge: module.buffer(),
    "the program": lambda module, edge: edge.to_executorch().buffer,
    "a transformed program": lambda module, edge: edge.transform([]).to_executorch().buffer,
    "a deep copy": lambda module, edge: copy.deepcopy(module).named_data_store_output,
    "a pickle": lambda module, edge: pickle.loads(pickle.dumps(module.named_data_store_output)),
}


@pytest.mark.parametrize("tried", TRIED)
@pytest.mark.parametrize("inside", [True, False])
def test_what_a_backend_put_out_inside_goes_on_inside_and_after(tried: str, inside: bool) -> None:
    expected = TRIED[tried](*lowered())

    with ours.patched():
        module, edge = lowered()
        assert isinstance(module.named_data_store_output.buffers[0], CordBackedData)
        found = TRIED[tried](module, edge) if inside else None
    if not inside:
        found = TRIED[tried](module, edge)

    assert found == expected


def test_executorchs_serde_keeps_it_as_bytes_inside() -> None:
    encoder = export_serialize.EnumEncoder
    before = vars(encoder)["default"]

    with ours.patched():
        artifact = serialize(lowered()[1].exported_program())
        back = deserialize(artifact)

    assert vars(encoder)["default"] is before
    (module,) = [m for m in back.graph_module.children() if hasattr(m, "backend_id")]
    assert module.named_data_store_output.buffers == [torch.arange(3.0).numpy().tobytes(), b"data"]


def test_json_still_refuses_what_executorch_refuses_inside() -> None:
    with ours.patched(), pytest.raises(TypeError, match="not JSON serializable"):
        export_serialize.EnumEncoder().encode(object())


# Lists of blobs ------------------------------------------------------------------------------

BLOBS = [b"one", b"", b"three" * 100]


def read() -> Any:
    """Return the blobs of a file, as they are read."""
    named_data = {f"k{number}": DataEntry(number, 1, None) for number in range(len(BLOBS))}
    serializer = ours.FlatTensorSerializer()
    data = bytes(serializer.serialize(DataPayload(BLOBS, named_data)))
    buffers = serializer.deserialize(data).buffers
    assert isinstance(buffers, SegmentBytes)
    return buffers


@pytest.mark.parametrize(
    "used",
    [
        len,
        list,
        sorted,
        b"".join,
        lambda blobs: blobs[0],
        lambda blobs: blobs[-1],
        lambda blobs: blobs[1:],
        lambda blobs: blobs[::-2],
        lambda blobs: operator.add(blobs, [b"x"]),
        lambda blobs: operator.add([b"x"], blobs),
        lambda blobs: blobs + blobs,
        lambda blobs: blobs * 2,
        lambda blobs: 2 * blobs,
        lambda blobs: blobs.copy(),
        copy.copy,
        copy.deepcopy,
        lambda blobs: pickle.loads(pickle.dumps(blobs)),
        lambda blobs: blobs.index(b""),
        lambda blobs: blobs.count(b"one"),
        lambda blobs: list(reversed(blobs)),
        lambda blobs: (b"one" in blobs, b"two" in blobs),
        lambda blobs: (blobs == BLOBS, blobs == BLOBS[:2], blobs == tuple(BLOBS)),
        lambda blobs: (blobs == [*BLOBS[:2], b"x"], operator.eq(BLOBS, blobs)),
    ],
)
def test_blobs_that_were_read_are_used_as_a_list_of_bytes(used: Callable[[Any], object]) -> None:
    expected, found = used(list(BLOBS)), used(read())

    assert type(found) is type(expected)
    assert found == expected


def _set(blobs: Any) -> None:
    blobs[1] = b"set"


def _set_slice(blobs: Any) -> None:
    blobs[1:] = [b"a", b"b", b"c"]


def _delete(blobs: Any) -> None:
    del blobs[0]


def _delete_slice(blobs: Any) -> None:
    del blobs[::2]


def _add_in_place(blobs: Any) -> None:
    blobs += [b"x"]


@pytest.mark.parametrize(
    "change",
    [
        _set,
        _set_slice,
        _delete,
        _delete_slice,
        lambda blobs: blobs.append(b"x"),
        lambda blobs: blobs.extend([b"x", b"y"]),
        lambda blobs: blobs.insert(1, b"x"),
        _add_in_place,
        lambda blobs: blobs.pop(),
        lambda blobs: blobs.remove(b""),
        lambda blobs: blobs.reverse(),
        lambda blobs: blobs.sort(key=len, reverse=True),
        lambda blobs: blobs.clear(),
    ],
)
def test_blobs_that_were_read_are_changed_as_a_list(change: Callable[[Any], object]) -> None:
    expected, found = list(BLOBS), read()

    change(expected)
    change(found)

    assert list(found) == found == expected
    assert found[:] == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("index", [3, -4])
def test_a_blob_beyond_the_last_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError):
        read()[index]


@pytest.mark.parametrize("other", [(b"x",), b"x", 3])
def test_blobs_add_only_to_lists(other: Any) -> None:
    with pytest.raises(TypeError):
        read() + other
    with pytest.raises(TypeError):
        other + read()


def test_the_contents_of_a_store_that_were_read_are_a_list_of_bytes() -> None:
    serializer = ours.FlatTensorSerializer()
    data = serializer.serialize(DataPayload([b"one"], {"k": DataEntry(0, 1, None)}))

    output = serializer.deserialize_to_named_data_store_output(data, "file")

    assert type(output.buffers) is list
    assert output.buffers == [b"one"]
    assert export_serialize.EnumEncoder().encode(output.buffers) == '["b25l"]'
