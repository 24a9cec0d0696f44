"""Arguments as values, without pydantic: typer would load it for each run, and it takes longer than most commands.

typer asks a parameter's `_runtime_param` to turn text into a value, and builds one with pydantic where there is none.
Ours is put there first. A release of typer without that attribute goes its own way, only slower; a test tells us.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

# Any: parameters are typer's own, and their values of every type.
_WORDS = {int: "a whole number", float: "a number"}


class _Plain:
    """Turns the text of one parameter into text, a number, a path or a list of them."""

    def __init__(self, kind: Any, least: float | None) -> None:
        self._is_list = get_origin(kind) is list
        self._kind: Callable[[Any], Any] = get_args(kind)[0] if self._is_list else kind
        self._least = least

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if self._is_list else None
        if self._is_list:
            return [self._one(item, param, ctx) for item in value]
        return self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            made = self._kind(value)
        except ValueError:
            expected = _WORDS.get(self._kind, "another value")  # type: ignore[call-overload]
            raise typer.BadParameter(f"{value!r} is not {expected}.", ctx=ctx, param=param) from None
        if self._least is not None and made < self._least:
            raise typer.BadParameter(f"{value} is less than {self._least}.", ctx=ctx, param=param)
        return made


def lighten(command: Any) -> None:
    """Give each parameter of a command, and of those below it, its own way to its value."""
    # The flag --help is not among the parameters: it is made, and kept, when it is first asked for.
    for parameter in (*command.params, command.get_help_option(typer.Context(command))):
        kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        item = get_args(kind)[0] if get_origin(kind) is list else kind
        if hasattr(parameter, "_runtime_param") and item in (str, int, float, bool, Path):
            parameter._runtime_param = _Plain(kind, parameter.min)
    for below in getattr(command, "commands", {}).values():
        lighten(below)
