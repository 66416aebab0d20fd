"""What `verify` checks of one method of a program: its values, instructions and delegates.

Rules of this file: as in program_check.py; a method has tens of thousands of values, so that one of
a kind with nothing to check costs one look-up, and none a view until something is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cordbundle import program as schema
from cordbundle.flatbuffer import Finding, position_of
from cordbundle.record_check import Problem, Shapes, shown

__all__ = ["Available", "PlanCheck"]

_Problems: TypeAlias = Iterator[Problem]

_VECTORS = (
    "values",
    "inputs",
    "outputs",
    "chains",
    "operators",
    "delegates",
    "non_const_buffer_sizes",
)
"""What the runtime follows without asking whether it is there, or refuses a method without."""

_MAX_OPERATOR = 99
"""Bytes of an operator's name and overload, with the dot between them; the runtime joins them in a
buffer of 100, and calls what was never set where they do not fit (`Method::resolve_operator`)."""

_DEVICES = (0, 1)  # CPU and CUDA
_FEW_TENSORS = 16
_MAX_KERNEL_KEY = 658
"""Bytes of scalar types and dim orders of a call's tensors, as the runtime writes them down to find
a kernel (`make_kernel_key_string`); those of 16 tensors always fit. Too many end as above."""


@dataclass(frozen=True, slots=True)
class Available:
    """What the methods of a program may refer to.

    Attributes:
        constants: Bytes that there are for each constant, by index; None: not to be told.
        initial: The same for initial values of mutable tensors.
        segments: How many segments there are.
        inline: Whether there is data, for each inline payload of a delegate.
    """

    constants: Sequence[int] | None
    initial: Sequence[int] | None
    segments: int
    inline: Sequence[bool]


class PlanCheck:
    """The checks of one method.

    Args:
        plans: The views of all methods.
        number: Which of them it is.
        plan: The method, decoded.
        available: What it may refer to.
        shapes: The shapes that were met so far.
    """

    def __init__(
        self,
        plans: Sequence[schema.ExecutionPlan],
        number: int,
        plan: schema.ExecutionPlan,
        available: Available,
        shapes: Shapes,
    ) -> None:
        self._plans = plans
        self._number = number
        self._plan = plan
        self._available = available
        self._shapes = shapes
        self._name = f"method {shown(plan.name)}"
        self._kinds = [type(value.val) for value in plan.values or ()]
        self._buffers = plan.non_const_buffer_sizes or ()
        self._external: dict[str, int] = {}

    @property
    def _view(self) -> schema.ExecutionPlan:
        return self._plans[self._number]

    def findings(self) -> Iterator[Finding]:
        """Yield all that is wrong with the method."""
        yield from self._told(self._header(), lambda: self._view, self._name)
        for number, value in enumerate(self._plan.values or ()):
            check = _VALUES.get(type(value.val))
            if check is not None:
                where = f"value {number} of {self._name}"
                problems = check(self, number, value.val)
                yield from self._told(problems, self._value_view(number), where)
        for number, delegate in enumerate(self._plan.delegates or ()):
            where = f"delegate {number} of {self._name}"
            yield from self._told(self._delegate(delegate), self._delegate_view(number), where)
        for number, chain in enumerate(self._plan.chains or ()):
            yield from self._chain(number, chain)

    def _told(
        self, problems: Iterable[Problem], view: Callable[[], object], where: str
    ) -> Iterator[Finding]:
        for what, expected, actual in problems:
            yield Finding(position_of(view()), f"{where}: {what}", expected, actual)

    def _value_view(self, number: int) -> Callable[[], object]:
        def view() -> object:
            value = (self._view.values or ())[number]
            return value if value.val is None else value.val

        return view

    def _delegate_view(self, number: int) -> Callable[[], object]:
        return lambda: (self._view.delegates or ())[number]

    # The method itself

    def _header(self) -> _Problems:
        plan = self._plan
        for name in _VECTORS:
            if getattr(plan, name) is None:
                yield Problem(f"{name} missing", "a vector", "none")
        yield from self._indices(plan.inputs, "inputs")
        yield from self._constant_inputs()
        yield from self._indices(plan.outputs, "outputs")
        smallest = min(self._buffers, default=0)
        if smallest < 0:
            yield Problem("size of a planned buffer is negative", "0 or more", str(smallest))
        for device in plan.non_const_buffer_device or ():
            if not 0 <= device.buffer_idx < len(self._buffers):
                room = f"an index below {len(self._buffers)}"
                yield Problem("planned buffer of a device", room, str(device.buffer_idx))
            yield from self._device(device.device_type)
        if plan.chains is not None and not plan.chains:
            yield Problem("chains", "one or more", "none")
        for operator in plan.operators or ():
            if operator.name is None:
                yield Problem("operator without a name", "text", "none")
                continue
            if operator.overload is None:
                what = f"operator {shown(operator.name)} without an overload"
                yield Problem(what, "text, or an empty one", "none")
            size = len(".".join(filter(None, (operator.name, operator.overload))).encode())
            if size > _MAX_OPERATOR:
                what = f"name of operator {shown(operator.name)}"
                yield Problem(what, f"at most {_MAX_OPERATOR} bytes", str(size))

    def _indices(self, indices: Sequence[int] | None, what: str, least: int = 0) -> _Problems:
        """Check indices of values; only the first bad one of a list is told."""
        count = len(self._kinds)
        if indices and (min(indices) < least or max(indices) >= count):
            bad = next(index for index in indices if not least <= index < count)
            room = f"{'-1 or ' * (least < 0)}an index below {count}"
            yield Problem(f"{what}: index of a value", room, str(bad))

    def _constant_inputs(self) -> _Problems:
        """Look for inputs that are constants, which the runtime would write to."""
        for index in self._plan.inputs or ():
            tensor = self._tensor_at(index)
            if tensor is None or tensor.allocation_info is not None:
                continue
            if tensor.data_buffer_idx and not _is_external(tensor):
                yield Problem("inputs: constant", "a tensor that can be set", f"value {index}")

    def _device(self, number: int) -> _Problems:
        if number not in _DEVICES:
            yield Problem("unknown type of device", "0 or 1", str(number))

    # Values

    def _none(self, _number: int, _value: None) -> _Problems:
        yield Problem("no value", "one of the schema's kinds", "none")

    def _tensor(self, _number: int, tensor: schema.Tensor) -> _Problems:
        shape = self._shapes.of(tensor)
        if tensor.storage_offset:
            yield Problem("storage offset", "0", str(tensor.storage_offset))
        if not 0 <= tensor.shape_dynamism <= 2:
            yield Problem("unknown shape dynamism", "0, 1 or 2", str(tensor.shape_dynamism))
        if shape.problem is not None:
            yield shape.problem
        yield from self._data(tensor, shape.nbytes or 0)

    def _data(self, tensor: schema.Tensor, nbytes: int) -> _Problems:
        planned, extra = tensor.allocation_info, tensor.extra_tensor_info
        if planned is not None:
            yield from self._planned(planned, nbytes)
        if extra is not None:
            yield from self._device(extra.device_type)
        if extra is not None and extra.location not in (0, 1):
            yield Problem("unknown location of data", "0 or 1", str(extra.location))
        elif extra is not None and extra.location == schema.TensorDataLocation.EXTERNAL:
            if not extra.fully_qualified_name:
                found = shown(extra.fully_qualified_name)
                yield Problem("external data without a name", "text", found)
            elif planned is None:
                # The runtime compares the first of a name with the file, and trusts the others.
                key = extra.fully_qualified_name
                first = self._external.setdefault(key, nbytes)
                if first < nbytes:
                    what = f"external data {shown(key)} is of a shorter tensor too"
                    yield Problem(what, f"{nbytes} bytes", str(first))
        elif tensor.data_buffer_idx:
            known = self._available.constants if planned is None else self._available.initial
            word = "constant" if planned is None else "initial value"
            if known is None:
                return  # told once for all
            if tensor.data_buffer_idx >= len(known):
                room = f"an index below {len(known)}"
                yield Problem(f"{word} does not exist", room, str(tensor.data_buffer_idx))
            elif known[tensor.data_buffer_idx] < nbytes:
                found = str(known[tensor.data_buffer_idx])
                yield Problem(f"{word} is shorter than its sizes", f"{nbytes} bytes", found)

    def _planned(self, planned: schema.AllocationDetails, nbytes: int) -> _Problems:
        count = len(self._buffers)
        if not 0 < planned.memory_id < count:
            room = f"1 to {count - 1}" if count > 1 else "none, there are no planned buffers"
            yield Problem("planned buffer does not exist", room, str(planned.memory_id))
            return
        end, size = planned.memory_offset + nbytes, self._buffers[planned.memory_id]
        if end > size:
            what = f"planned memory passes the end of buffer {planned.memory_id}"
            yield Problem(what, f"at most {size}", str(end))

    def _items(self, value: Any, least: int, kinds: tuple[type, ...]) -> _Problems:
        if value.items is None:
            yield Problem("items missing", "a vector", "none")
            return
        problems = list(self._indices(value.items, "items", least))
        yield from problems or self._of_kinds(value.items, "items", kinds)

    def _tensors(self, number: int, value: Any, least: int, kinds: tuple[type, ...]) -> _Problems:
        """Check a list of tensors, which the runtime takes from the values that it has made."""
        problems = list(self._items(value, least, kinds))
        latest = max(value.items or (), default=-1)
        if not problems and latest >= number:
            problems = [Problem("items: index of a value", f"an index below {number}", str(latest))]
        yield from problems

    def _of_kinds(self, indices: Iterable[int], what: str, kinds: tuple[type, ...]) -> _Problems:
        """Check that values, which exist, are of these kinds; only the first other one is told."""
        for index in indices:
            if index >= 0 and self._kinds[index] not in kinds:
                expected = " or ".join(kind.__name__ for kind in kinds)
                found = f"value {index} is {self._kinds[index].__name__}"
                yield Problem(f"{what}: kind of a value", expected, found)
                return

    def _int_list(self, _number: int, value: schema.IntList) -> _Problems:
        return self._items(value, 0, (schema.Int,))

    def _tensor_list(self, number: int, value: schema.TensorList) -> _Problems:
        return self._tensors(number, value, 0, (schema.Tensor,))

    def _optional_list(self, number: int, value: schema.OptionalTensorList) -> _Problems:
        return self._tensors(number, value, -1, (schema.Tensor, schema.Null))

    def _plain_list(self, _number: int, value: Any) -> _Problems:
        if value.items is None:
            yield Problem("items missing", "a vector", "none")

    def _string(self, _number: int, value: schema.String) -> _Problems:
        if value.string_val is None:
            yield Problem("text missing", "a string", "none")

    # Delegates

    def _delegate(self, delegate: schema.BackendDelegate) -> _Problems:
        if not delegate.id:
            yield Problem("backend without a name", "text", shown(delegate.id))
        for spec in delegate.compile_specs or ():
            if spec.key is None or spec.value is None:
                word = "key" if spec.key is None else "value"
                yield Problem(f"compile spec without a {word}", "a key and a value", "none")
        place = delegate.processed
        if place is None:
            yield Problem("data missing", "a place", "none")
        elif place.location == schema.DataLocation.SEGMENT:
            if place.index >= self._available.segments:
                room = f"an index below {self._available.segments}"
                yield Problem("segment does not exist", room, str(place.index))
        elif place.location != schema.DataLocation.INLINE:
            yield Problem("unknown location of data", "0 or 1", str(place.location))
        elif place.index >= len(self._available.inline):
            room = f"an index below {len(self._available.inline)}"
            yield Problem("inline data does not exist", room, str(place.index))
        elif not self._available.inline[place.index]:
            yield Problem("inline data is empty", "a byte vector", "none")

    # Instructions

    def _chain(self, number: int, chain: schema.Chain) -> Iterator[Finding]:
        def view() -> schema.Chain:
            return (self._view.chains or ())[number]

        where = f"chain {number} of {self._name}"
        yield from self._told(self._indices(chain.inputs, "inputs"), view, where)
        yield from self._told(self._indices(chain.outputs, "outputs"), view, where)
        if chain.instructions is None:
            missing = Problem("instructions missing", "a vector", "none")
            yield from self._told([missing], view, where)
        count = len(chain.instructions or ())
        for index, instruction in enumerate(chain.instructions or ()):
            for problem in self._instruction(instruction.instr_args, count):
                at = position_of((view().instructions or ())[index])
                what = f"instruction {index} of {where}: {problem.what}"
                yield Finding(at, what, problem.expected, problem.actual)

    def _instruction(self, call: schema.InstructionArguments | None, count: int) -> _Problems:
        if isinstance(call, schema.KernelCall):
            yield from self._call(call.op_index, self._plan.operators, "operator", call.args)
            yield from self._kernel_key(call.args or ())
            yield from self._out(call.args or ())
        elif isinstance(call, schema.DelegateCall):
            yield from self._call(call.delegate_index, self._plan.delegates, "delegate", call.args)
        elif isinstance(call, schema.MoveCall):
            yield from self._move(call.move_from, call.move_to)
        elif isinstance(call, schema.FreeCall):
            yield from self._one(call.value_index, "value to free", (schema.Tensor,))
        elif isinstance(call, schema.JumpFalseCall):
            yield from self._one(call.cond_value_index, "condition", (schema.Bool, schema.Tensor))
            if not 0 <= call.destination_instruction <= count:
                found = str(call.destination_instruction)
                yield Problem("destination of a jump", f"0 to {count}", found)
        else:
            yield Problem("no instruction", "one of the schema's kinds", "none")

    def _call(
        self, index: int, called: Sequence[object] | None, word: str, args: Sequence[int] | None
    ) -> _Problems:
        count = len(called or ())
        if not 0 <= index < count:
            yield Problem(f"{word} does not exist", f"an index below {count}", str(index))
        if args is None:
            yield Problem("arguments missing", "a vector", "none")
        yield from self._indices(args, "arguments")

    def _move(self, source: int, target: int) -> _Problems:
        problems = list(self._indices([source, target], "move"))
        yield from problems or self._of_kinds([target], "target of a move", (self._kinds[source],))

    def _out(self, args: Sequence[int]) -> _Problems:
        """Check that a kernel does not write to a constant; what it writes to comes last."""
        tensor = self._tensor_at(args[-1]) if args else None
        if tensor is not None and tensor.allocation_info is None and _is_constant(tensor):
            yield Problem(
                "last argument: constant", "what a kernel may write to", f"value {args[-1]}"
            )

    def _tensor_at(self, index: int) -> schema.Tensor | None:
        """Return a value that exists and is a tensor."""
        values = self._plan.values or ()
        value = values[index].val if 0 <= index < len(values) else None
        return value if isinstance(value, schema.Tensor) else None

    def _kernel_key(self, args: Sequence[int]) -> _Problems:
        if len(args) <= _FEW_TENSORS:
            return
        tensors = [it for it in map(self._tensor_at, args) if it is not None]
        size = len("|".join(map(_kernel_key_part, tensors))) + len("v1/")
        if size > _MAX_KERNEL_KEY:
            what = f"scalar types and dim orders of {len(tensors)} tensors"
            yield Problem(what, f"at most {_MAX_KERNEL_KEY} bytes", str(size))

    def _one(self, index: int, what: str, kinds: tuple[type, ...]) -> _Problems:
        if 0 <= index < len(self._kinds):
            yield from self._of_kinds([index], what, kinds)
        else:
            yield from self._indices([index], what)


def _is_external(tensor: schema.Tensor) -> bool:
    extra = tensor.extra_tensor_info
    return extra is not None and extra.location == schema.TensorDataLocation.EXTERNAL


def _is_constant(tensor: schema.Tensor) -> bool:
    return bool(tensor.data_buffer_idx) or _is_external(tensor)


def _kernel_key_part(tensor: schema.Tensor) -> str:
    order = tensor.dim_order or range(len(tensor.sizes or ()))
    return f"{tensor.scalar_type};{','.join(map(str, order))}"


_VALUES: dict[type, Callable[[PlanCheck, int, Any], _Problems]] = {
    type(None): PlanCheck._none,
    schema.Tensor: PlanCheck._tensor,
    schema.IntList: PlanCheck._int_list,
    schema.DoubleList: PlanCheck._plain_list,
    schema.BoolList: PlanCheck._plain_list,
    schema.TensorList: PlanCheck._tensor_list,
    schema.OptionalTensorList: PlanCheck._optional_list,
    schema.String: PlanCheck._string,
}
"""What to look at in a value of each kind; in those left out there is nothing."""
