"""What a user has declared: a query is a function whose arguments name what it reads, and whose result is written."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwater.errors import DeclarationInvalid
from headwater.runtime.status import Kind
from headwater.runtime.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.sinks import Sink

Mode = Literal["append", "update"]


@dataclass(frozen=True, kw_only=True)
class Input:
    """An argument of a query: which topic or view it stands for, and how that is handed over."""

    parameter: str
    name: str
    kind: Literal["rows", "table"] = "rows"


@dataclass(frozen=True, kw_only=True)
class Query:
    """A function, what it reads, and where its rows go."""

    name: str
    kind: Kind
    function: Callable[..., DataFrame] = field(repr=False)
    inputs: tuple[Input, ...]
    where: str
    key: tuple[str, ...] = ()
    sinks: tuple[Sink, ...] = ()
    mode: Mode | None = None
    trigger: str | None = None
    tick: str | None = None
    rows_max: int | None = None
    late: str | None = None
    sides: Mapping[str, str] = field(default_factory=dict)
    ask: bool = False
    # Any: settings of a topic, as `Log.create` takes them.
    topic: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str | None:
        """The topic that the rows go to; none for a query that only feeds sinks."""
        return None if self.kind == "sink" else self.name

    @property
    def aside(self) -> dict[str, str]:
        """The sides of its operators that go to topics, and to which; the late rows are one of them."""
        return {**({} if self.late is None else {"late": self.late}), **self.sides}

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.name for each in self.inputs))

    def _repr_html_(self) -> str:
        from headwater.runtime.showing import query_html

        return query_html(self)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A topic that an app reads and that others write: made where it is missing."""

    name: str
    # Any: whatever `Log.create` takes for a schema and for its settings.
    schema: Any
    where: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def inputs_of(function: Callable[..., Any], names: Mapping[str, str], *, query: str) -> tuple[Input, ...]:
    """The arguments of a function as inputs; `names` says what an argument stands for where its name does not."""
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            why = f"its argument `{parameter}` has no name that could say what to read"
            raise DeclarationInvalid(query=query, where=where_of(function), why=why)
    unknown = set(names) - set(parameters)
    if unknown:
        why = f"`inputs` names {', '.join(sorted(unknown))}, which the function has no argument for"
        raise DeclarationInvalid(query=query, where=where_of(function), why=why)
    if not parameters:
        why = "it has no arguments, so it reads nothing"
        raise DeclarationInvalid(query=query, where=where_of(function), why=why)
    hints = _hints(function)
    return tuple(
        Input(parameter=name, name=names.get(name, name), kind="table" if hints.get(name) is Table else "rows")
        for name in parameters
    )


def where_of(function: Callable[..., Any]) -> str:
    """The file and line of a function, as people write them."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "?" if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"


# Any: an annotation may be anything.
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # a name that is imported for type checkers only
        found = getattr(function, "__annotations__", {})
        return {name: Table if str(kind).split(".")[-1] == "Table" else kind for name, kind in found.items()}
