"""Test suites: representative inputs and expected outputs for the methods of a program.

Rules of this file: plain records. Values are kept as they are given; what they mean for a method is
decided in `conformance.py`, how they are stored in `bundling.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cordbundle.tensors import flatten

__all__ = ["MethodTestCase", "MethodTestSuite", "as_suites"]


@dataclass(frozen=True, init=False, slots=True, eq=False)
class MethodTestCase:
    """Inputs for one run of a method, and the outputs it should give.

    Nested lists, tuples and dicts are flattened as `torch.utils._pytree` does.

    Attributes:
        inputs: A tensor (any array that `cordbundle` knows), int, float or bool for each input of
            the method, in its order.
        expected_outputs: A tensor for each output, or nothing if outputs are not to be compared.
    """

    inputs: tuple[object, ...]
    expected_outputs: tuple[object, ...]

    def __init__(self, inputs: object, expected_outputs: object = ()) -> None:
        object.__setattr__(self, "inputs", tuple(flatten(inputs)))
        expected = () if expected_outputs is None else expected_outputs
        object.__setattr__(self, "expected_outputs", tuple(flatten(expected)))


@dataclass(frozen=True, init=False, slots=True, eq=False)
class MethodTestSuite:
    """The test cases of one method.

    Attributes:
        method_name: Name of the method in the program.
        test_cases: Its cases; a case is known by its place here.
    """

    method_name: str
    test_cases: tuple[MethodTestCase, ...]

    def __init__(self, method_name: str, test_cases: Iterable[MethodTestCase]) -> None:
        object.__setattr__(self, "method_name", method_name)
        object.__setattr__(self, "test_cases", tuple(test_cases))


def as_suites(suites: Iterable[object]) -> list[MethodTestSuite]:
    """Return suites as this project's records; ExecuTorch's own classes are taken as well.

    Raises:
        TypeError: Something that is no suite or no case.
    """
    if not isinstance(suites, Iterable):
        raise TypeError(f"{type(suites).__name__} is no list of MethodTestSuite")
    return [_as_suite(suite) for suite in suites]


def _as_suite(suite: object) -> MethodTestSuite:
    name = getattr(suite, "method_name", None)
    cases = getattr(suite, "test_cases", None)
    if cases is not None and not isinstance(name, str):
        raise TypeError(f"method_name of a suite is {name!r}, no str")
    if not isinstance(name, str) or not isinstance(cases, Iterable):
        raise TypeError(f"no MethodTestSuite: {type(suite).__name__}")
    return MethodTestSuite(name, [_as_case(case, name) for case in cases])


def _as_case(case: object, method_name: str) -> MethodTestCase:
    if isinstance(case, MethodTestCase):
        return case
    inputs = getattr(case, "inputs", None)
    if inputs is None:
        raise TypeError(f"no MethodTestCase in the suite of {method_name!r}: {type(case).__name__}")
    return MethodTestCase(inputs, getattr(case, "expected_outputs", ()))
