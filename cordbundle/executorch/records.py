"""Decoding straight into ExecuTorch's own dataclasses.

Rules of this file: the schema is described once, by this project's dataclasses; ExecuTorch's are
found by name, and made with regard to their own order of fields; what is no member of an
enumeration is refused.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, NoReturn, get_type_hints

from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Factory
from cordbundle.flatbuffer.schema import reachable, table_of

__all__ = ["factories"]


class _Members(dict[int, Enum]):
    """The members of an enumeration by value."""

    def __init__(self, kind: type[Enum], path: str) -> None:
        super().__init__((member.value, member) for member in kind)
        self._path = path

    def __missing__(self, value: int) -> NoReturn:
        raise FormatError(
            f"{self._path} is unknown",
            expected=" or ".join(f"{number} ({self[number].name})" for number in self),
            actual=value,
        )


@cache
def factories(module: ModuleType, root: type) -> dict[type, Factory]:
    """Return, for each table below a root, what makes the module's own records of it.

    Args:
        module: Where the records of the same names are.
        root: This project's dataclass of the root table.
    """
    return {
        table.cls: _factory(getattr(module, table.name), table.cls)
        for table in reachable(root)
        if hasattr(module, table.name)
    }


def _factory(record: type, cls: type) -> Factory:
    hints = get_type_hints(record)
    names: dict[str, Any] = {"record": record}
    fields = [field.name for field in table_of(cls).fields]
    one, many = [], []
    for item in dataclasses.fields(record):
        name = item.name
        if name not in fields:
            raise TypeError(f"{cls.__name__} has no field {name}, which {record} needs")
        hint = hints[name]
        if isinstance(hint, type) and issubclass(hint, Enum):
            names[f"members_{name}"] = _Members(hint, f"{record.__name__}.{name}")
            one.append(f"members_{name}[{name}]")
            many.append(f"map(members_{name}.__getitem__, {name})")
        else:
            one.append(name)
            many.append(name)
    given = ", ".join(fields)
    return Factory(
        one=eval(f"lambda {given}: record({', '.join(one)})", names),
        many=eval(f"lambda {given}: map(record, {', '.join(many)})", names),
    )
