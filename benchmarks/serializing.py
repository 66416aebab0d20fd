"""What is serialized: programs, named tensors and blobs, the same for every competitor.

Rules of this file: the standard library alone, so that no competitor's memory is hidden in its
import; what is made depends on the arguments alone. Blobs are files `NAME-0`, `NAME-1`, … beside an
index `NAME`, one file name a line.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.terms import BlobSource

__all__ = [
    "NamedTensor",
    "blob_paths",
    "chunks",
    "decoded",
    "digest",
    "file_digest",
    "listed",
    "make_blobs",
    "named_tensors",
    "program",
    "small_cases",
    "weights_digest",
]

_OPERATORS = 50
_ROWS = 97
_LARGEST = _ROWS * 16 * 4  # bytes of the largest tensor of float32
_PIECE = 1 << 20


class _Hasher:
    """A digest that can be written to as a file."""

    def __init__(self) -> None:
        import xxhash  # loaded after the measuring, so that it is no part of it

        self._state = xxhash.xxh3_128()
        self.size = 0

    def write(self, data: bytes | memoryview) -> int:
        self._state.update(data)
        self.size += memoryview(data).nbytes
        return memoryview(data).nbytes

    def facts(self) -> dict[str, object]:
        return {"made": self._state.hexdigest(), "size": self.size}


def digest(write_to: Callable[[Any], object]) -> dict[str, object]:
    """Return digest and size of what a function writes, as facts of a run."""
    hasher = _Hasher()
    write_to(hasher)
    return hasher.facts()


def file_digest(path: str) -> dict[str, object]:
    """Return digest and size of a file, as facts of a run."""

    def write_to(hasher: _Hasher) -> None:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                hasher.write(piece)

    return digest(write_to)


def decoded(record: Any) -> dict[str, object]:
    """Return a digest of a decoded program, whoever's classes it is made of, as facts of a run."""
    return digest(lambda hasher: hasher.write(b"".join(_parts(record))))


def _parts(record: Any) -> Iterator[bytes]:
    """Yield all that a record holds; the order of its fields is its class's own business."""
    cls: Any = type(record)
    if is_dataclass(record):
        yield f"{cls.__name__}(".encode()
        for name in _names(cls):
            yield from _parts(getattr(record, name))
        yield b")"
    elif isinstance(record, (list, tuple)):
        yield f"{len(record)}[".encode()
        for item in record:
            yield from _parts(item)
    elif isinstance(record, int):  # also members of enumerations
        yield f"{int(record)};".encode()
    elif record is None or isinstance(record, (str, float)):
        yield f"{record!r};".encode()
    else:
        yield bytes(record)


@cache
def _names(cls: type[Any]) -> list[str]:
    return sorted(it.name for it in fields(cls))


def listed(rows: Iterable[tuple[int, list[int]]]) -> dict[str, object]:
    """Return a digest of listed tensors, as facts of a run."""
    return digest(lambda hasher: hasher.write(repr(list(rows)).encode()))


