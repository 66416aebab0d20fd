"""What several tests need: tensors without NumPy, programs without an exporter."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer import encode

STATIC, BOUND, UNBOUND = 0, 1, 2


def bytes_read() -> int:
    """Return how many bytes this process has asked the system for; skip where none are counted."""
    counters = Path("/proc/self/io")
    if not counters.is_file():
        pytest.skip("the system does not count what is read")
    return int(counters.read_text().split("rchar: ")[1].split()[0])


def peak(call: Callable[[], object]) -> int:
    """Return how many bytes of memory a call holds at most."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def floats(sizes: Sequence[int], start: float = 0.0) -> memoryview[float]:
    """Return a float32 tensor whose elements count up from `start`."""
    data = array("f", [start + i for i in range(prod(sizes))])
    return memoryview(data).cast("B").cast("f", tuple(sizes))


def empty(sizes: Sequence[int]) -> cb.TensorView:
    """Return a float32 tensor without elements, whose shape no memoryview can have."""
    return cb.TensorView(cb.ScalarType.FLOAT, sizes, None, cb.Cord())


def tensor(
    sizes: Sequence[int],
    scalar_type: cb.ScalarType = cb.ScalarType.FLOAT,
    dim_order: Sequence[int] | None = None,
    dynamism: int = STATIC,
    **more: object,
) -> schema.Tensor:
    """Return the record of a tensor, with what else is to be said of it."""
    return schema.Tensor(
        scalar_type=int(scalar_type),
        sizes=list(sizes),
        dim_order=list(range(len(sizes)) if dim_order is None else dim_order),
        shape_dynamism=dynamism,
        **more,  # type: ignore[arg-type]  # by name
    )


def program(
    inputs: Sequence[schema.KernelTypes],
    outputs: Sequence[schema.KernelTypes] = (),
    names: Sequence[str] = ("forward",),
) -> bytes:
    """Return a `.pte` with these methods, none of which does anything."""
    values = [schema.EValue(value) for value in (*inputs, *outputs)]
    plans = [
        schema.ExecutionPlan(
            name=name,
            values=values,
            inputs=list(range(len(inputs))),
            outputs=list(range(len(inputs), len(values))),
            chains=[schema.Chain(inputs=[], outputs=[], instructions=[])],
            operators=[],
            delegates=[],
            non_const_buffer_sizes=[0],
        )
        for name in names
    ]
    return bytes(encode(schema.Program(execution_plan=plans), schema.PROGRAM_IDENTIFIER).cord)


def suite(*cases: cb.MethodTestCase, method: str = "forward") -> cb.MethodTestSuite:
    """Return a suite of these cases."""
    return cb.MethodTestSuite(method, cases)


def bundle_file(bundle: cb.Bundle) -> cb.BundleFile:
    """Open a bundle without writing it."""
    file = cb.open(bundle.cord)
    assert isinstance(file, cb.BundleFile)
    return file


def sparse_program(path: Path, head: bytes, size: int) -> None:
    """Write a file of `size` bytes that begins with `head` and is a hole otherwise."""
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(size)
