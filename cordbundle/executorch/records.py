"""Decoding straight into ExecuTorch's own dataclasses.

Rules of this file: the schema is described once, by this project's dataclasses; ExecuTorch's are
found by name and made by keyword, since they order their fields differently; what is no member of
an enumeration is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, NoReturn, get_type_hints

from cordbundle.errors import FormatError
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
def factories(module: ModuleType, root: type) -> dict[type, Callable[..., object]]:
    """Return, for each table below a root, the function that makes the module's own record of it.

    Args:
        module: Where the records of the same names are.
        root: This project's dataclass of the root table.
    """
    return {
        table.cls: _factory(getattr(module, table.name), table.cls)
        for table in reachable(root)
        if hasattr(module, table.name)
    }


def _factory(record: type, cls: type) -> Callable[..., object]:
    hints = get_type_hints(record)
    names: dict[str, Any] = {"record": record}
    arguments = []
    known = {item.name for item in dataclasses.fields(record)}
    fields = [field.name for field in table_of(cls).fields]
    for name in fields:
        hint = hints.get(name)
        if name not in known:
            continue  # added by this project
        if isinstance(hint, type) and issubclass(hint, Enum):
            names[f"members_{name}"] = _Members(hint, f"{record.__name__}.{name}")
            arguments.append(f"{name}=members_{name}[{name}]")
        else:
            arguments.append(f"{name}={name}")
    source = f"lambda {', '.join(fields)}: record({', '.join(arguments)})"
    return eval(source, names)  # type: ignore[no-any-return]
