"""How a function becomes a command: it gets a `Session`, and every command takes the same flags, before or after its name.

A parameter whose type is a dataclass is spread: its fields are options of the command, so that several commands share
them. Two rules hold for all commands: a reader that closes our output ends a command quietly, and the output is flushed
before the process ends.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_args, get_origin, get_type_hints

import typer

from headwater.cli.session import Flags, Session
from headwater.cli.terminal.streams import discard_output

P = ParamSpec("P")
_PANEL = "Flags of every command"
_FLAGS = "flags"


def _flag(kind: Any, *names: str, text: str, metavar: str | None = None) -> Any:
    return Annotated[kind, typer.Option(*names, help=text, metavar=metavar, rich_help_panel=_PANEL, show_default=False)]


# The names are those of `Flags` behind a prefix, so that a command may have an argument called `log`.
_GLOBAL: dict[str, tuple[Any, Any]] = {
    "flag_log": (
        _flag(
            str | None, "--log", text="Folder of the log, or http://… of its server (or HEADWATER_LOG).", metavar="PATH"
        ),
        None,
    ),
    "flag_json": (_flag(bool, "--json", text="Short for --output json."), False),
    "flag_output": (_flag(str | None, "--output", text="table, json, jsonl or csv.", metavar="FORMAT"), None),
    "flag_no_color": (_flag(bool, "--no-color", text="No colour (or NO_COLOR)."), False),
    "flag_quiet": (_flag(bool, "--quiet", "-q", text="Print only data and errors."), False),
    "flag_verbose": (_flag(bool, "--verbose", "-v", text="Show the traceback of an error."), False),
}


def command(app: typer.Typer, name: str, *aliases: str, **settings: Any) -> Callable[[Any], Any]:
    """Make a function that takes a `Session` first a command of `app`; its aliases work but are not listed."""

    def register(function: Callable[Concatenate[Session, P], None]) -> Callable[Concatenate[Session, P], None]:
        wrapped = _with_flags(function)
        app.command(name, **settings)(wrapped)
        for alias in aliases:
            app.command(alias, hidden=True, help=f"The same as `{name}`.")(wrapped)
        return function

    return register


def noun(app: typer.Typer, name: str, text: str) -> typer.Typer:
    """A group of commands about one thing."""
    group = typer.Typer(name=name, help=text, no_args_is_help=True, rich_markup_mode=None)
    group.callback()(remember_flags())
    app.add_typer(group)
    return group


def acting_noun(app: typer.Typer, name: str, function: Callable[Concatenate[Session, P], None]) -> typer.Typer:
    """A group of commands that is itself a command if none of the others is named."""
    group = typer.Typer(name=name, invoke_without_command=True, rich_markup_mode=None)
    group.callback()(_with_flags(function, alone=True))
    app.add_typer(group)
    return group


def remember_flags() -> Callable[..., None]:
    """A callback that takes the flags in front of a command's name."""

    def callback(context: typer.Context, **given: Any) -> None:
        _keep(context, given)

    return _signed(callback, [])


def _keep(context: typer.Context, given: dict[str, Any]) -> Flags:
    """Keep the flags for the commands below; those nearer to the command are stronger."""
    flags = Flags(**{name.removeprefix("flag_"): given[name] for name in _GLOBAL})
    root = context.find_root()
    kept: Flags = flags.over(root.meta.get(_FLAGS, Flags()))
    root.meta[_FLAGS] = kept
    return kept


def _with_flags(function: Callable[..., None], *, alone: bool = False) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    spread = {parameter.name: hints[parameter.name] for parameter in own if is_dataclass(hints[parameter.name])}

    @functools.wraps(function)
    def run(context: typer.Context, **given: Any) -> None:
        flags = _keep(context, given)
        if alone and context.invoked_subcommand is not None:
            return
        values = {name: value for name, value in given.items() if name not in _GLOBAL}
        for name, kind in spread.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        with _quiet_on_closed_pipe():
            function(Session.begin(flags), **values)

    parameters: list[inspect.Parameter] = []
    for parameter in own:
        kind = hints[parameter.name]
        if parameter.name in spread:
            types = get_type_hints(kind, include_extras=True)
            parameters += [_parameter(field.name, types[field.name], field.default) for field in fields(kind)]
        else:
            parameters.append(_parameter(parameter.name, kind, parameter.default))
    return _signed(run, parameters)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _signed(function: Callable[..., None], own: list[inspect.Parameter]) -> Callable[..., None]:
    """The function with a signature that shows typer its own parameters and the flags of every command."""
    shared = [_parameter(name, kind, value) for name, (kind, value) in _GLOBAL.items()]
    parameters = [_parameter("context", typer.Context, inspect.Parameter.empty), *own, *shared]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {item.name: item.annotation for item in parameters}
    if hasattr(function, "__wrapped__"):
        del function.__wrapped__  # or typer would read the signature of the wrapped function
    return function


@contextlib.contextmanager
def _quiet_on_closed_pipe() -> Iterator[None]:
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(0) from None


# -- arguments without pydantic ---------------------------------------------------------------------------------------
# Typer converts text with pydantic, whose import takes longer than most commands. It asks a parameter's `_runtime_param`
# first, so ours is put there. A release of typer without that attribute is only slower; a test notices.

# Any: parameters are typer's own, and their values of every type.
_WORDS = {int: "a whole number", float: "a number"}


class _Plain:
    """Converts the text of one parameter to text, a number, a path or a list of them."""

    def __init__(self, kind: Any, least: float | None) -> None:
        self._is_list = get_origin(kind) is list
        self._kind: Callable[[Any], Any] = get_args(kind)[0] if self._is_list else kind
        self._least = least

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if self._is_list else None
        if self._is_list:
            return [self._convert(item, param, ctx) for item in value]
        return self._convert(value, param, ctx)

    def _convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            converted = self._kind(value)
        except ValueError:
            expected = _WORDS.get(self._kind, "another value")  # type: ignore[call-overload]
            raise typer.BadParameter(f"{value!r} is not {expected}.", ctx=ctx, param=param) from None
        if self._least is not None and converted < self._least:
            raise typer.BadParameter(f"{value} is less than {self._least}.", ctx=ctx, param=param)
        return converted


def without_pydantic(command: Any) -> None:
    """Let a command and all commands below it convert their arguments without pydantic."""
    # The flag --help is not among the parameters: typer makes and keeps it on first use.
    for parameter in (*command.params, command.get_help_option(typer.Context(command))):
        kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        item = get_args(kind)[0] if get_origin(kind) is list else kind
        if hasattr(parameter, "_runtime_param") and item in (str, int, float, bool, Path):
            parameter._runtime_param = _Plain(kind, parameter.min)
    for below in getattr(command, "commands", {}).values():
        without_pydantic(below)
