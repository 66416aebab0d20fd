"""Test cases that do or do not fit their method: what is refused, arranged and said."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import pytest

import cordbundle as cb
from cordbundle import program as schema
from tests.support import BOUND, STATIC, UNBOUND, bundle_file, empty, floats, program, suite, tensor

PAIR = program([tensor([2, 3]), tensor([4])], [tensor([2, 3])])
GOOD = cb.MethodTestCase([floats([2, 3]), floats([4])], [floats([2, 3])])


def scalar_program(*values: schema.KernelTypes) -> bytes:
    return program([*values, tensor([1])])


def stored_inputs(pte: bytes, *inputs: object, check: bool = True) -> Sequence[object]:
    bundle = cb.bundle(pte, [suite(cb.MethodTestCase(inputs))], check=check)
    return bundle_file(bundle).suites[0].test_cases[0].inputs


def refusal(pte: bytes, case: cb.MethodTestCase) -> str:
    """Bundle a good case and a bad one; return why the bad one is refused."""
    with pytest.raises(cb.CaseMismatchError) as caught:
        cb.bundle(pte, [suite(GOOD, case)])
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_a_misspelled_method_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(cb.CaseMismatchError) as caught:
        cb.bundle(PAIR, [suite(GOOD, method="forwrad")])
    assert str(caught.value) == (
        "the program has no method 'forwrad': found 'forwrad', expected one of 'forward'"
    )


def test_two_suites_for_one_method_are_refused() -> None:
    with pytest.raises(cb.DuplicateKeyError, match="two suites for method 'forward'"):
        cb.bundle(PAIR, [suite(GOOD), suite(GOOD)])


@pytest.mark.parametrize("check", [True, False])
def test_no_suites_and_a_suite_without_cases_are_allowed_and_the_latter_shown(check: bool) -> None:
    assert bundle_file(cb.bundle(PAIR, [], check=check)).suites == ()
    empty = cb.bundle(PAIR, [suite()], check=check)
    assert empty.notes == ("forward: the suite has no test cases",)
    (stored,) = bundle_file(empty).suites
    assert (stored.method_name, stored.test_cases) == ("forward", ())


@pytest.mark.parametrize("name", ["two words", "été", "方法", "a/b", "😀"])
def test_method_names_are_kept_exactly(name: str) -> None:
    pte = program([], names=["forward", name])
    bundle = cb.bundle(pte, [suite(cb.MethodTestCase([]), method=name)])
    assert [found.method_name for found in bundle_file(bundle).suites] == [name]


def test_suites_keep_their_order() -> None:
    pte = program([], names=["a", "b", "c"])
    suites = [suite(cb.MethodTestCase([]), method=name) for name in "cab"]
    bundle = cb.bundle(pte, suites)
    assert [found.method_name for found in bundle_file(bundle).suites] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ([], [], "case 1: too few inputs: found 0, expected 2"),
        ([floats([2, 3])], [], "case 1: too few inputs: found 1, expected 2"),
        ([floats([2, 3])] * 3, [], "case 1: too many inputs: found 3, expected 2"),
        (
            GOOD.inputs,
            [floats([2, 3])] * 2,
            "case 1: too many expected outputs: found 2, expected 1",
        ),
        (
            [floats([3, 2]), floats([4])],
            [],
            "case 1, input 0: another shape: found [3, 2], expected [2, 3]",
        ),
        (
            [floats([2, 3]), floats([4, 1])],
            [],
            "case 1, input 1: another rank: found [4, 1], expected [4]",
        ),
        (
            [floats([2, 3]), array("d", [0] * 4)],
            [],
            "case 1, input 1: another scalar type: found DOUBLE, expected FLOAT",
        ),
        (
            GOOD.inputs,
            [floats([6])],
            "case 1, output 0: another rank: found [6], expected [2, 3]",
        ),
        (
            GOOD.inputs,
            [array("i", [1])],
            "case 1, output 0: another scalar type: found INT, expected FLOAT",
        ),
        ([1, floats([4])], [], "case 1, input 0: another type: found int, expected a tensor"),
        (
            [None, floats([4])],
            [],
            "case 1, input 0: cannot be bundled: found NoneType, expected a tensor, int, float or",
        ),
        (
            ["text", floats([4])],
            [],
            "case 1, input 0: cannot be bundled: found str, expected a tensor, int, float or bool",
        ),
        (
            GOOD.inputs,
            [1.0],
            "case 1, output 0: another type: found float, expected a tensor",
        ),
    ],
)
def test_a_case_that_does_not_fit_is_refused_naming_method_case_and_place(
    inputs: Sequence[object], outputs: Sequence[object], text: str
) -> None:
    found = refusal(PAIR, cb.MethodTestCase(list(inputs), list(outputs)))
    assert found.startswith("method 'forward', " + text)


def test_too_few_expected_outputs_are_refused_but_none_at_all_are_allowed_and_shown() -> None:
    pte = program([tensor([1])], [tensor([1]), tensor([2])])
    one = cb.MethodTestCase([floats([1])], [floats([1])])
    with pytest.raises(cb.CaseMismatchError, match="too few expected outputs: found 1, expected 2"):
        cb.bundle(pte, [suite(one)])
    bundle = cb.bundle(pte, [suite(cb.MethodTestCase([floats([1])]))])
    assert bundle.notes == (
        "method 'forward', case 0: no expected outputs; the runtime can run it, not verify it",
    )
    assert bundle_file(bundle).suites[0].test_cases[0].expected_outputs == ()


@pytest.mark.parametrize(
    ("kind", "word"), [(schema.String("x"), "str"), (schema.Null(), "None"), (None, "None")]
)
def test_a_method_that_takes_what_the_runtime_cannot_bundle_is_refused(
    kind: schema.KernelTypes | None, word: str
) -> None:
    pte = program([kind])  # type: ignore[list-item]  # a value that is absent
    with pytest.raises(cb.CaseMismatchError, match=f"cannot bundle: found {word}"):
        cb.bundle(pte, [suite(cb.MethodTestCase([1]))])


def test_expected_outputs_of_a_method_that_gives_scalars_are_refused() -> None:
    pte = program([], [schema.Int(3)])
    with pytest.raises(cb.CaseMismatchError, match="output 0: the runtime compares tensors only"):
        cb.bundle(pte, [suite(cb.MethodTestCase([], [3]))])
    assert bundle_file(cb.bundle(pte, [suite(cb.MethodTestCase([]))])).verify() == []


@pytest.mark.parametrize("dynamism", [BOUND, UNBOUND])
@pytest.mark.parametrize("sizes", [[8, 6], [1, 6], [0, 6], [8, 1]])
def test_dynamic_shapes_go_up_to_their_bound(dynamism: int, sizes: list[int]) -> None:
    pte = program([tensor([8, 6], dynamism=dynamism)])
    (stored,) = stored_inputs(pte, floats(sizes) if all(sizes) else empty(sizes))
    assert isinstance(stored, cb.TensorView)
    assert stored.sizes == tuple(sizes)


@pytest.mark.parametrize(
    ("dynamism", "sizes"), [(BOUND, [9, 1]), (BOUND, [1, 7]), (UNBOUND, [7, 7]), (STATIC, [7, 6])]
)
def test_a_dimension_above_its_bound_is_refused(dynamism: int, sizes: list[int]) -> None:
    pte = program([tensor([8, 6], dynamism=dynamism)])
    with pytest.raises(cb.CaseMismatchError, match=r"input 0: another shape: found \[\d, \d\]"):
        stored_inputs(pte, floats(sizes))


def test_an_unbound_shape_may_pass_a_dimension_but_not_the_number_of_elements() -> None:
    pte = program([tensor([8, 6], dynamism=UNBOUND)])
    (stored,) = stored_inputs(pte, floats([24, 2]))
    assert isinstance(stored, cb.TensorView)
    assert stored.sizes == (24, 2)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, -0.0, 0.0, 1.5, 5e-324, -(2**63), 2**63 - 1, 0, True, False]
)
def test_a_scalar_survives_exactly_with_its_type(value: bool | int | float) -> None:
    traced: schema.KernelTypes
    if isinstance(value, bool):
        traced = schema.Bool(value)
    elif isinstance(value, int):
        traced = schema.Int(value)
    else:
        traced = schema.Double(value)
    stored = stored_inputs(scalar_program(traced), value, floats([1]))[0]
    assert type(stored) is type(value)
    assert stored == value
    assert math.copysign(1, stored) == math.copysign(1, value)


def test_nan_survives() -> None:
    stored = stored_inputs(scalar_program(schema.Double(math.nan)), math.nan, floats([1]))[0]
    assert isinstance(stored, float) and math.isnan(stored)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_an_integer_of_more_than_64_bits_is_refused(value: int, check: bool) -> None:
    with pytest.raises(cb.CaseMismatchError) as caught:
        stored_inputs(scalar_program(schema.Int(1)), value, floats([1]), check=check)
    assert str(caught.value) == (
        "method 'forward', case 0, input 0: integer does not fit 64 bits: "
        f"found {value}, expected an int64"
    )


@pytest.mark.parametrize(
    ("traced", "given", "text"),
    [
        (schema.Int(3), 4, "another value than was traced into the program: found 4, expected 3"),
        (schema.Int(1), True, "another type: found bool, expected int"),
        (schema.Bool(True), 1, "another type: found int, expected bool"),
        (schema.Bool(True), False, "another value than was traced"),
        (schema.Double(1.0), 1, "another type: found int, expected float"),
        (schema.Double(1.0), 1.001, "another value than was traced"),
        (schema.Double(math.inf), -math.inf, "another value than was traced"),
        (schema.Double(math.nan), 0.0, "another value than was traced"),
        (schema.Int(3), floats([1]), "another type: found memoryview, expected int"),
    ],
)
def test_a_scalar_other_than_the_traced_one_is_refused(
    traced: schema.KernelTypes, given: object, text: str
) -> None:
    with pytest.raises(cb.CaseMismatchError, match="method 'forward', case 0, input 0: " + text):
        stored_inputs(scalar_program(traced), given, floats([1]))


def test_a_float_within_the_tolerance_of_the_runtime_is_taken_as_it_is() -> None:
    given = 0.1 + 5e-5
    assert stored_inputs(scalar_program(schema.Double(0.1)), given, floats([1]))[0] == given


def test_numpy_scalars_are_the_scalars_they_are() -> None:
    numpy = pytest.importorskip("numpy")
    pte = scalar_program(schema.Double(1.5), schema.Int(3), schema.Bool(True))
    values = [numpy.float64(1.5), numpy.int64(3), numpy.bool_(True), floats([1])]
    stored = stored_inputs(pte, *values)[:3]
    assert stored == (1.5, 3, True)
    assert [type(value) for value in stored] == [float, int, bool]


def test_rank_0_and_empty_tensors_are_stored_as_they_are() -> None:
    pte = program([tensor([]), tensor([0, 3]), tensor([2, 0])])
    rank_0 = memoryview(array("f", [7.0])).cast("B").cast("f", ())
    stored = stored_inputs(pte, rank_0, empty([0, 3]), empty([2, 0]))
    views = [view for view in stored if isinstance(view, cb.TensorView)]
    assert [(view.sizes, bytes(view.cord)) for view in views] == [
        ((), array("f", [7.0]).tobytes()),
        ((0, 3), b""),
        ((2, 0), b""),
    ]


def test_a_tensor_in_another_memory_order_is_brought_into_the_methods_and_reported() -> None:
    pte = program([tensor([2, 3], dim_order=[1, 0])])
    bundle = cb.bundle(pte, [suite(cb.MethodTestCase([floats([2, 3])]))])
    (view,) = bundle_file(bundle).suites[0].test_cases[0].inputs
    assert isinstance(view, cb.TensorView)
    assert view.dim_order == (1, 0)
    assert bytes(view.cord) == array("f", [0, 3, 1, 4, 2, 5]).tobytes()
    assert bundle.notes[0] == (
        "method 'forward', case 0, input 0: stored in dim order [1, 0], the method's, "
        "instead of [0, 1]"
    )


def test_without_check_everything_is_stored_as_it_is_given() -> None:
    pte = program([tensor([2, 3], dim_order=[1, 0])])
    case = cb.MethodTestCase([floats([3]), 7, True], [1.5])
    bundle = cb.bundle(pte, [suite(case, method="anything")], check=False)
    (stored,) = bundle_file(bundle).suite("anything").test_cases
    view = stored.inputs[0]
    assert isinstance(view, cb.TensorView)
    assert (view.sizes, view.dim_order) == ((3,), (0,))
    assert stored.inputs[1:] == (7, True)
    assert stored.expected_outputs == (1.5,)
    assert bundle.notes == ()


def test_outputs_that_the_device_compares_bit_by_bit_are_said_to_be() -> None:
    pte = program([], [tensor([2], cb.ScalarType.LONG), tensor([2])])
    case = cb.MethodTestCase([], [array("q", [1, 2]), floats([2])])
    assert cb.bundle(pte, [suite(case)]).notes == (
        "method 'forward', case 0, output 0: LONG is compared bit by bit on the device, "
        "without tolerance",
    )


def test_an_array_that_no_file_can_hold_is_refused_with_its_place() -> None:
    numpy = pytest.importorskip("numpy")
    case = cb.MethodTestCase([floats([2, 3]), numpy.zeros(4, "c8")])
    with pytest.raises(cb.LayoutError, match=r"method 'forward', case 0, input 1: .*complex64"):
        cb.bundle(PAIR, [suite(case)])


def test_nested_inputs_are_flattened_in_order() -> None:
    pte = program([tensor([1]), schema.Int(1), schema.Int(2), schema.Bool(True)])
    nested = [{"a": floats([1], 9.0), "b": (1, [2])}, True]
    stored = cb.bundle(pte, [suite(cb.MethodTestCase(nested))])
    inputs = bundle_file(stored).suites[0].test_cases[0].inputs
    assert inputs[1:] == (1, 2, True)


def test_views_of_an_opened_bundle_can_be_bundled_again() -> None:
    first = cb.bundle(PAIR, [suite(GOOD)])
    again = cb.bundle(PAIR, bundle_file(first).suites)
    assert bytes(again.cord) == bytes(first.cord)


@pytest.mark.parametrize("thing", [3, "forward", cb.MethodTestCase([])])
def test_something_that_is_no_suite_is_refused_by_type(thing: object) -> None:
    with pytest.raises(TypeError, match=f"no MethodTestSuite: {type(thing).__name__}"):
        cb.bundle(PAIR, [thing])


@pytest.mark.parametrize("suites", [None, suite(GOOD)])
def test_suites_that_are_no_list_are_refused_by_type(suites: object) -> None:
    with pytest.raises(TypeError, match=f"{type(suites).__name__} is no list of MethodTestSuite"):
        cb.bundle(PAIR, suites)  # type: ignore[arg-type]  # the point


def test_a_suite_whose_method_name_is_no_text_is_refused_with_it() -> None:
    with pytest.raises(TypeError, match="method_name of a suite is b'forward', no str"):
        cb.bundle(PAIR, [suite(GOOD, method=b"forward")])  # type: ignore[arg-type]  # the point


@pytest.mark.parametrize("check", [True, False])
def test_a_value_of_a_type_that_no_file_can_hold_is_refused_with_its_place(check: bool) -> None:
    case = cb.MethodTestCase([floats([2, 3]), 1j])
    with pytest.raises(cb.CaseMismatchError, match=r"'forward', case 0, input 1: .*found complex"):
        cb.bundle(PAIR, [suite(case)], check=check)


@pytest.mark.parametrize("thing", [None, 3, [PAIR]])
def test_what_is_no_program_at_all_is_refused_by_type(thing: object) -> None:
    with pytest.raises(TypeError, match=f"{type(thing).__name__} is no file; give a path"):
        cb.bundle(thing, [])
    with pytest.raises(TypeError, match=f"{type(thing).__name__} is no file; give a path"):
        cb.open(thing)  # type: ignore[arg-type]  # the point


def test_a_suite_of_something_that_is_no_case_is_refused_by_type() -> None:
    with pytest.raises(TypeError, match="no MethodTestCase in the suite of 'forward': int"):
        cb.bundle(PAIR, [cb.MethodTestSuite("forward", [3])])  # type: ignore[list-item]  # the point


@pytest.mark.parametrize("word", [9, 0x7FFFFFFF, 0xFFFFFFFF])
def test_verify_returns_findings_whatever_a_word_of_the_metadata_says(word: int) -> None:
    blobs = {"a": b"", "b": b"x"}
    bundle = cb.bundle(PAIR, [suite(GOOD)], form="segmented", digest=False, named_data=blobs)
    sound = bytes(bundle.cord)
    said = set()
    for at in range(72, bundle.layout.head_size - 3, 4):
        damaged = sound[:at] + word.to_bytes(4, "little") + sound[at + 4 :]
        with cb.open(damaged) as file:
            said |= {finding.what for finding in file.verify()}
    assert "segment of the program does not exist" in said


def test_a_program_index_out_of_range_is_an_error_of_the_file() -> None:
    plan = schema.ExecutionPlan(name="forward", values=[], inputs=[3], outputs=[])
    from cordbundle.flatbuffer import encode

    pte = bytes(encode(schema.Program(execution_plan=[plan]), b"ET12").cord)
    with pytest.raises(cb.FormatError, match="inputs of method 'forward': index is out of range"):
        cb.bundle(pte, [suite(cb.MethodTestCase([1]))])