def chunks(count: int, size: Any) -> list[bytes]:
    """Return chunks of `size` bytes; of large ones, which take memory, 16 again and again."""
    distinct = [
        number.to_bytes(8, "little") * (size // 8)
        for number in range(min(count, 16) if size >= _PIECE else count)
    ]
    return [distinct[number % len(distinct)] for number in range(count)]


Data = tuple[tuple[int, ...], bytes]
"""Sizes and bytes of a tensor of float32."""


def small_cases(count: int) -> Iterator[tuple[Data, Data]]:
    """Yield an input and an output for `program`, different in each case."""
    for number in range(count):
        mark = number.to_bytes(4, "little")
        yield ((1, 1, 16), mark * 16), ((1, 2, 16), mark * 32)


def program(
    schema: Any,
    scalar_type: Any,
    *,
    values: int,
    constants: Sequence[Any] = (),
    payload: Any = None,
) -> Any:
    """Return a program of one method.

    Args:
        schema: The module with the classes: ExecuTorch's `exir.schema` or `cordbundle.program`.
        scalar_type: The scalar type of all tensors.
        values: Number of values: four tensors, then an integer, and so on; two instructions for
            five of them, each of four arguments.
        constants: Bytes of the constants.
        payload: Bytes of a delegate; none if None.
    """
    first = len(constants)  # value that is none
    instructions = [
        schema.Instruction(
            schema.KernelCall(
                op_index=i % _OPERATORS,
                args=[
                    *((i + step) % values for step in (0, 1, 2)),
                    max(first, (i + 7) % values),  # what a kernel writes to
                ],
            )
        )
        for i in range(values * 2 // 5)
    ]
    if payload is not None:
        call = schema.DelegateCall(delegate_index=0, args=[0, 1])
        instructions.append(schema.Instruction(call))
    plan = schema.ExecutionPlan(
        name="forward",
        container_meta_type=schema.ContainerMetadata("", ""),
        values=[_value(schema, scalar_type, i, len(constants)) for i in range(values)],
        inputs=[first],
        outputs=[1],
        chains=[
            schema.Chain(inputs=[first], outputs=[1], instructions=instructions, stacktrace=None)
        ],
        operators=[schema.Operator(f"aten::op{i}", "out") for i in range(_OPERATORS)],
        delegates=[] if payload is None else [_delegate(schema)],
        non_const_buffer_sizes=[0, 64 * values + _LARGEST],
    )
    inline = [] if payload is None else [schema.BackendDelegateInlineData(payload)]
    return schema.Program(
        version=0,
        execution_plan=[plan],
        constant_buffer=[schema.Buffer(b""), *map(schema.Buffer, constants)],
        backend_delegate_data=inline,
        segments=[],
        constant_segment=schema.SubsegmentOffsets(0, []),
    )


def _value(schema: Any, scalar_type: Any, number: int, constants: int) -> Any:
    if number % 5 == 4:
        return schema.EValue(schema.Int(number))
    constant = number + 1 if number < constants else 0
    info = schema.ExtraTensorInfo(fully_qualified_name=f"layers.{number}.weight")
    return schema.EValue(
        schema.Tensor(
            scalar_type=scalar_type,
            storage_offset=0,
            sizes=[1, number % _ROWS + 1, 16],
            dim_order=[0, 1, 2],
            requires_grad=False,
            layout=0,
            data_buffer_idx=constant,
            allocation_info=None if constant else schema.AllocationDetails(1, 64 * number, 0),
            shape_dynamism=schema.TensorShapeDynamism.STATIC,
            extra_tensor_info=info if number % 10 == 0 else None,
        )
    )


def _delegate(schema: Any) -> Any:
    place = schema.BackendDelegateDataReference(schema.DataLocation.INLINE, 0)
    return schema.BackendDelegate(id="Backend", processed=place, compile_specs=[])


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A row-major float32 tensor.

    Attributes:
        name: Its name.
        sizes: Its sizes.
        data: Its bytes.
    """

    name: str
    sizes: list[int]
    data: bytes


def named_tensors(count: int) -> Iterator[NamedTensor]:
    """Yield tensors of some KiB each, all distinct, sorted by name."""
    for number in range(count):
        sizes = [16, 16 + number % 3]
        data = number.to_bytes(4, "little") * (sizes[0] * sizes[1])
        yield NamedTensor(f"layers.{number // 10:05}.weight_{number % 10}", sizes, data)


def weights_digest(tensors: Iterator[tuple[str, Any, Sequence[int], Any]]) -> dict[str, object]:
    """Return a digest of names, scalar types, sizes and bytes of tensors, as facts of a run."""

    def write_to(hasher: Any) -> None:
        for name, scalar_type, sizes, data in tensors:
            hasher.write(f"{name} {int(scalar_type)} {list(sizes)} {len(data)}\n".encode())
            hasher.write(data)

    return digest(write_to)


def make_blobs(index: Path, kind: BlobSource, size: int, count: int) -> None:
    """Make blobs of equal size as files.

    Args:
        index: The file to list them in, and what their names begin with.
        kind: "sparse blobs" are holes but for their first and last bytes, in which they differ.
            "alike blobs" are random numbers, the same in each but for the last bytes; "equal blobs"
            without this exception.
        size: Of all blobs together, in bytes.
        count: Number of blobs.
    """
    paths = [index.with_name(f"{index.name}-{number}") for number in range(count)]
    each = size // count
    for number, path in enumerate(paths):
        mark = (number + 1).to_bytes(32, "little")
        with path.open("wb") as file:
            if kind == "sparse blobs":
                file.write(mark)
                file.truncate(each)
            else:
                _fill(file, each)
            if kind != "equal blobs":
                file.seek(each - len(mark))
                file.write(mark)
    index.write_text("".join(f"{path.name}\n" for path in paths))


def _fill(file: Any, size: int) -> None:
    numbers = random.Random(0)
    while size:
        size -= file.write(numbers.randbytes(min(size, _PIECE)))


def blob_paths(index: str | Path) -> list[Path]:
    """Return the files that an index lists."""
    path = Path(index)
    return [path.with_name(name) for name in path.read_text().splitlines()]
