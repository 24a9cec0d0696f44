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
from typing import Annotated, Any, Concatenate, TypeVar, get_args, get_origin, get_type_hints

import typer

from headwater.cli.session import Flags, Session
from headwater.cli.terminal.streams import discard_output

_PANEL = "Flags of every command"
_FLAGS = "flags"


def _flag(kind: Any, *names: str, text: str, metavar: str | None = None) -> Any:
    return Annotated[kind, typer.Option(*names, help=text, metavar=metavar, rich_help_panel=_PANEL, show_default=False)]


# The names are those of `Flags` behind a prefix, so that a command may have an argument called `log`.
_GLOBAL: dict[str, tuple[Any, Any]] = {
    "flag_log": (
        _flag(
            str | None,
            "--log",
            text="Folder of the log, http://… of its server, or kafka://… of brokers (or HEADWATER_LOG).",
            metavar="PATH",
        ),
        None,
    ),
    "flag_json": (_flag(bool, "--json", text="Short for --output json."), False),
    "flag_output": (_flag(str | None, "--output", text="table, json, jsonl or csv.", metavar="FORMAT"), None),
    "flag_no_color": (_flag(bool, "--no-color", text="No colour (or NO_COLOR)."), False),
    "flag_quiet": (_flag(bool, "--quiet", "-q", text="Print only data and errors."), False),
    "flag_verbose": (_flag(bool, "--verbose", "-v", text="Show the traceback of an error."), False),
}


def _names_of(*, switches: bool) -> frozenset[str]:
    flags = [get_args(annotation) for annotation, _ in _GLOBAL.values()]
    # Of an option in an annotation, typer keeps the first name as the default.
    named = [(option.default, *option.param_decls) for kind, option in flags if (kind is bool) is switches]
    return frozenset(name for names in named for name in names)


#: The flags of every command that take no value, and those that take one.
SWITCHES, VALUE_FLAGS = _names_of(switches=True), _names_of(switches=False)

# Any: functions with every signature.
Function = Callable[Concatenate[Session, ...], None]
F = TypeVar("F", bound=Function)


class Noun:
    """Commands about one thing, such as `headwater topic …`; without a name, commands of `headwater` itself."""

    def __init__(self, name: str = "", text: str | None = None) -> None:
        self._name, self._text = name, text
        self._itself: Function | None = None
        self._commands: list[tuple[str, tuple[str, ...], Function]] = []

    def command(self, name: str, *aliases: str) -> Callable[[F], F]:
        """Declare a function that takes a `Session` first as a command; its aliases work but are not listed."""

        def declare(function: F) -> F:
            self._commands.append((name, aliases, function))
            return function

        return declare

    def itself(self, function: F) -> F:
        """Declare the command that runs if none of the others is named."""
        self._itself = function
        return function

    def register(self, app: typer.Typer) -> None:
        """Add the commands to the application."""
        group = app
        if self._name:
            if self._itself is None:
                group = typer.Typer(name=self._name, help=self._text, no_args_is_help=True, rich_markup_mode=None)
                group.callback()(remember_flags())
            else:
                group = typer.Typer(name=self._name, invoke_without_command=True, rich_markup_mode=None)
                group.callback()(_with_flags(self._itself, alone=True))
            app.add_typer(group)
        for name, aliases, function in self._commands:
            wrapped = _with_flags(function)
            group.command(name)(wrapped)
            for alias in aliases:
                group.command(alias, hidden=True, help=f"The same as `{name}`.")(wrapped)


# Any: the annotation of an option.
def remember_flags(*, version: Any = None) -> Callable[..., None]:
    """A callback that takes the flags in front of a command's name, and with `version` that option."""

    def callback(context: typer.Context, **given: Any) -> None:
        _keep(context, given)

    return _signed(callback, [] if version is None else [_parameter("flag_version", version, False)])


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
