"""Tries: an expected output in another memory order than the method's, or where that is no tensor.

Stopped by: expected outputs are compared with what the method gives: tensors, of the same strides.
"""

from __future__ import annotations

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.flatbuffer import position_of
from tests.attacks.surgery import findings, found, root
from tests.support import floats, program, suite, tensor


def made(given: object, output: schema.KernelTypes) -> bytes:
    """Return a bundle of one case that expects a tensor of a method's only output."""
    pte = program([], [output])
    case = cb.MethodTestCase([], [given])
    return bytes(cb.bundle(pte, [suite(case)], check=False).cord)


def transposed(*sizes: int) -> cb.TensorView:
    return cb.TensorView(cb.ScalarType.FLOAT, sizes, (1, 0), cb.Cord(floats(sizes)))


@pytest.mark.parametrize("sizes", [(2, 3), (1, 3), (2, 1)])
def test_another_dim_order_is_found(sizes: tuple[int, int]) -> None:
    data = made(transposed(*sizes), tensor(sizes))
    value = root(data).method_test_suites[0].test_cases[0].expected_outputs[0]
    what = "forward/0/expected output 0: dim order"
    assert found(data) == (position_of(value.val), what, "[0, 1]", "[1, 0]")


@pytest.mark.parametrize(
    ("sizes", "output"),
    [((1, 1), (1, 1)), ((2, 3), (2, 3, 1))],
    ids=["same strides", "another rank"],
)
def test_what_has_the_same_strides_or_is_not_compared_is_sound(
    sizes: tuple[int, ...], output: tuple[int, ...]
) -> None:
    assert findings(made(transposed(*sizes), tensor(output))) == []


def test_an_expected_output_of_what_is_no_tensor_is_found() -> None:
    data = made(floats((2,)), schema.Int(3))
    value = root(data).method_test_suites[0].test_cases[0].expected_outputs[0]
    what = "forward/0/expected output 0: the method's output"
    assert found(data) == (position_of(value), what, "a tensor", "int")


def test_it_is_found_behind_an_output_that_is_a_number() -> None:
    pte = program([], [schema.Int(3), tensor((2, 3))])
    case = cb.MethodTestCase([], [3, transposed(2, 3)])
    data = bytes(cb.bundle(pte, [suite(case)], check=False).cord)
    value = root(data).method_test_suites[0].test_cases[0].expected_outputs[1]
    what = "forward/0/expected output 1: dim order"
    assert found(data) == (position_of(value.val), what, "[0, 1]", "[1, 0]")
