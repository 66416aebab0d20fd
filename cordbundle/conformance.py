"""Conformance: does a test case fit the method it is for?

Rules of this file: it compares a case's values with what the program's metadata says of the method
and refuses, or arranges, before anything is laid out; it reads no payload. What it refuses are the
cases that ExecuTorch's runtime refuses, dies of or silently gets wrong; sources are
`runtime/executor/method.cpp` (`set_input`), `runtime/core/portable_type/tensor_impl.cpp`
(`internal_resize_contiguous`) and `devtools/bundled_program/bundled_program.cpp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import NamedTuple, TypeAlias

from cordbundle.errors import CaseMismatchError, DuplicateKeyError, LayoutError
from cordbundle.pte import Method, TensorSpec, ValueSpec
from cordbundle.suites import MethodTestCase, MethodTestSuite
from cordbundle.tensors import ScalarType, TensorDescription, describe, scalar_of

__all__ = ["CaseValues", "SuiteValues", "Value", "arrange"]

Value: TypeAlias = TensorDescription | bool | int | float
"""What a bundle can hold in place of an input or output."""

_Place: TypeAlias = tuple[str, int]  # "input" or "output", and which; put into words where needed

_NO_TENSORS = (type(None), str, bytes, list, tuple, dict)
_COMPARED_WITH_TOLERANCE = {ScalarType.FLOAT, ScalarType.DOUBLE, ScalarType.HALF}


class CaseValues(NamedTuple):
    """A test case ready to be stored.

    Attributes:
        inputs: The values in the method's order.
        expected_outputs: The tensors in the method's order, or none at all.
    """

    inputs: tuple[Value, ...]
    expected_outputs: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class SuiteValues:
    """A suite ready to be stored.

    Attributes:
        method_name: The method.
        cases: Its cases.
    """

    method_name: str
    cases: tuple[CaseValues, ...]


def arrange(
    suites: Iterable[MethodTestSuite],
    methods: Mapping[str, Method] | None,
    note: Callable[[str], None],
    *,
    copy_below: int = 0,
) -> list[SuiteValues]:
    """Turn suites into values that can be stored, checked against the program's methods.

    Args:
        suites: What the user gave.
        methods: The methods of the program; None takes everything as it is given.
        note: Called with a sentence about each thing that a user should know.
        copy_below: Tensors of fewer bytes may be copied at once; see `describe`.

    Raises:
        CaseMismatchError: A case that does not fit; names method, case and input or output.
        DuplicateKeyError: Two suites for one method.
    """
    seen: set[str] = set()
    result = []
    for suite in suites:
        name = suite.method_name
        if name in seen:
            raise DuplicateKeyError(
                f"two suites for method {name!r}",
                cause="put all its test cases into one suite; the runtime sees only the first",
            )
        seen.add(name)
        method = _method(name, methods) if methods is not None else None
        cases = list(
            map(_Checker(name, method, note, copy_below).values, count(), suite.test_cases)
        )
        result.append(SuiteValues(name, tuple(cases)))
        if not cases:
            note(f"{name}: the suite has no test cases")
    return result


def _method(name: str, methods: Mapping[str, Method]) -> Method:
    if name not in methods:
        raise CaseMismatchError(
            f"the program has no method {name!r}",
            expected="one of " + ", ".join(repr(known) for known in methods),
            actual=repr(name),
        )
    return methods[name]


class _Checker:
    """What the cases of one suite go through, one after the other."""

    def __init__(
        self,
        method_name: str,
        method: Method | None,
        note: Callable[[str], None],
        copy_below: int,
    ) -> None:
        self._copy_below = copy_below
        self._method_name = method_name
        self._method = method
        self._note = note
        self._number = 0

    def values(self, number: int, case: MethodTestCase) -> CaseValues:
        self._number = number
        if self._method is None:
            return CaseValues(
                tuple(map(self._any, _places("input"), case.inputs)),
                tuple(map(self._any, _places("output"), case.expected_outputs)),
            )
        wanted = self._method.inputs
        self._count("inputs", case.inputs, wanted)
        inputs = tuple(map(self._input, _places("input"), case.inputs, wanted))
        if not case.expected_outputs:
            self._note(
                f"{self._where()}: no expected outputs; the runtime can run it, not verify it"
            )
            return CaseValues(inputs, ())
        wanted = self._method.outputs
        self._count("expected outputs", case.expected_outputs, wanted)
        outputs = map(self._output, _places("output"), case.expected_outputs, wanted)
        return CaseValues(inputs, tuple(outputs))

    def _where(self, place: _Place | None = None) -> str:
        text = f"method {self._method_name!r}, case {self._number}"
        return f"{text}, {place[0]} {place[1]}" if place else text

    def _mismatch(
        self,
        place: _Place | None,
        what: str,
        expected: object,
        actual: object,
        cause: str | None = None,
    ) -> CaseMismatchError:
        return CaseMismatchError(
            what, source=self._where(place), expected=expected, actual=actual, cause=cause
        )

    def _count(self, what: str, given: Sequence[object], wanted: Sequence[object]) -> None:
        if len(given) != len(wanted):
            word = "few" if len(given) < len(wanted) else "many"
            raise self._mismatch(None, f"too {word} {what}", len(wanted), len(given))

    def _any(self, place: _Place, value: object) -> Value:
        scalar = self._scalar(place, value)
        return self._describe(place, value, None) if scalar is None else scalar

    def _scalar(self, place: _Place, value: object) -> bool | int | float | None:
        scalar = scalar_of(value)
        if type(scalar) is int and not -(2**63) <= scalar < 2**63:
            raise self._mismatch(place, "integer does not fit 64 bits", "an int64", scalar)
        return scalar

    def _describe(
        self, place: _Place, value: object, dim_order: Sequence[int] | None
    ) -> TensorDescription:
        if isinstance(value, _NO_TENSORS):
            raise self._mismatch(
                place, "cannot be bundled", "a tensor, int, float or bool", type(value).__name__
            )
        try:
            return describe(value, dim_order=dim_order, copy_below=self._copy_below)  # type: ignore[arg-type]  # refused by type
        except LayoutError as error:
            error.source = error.source or self._where(place)
            raise
        except TypeError as error:  # no array; the text says what is taken for one
            wanted, found = "a tensor, int, float or bool", type(value).__name__
            mismatch = self._mismatch(place, "cannot be bundled", wanted, found, str(error))
            raise mismatch from error

    def _input(self, place: _Place, value: object, spec: TensorSpec | ValueSpec) -> Value:
        if isinstance(spec, TensorSpec):
            return self._tensor(place, value, spec)
        if spec.kind not in ("int", "float", "bool"):
            raise self._mismatch(
                place,
                "the method takes what the runtime cannot bundle",
                "a tensor, int, float or bool",
                spec.kind,
            )
        scalar = self._scalar(place, value)
        if scalar is None or type(scalar).__name__ != spec.kind:
            found = type(value if scalar is None else scalar).__name__
            raise self._mismatch(place, "another type", spec.kind, found)
        if not _same_scalar(scalar, spec.value):
            raise self._mismatch(
                place,
                "another value than was traced into the program",
                repr(spec.value),
                repr(scalar),
                "a scalar input is a constant of the exported program",
            )
        return scalar

    def _output(self, place: _Place, value: object, spec: TensorSpec | ValueSpec) -> Value:
        if not isinstance(spec, TensorSpec):
            raise self._mismatch(
                place,
                "the runtime compares tensors only",
                "a method whose outputs are tensors, or no expected outputs",
                spec.kind,
            )
        tensor = self._tensor(place, value, spec)
        if tensor.scalar_type not in _COMPARED_WITH_TOLERANCE:
            self._note(
                f"{self._where(place)}: {tensor.scalar_type.name} is compared bit by bit on the"
                " device, without tolerance"
            )
        return tensor

    def _tensor(self, place: _Place, value: object, spec: TensorSpec) -> TensorDescription:
        if scalar_of(value) is not None:
            raise self._mismatch(place, "another type", "a tensor", type(value).__name__)
        given = self._describe(place, value, None)
        if given.scalar_type != spec.scalar_type:
            wanted = spec.scalar_type.name
            raise self._mismatch(place, "another scalar type", wanted, given.scalar_type.name)
        if len(given.sizes) != len(spec.sizes):
            raise self._mismatch(place, "another rank", _shape(spec), list(given.sizes))
        if not _fits(given.sizes, spec):
            raise self._mismatch(place, "another shape", _shape(spec), list(given.sizes))
        if given.dim_order == spec.dim_order and not given.gathered:
            return given
        tensor = self._describe(place, value, spec.dim_order)
        if tensor.gathered:
            self._note(
                f"{self._where(place)}: stored in dim order {list(spec.dim_order)}, the method's,"
                f" instead of {list(given.dim_order)}"
            )
        return tensor


def _places(word: str) -> Iterator[_Place]:
    """Return the places of values, in order and without end."""
    return zip(repeat(word), count())


def _shape(spec: TensorSpec) -> str:
    bound = "" if spec.dynamism == "static" else " as the upper bound"
    return f"{list(spec.sizes)}{bound}"


def _fits(sizes: Sequence[int], spec: TensorSpec) -> bool:
    if spec.dynamism == "static":
        return tuple(sizes) == spec.sizes
    if spec.dynamism == "bound" and any(
        size > bound for size, bound in zip(sizes, spec.sizes, strict=True)
    ):
        return False
    return math.prod(sizes) <= math.prod(spec.sizes)


def _same_scalar(given: object, traced: object) -> bool:
    """Compare as the runtime does: floats within 1e-4 + 1e-5 |traced|, all else exactly."""
    if not isinstance(given, float) or not isinstance(traced, float):
        return given == traced
    if math.isfinite(given) and math.isfinite(traced):
        return abs(given - traced) <= 1e-4 + abs(1e-5 * traced)
    return given == traced or (math.isnan(given) and math.isnan(traced))
