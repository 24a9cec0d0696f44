"""How a function becomes a command: it gets a `Session`, and every command takes the same flags, before or after its name.

Two rules hold here once and for all. A reader that closes our output ends a command quietly. And whatever happens,
what was written so far is flushed before the process goes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from headwater.cli.session import Flags, Session
from headwater.cli.terminal.streams import forget_output

P = ParamSpec("P")
_PANEL = "Flags of every command"
_FLAGS = "flags"


def _flag(kind: Any, *names: str, text: str, metavar: str | None = None) -> Any:
    return Annotated[kind, typer.Option(*names, help=text, metavar=metavar, rich_help_panel=_PANEL, show_default=False)]


# The names are those of `Flags`; `log` stands aside for a command whose own argument is called so.
_GLOBAL: dict[str, tuple[Any, Any]] = {
    "flag_log": (
        _flag(
            str | None, "--log", text="Folder of the log, or http://… of its server (or HEADWATER_LOG).", metavar="PATH"
        ),
        None,
    ),
    "flag_json": (_flag(bool, "--json", text="Short for --output json."), False),
    "flag_output": (
        _flag(str | None, "--output", text="table, json, jsonl or csv.", metavar="FORMAT"),
        None,
    ),
    "flag_no_color": (_flag(bool, "--no-color", text="No colour (or NO_COLOR)."), False),
    "flag_quiet": (_flag(bool, "--quiet", "-q", text="Say nothing but data and errors."), False),
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
    """A group of commands that is a command itself, where none of the others is named."""
    group = typer.Typer(name=name, invoke_without_command=True, rich_markup_mode=None)
    group.callback()(_with_flags(function, alone=True))
    app.add_typer(group)
    return group


def remember_flags() -> Callable[..., None]:
    """A callback that takes the flags which stand in front of a command's name."""

    def callback(context: typer.Context, **given: Any) -> None:
        _keep(context, given)

    return _signed(callback, [], {})


def flags_of(context: typer.Context) -> Flags:
    kept: Flags = context.find_root().meta.get(_FLAGS, Flags())
    return kept


def _keep(context: typer.Context, given: dict[str, Any]) -> None:
    flags = Flags(**{name.removeprefix("flag_"): given[name] for name in _GLOBAL})
    root = context.find_root()
    root.meta[_FLAGS] = flags.over(root.meta.get(_FLAGS, Flags()))


def _with_flags(function: Callable[..., None], *, alone: bool = False) -> Callable[..., None]:
    @functools.wraps(function)
    def run(context: typer.Context, **given: Any) -> None:
        _keep(context, given)
        if alone and context.invoked_subcommand is not None:
            return
        own = {name: value for name, value in given.items() if name not in _GLOBAL}
        with _quiet_on_closed_pipe():
            function(Session.begin(flags_of(context)), **own)

    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return _signed(run, parameters, hints)


def _signed(
    function: Callable[..., None], parameters: list[inspect.Parameter], hints: dict[str, Any]
) -> Callable[..., None]:
    """The function, with a signature that shows typer its own parameters and the global ones."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("context", keyword, annotation=typer.Context)
    own = [parameter.replace(kind=keyword, annotation=hints[parameter.name]) for parameter in parameters]
    shared = [
        inspect.Parameter(name, keyword, annotation=kind, default=value) for name, (kind, value) in _GLOBAL.items()
    ]
    function.__signature__ = inspect.Signature([context, *own, *shared])  # type: ignore[attr-defined]
    function.__annotations__ = {item.name: item.annotation for item in [context, *own, *shared]}
    if hasattr(function, "__wrapped__"):
        del function.__wrapped__  # or the signature of the wrapped function would be taken for it
    return function


@contextlib.contextmanager
def _quiet_on_closed_pipe() -> Iterator[None]:
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        forget_output()
        raise typer.Exit(0) from None
