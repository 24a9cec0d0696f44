"""The application: all commands together, how a run of one of them ends, and how a failure is reported.

A failed command prints one message with the problem and the remedy, and ends with an exit code: 0 done, 1 an error,
2 wrong usage, 3 not found, 4 not allowed, 5 a conflict, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from headwater.cli.declaration import SWITCHES, VALUE_FLAGS, remember_flags, without_pydantic
from headwater.cli.session import Flags, Session
from headwater.cli.terminal.streams import painted, wants_color
from headwater.errors import HeadwaterError, NotFound, sentence
from headwater.optional import missing_package

HELP = "Headwater: event streams from one folder. Data goes to stdout, everything else to stderr."
#: The module of each word that a command line can begin with, in the order of the help page.
WORDS = {
    "produce": "commands.produce",
    "consume": "commands.consume",
    "tail": "commands.consume",
    "topic": "commands.topic",
    "group": "commands.group",
    "schema": "commands.schema",
    "capture": "commands.capture",
    "gateway": "commands.gateway",
    "queue": "commands.queue",
    "worker": "commands.worker",
    "sync": "commands.sync",
    "mirror": "commands.mirror",
    "sql": "commands.sql",
    "init": "commands.init",
    "run": "commands.run",
    "dev": "commands.dev",
    "check": "commands.check",
    "package": "commands.package",
    "serve": "commands.serve",
    "token": "commands.token",
    "query": "commands.query",
    "view": "commands.view",
    "dlq": "commands.dlq",
    "alert": "commands.alert",
    "entity": "commands.entity",
    "erase": "commands.erase",
    "state": "commands.state",
    "log": "commands.log",
    "config": "commands.config",
    "doctor": "commands.doctor",
    "version": "commands.doctor",
    "demo": "demo.command",
    "replay": "commands.query",
    "rescale": "commands.query",
    "ask": "commands.query",
}
# Remedies for the command line, where that of the error is written for programs. By name, so that no class is loaded.
_REMEDIES = {
    "OffsetExpired": "Begin at the oldest row with `--offset start`, or raise the topic's retention.",
    "OffsetAhead": "Begin with `--offset start` or `--offset end`; the topic may have been deleted and made again.",
    "SchemaConflict": "Add nullable columns or widen types; to drop a column, give `--force`; otherwise make a new topic.",
    "GroupActive": "Stop them first; a consumer releases its partitions when it ends.",
    "TokenInvalid": "Give one that `headwater token create` has made for this server: as HEADWATER_TOKEN, or as `token` in headwater.toml.",
    "ReadOnly": "Run it as a user with write permission, or change the folder's permissions.",
}
_NO_LOG = "Correct the path (`--log PATH` or HEADWATER_LOG), or make a log there with `headwater topic create NAME`."


def _show_version_and_exit(wanted: bool) -> None:
    if wanted:
        from headwater.cli.commands.doctor import show_version

        show_version(Session.begin(Flags()))
        raise typer.Exit


_VERSION = Annotated[
    bool, typer.Option("--version", help="Show the versions.", callback=_show_version_and_exit, is_eager=True)
]


def build(word: str | None = None) -> typer.Typer:
    """Build the application with all its commands, or with those of the module that has this word."""
    app = typer.Typer(
        name="headwater", help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.callback()(remember_flags(version=_VERSION))
    names = dict.fromkeys(WORDS.values() if word is None else [WORDS[word]])
    modules = [importlib.import_module(f"headwater.cli.{name}") for name in names]
    for module in modules:
        module.COMMANDS.register(app)
    for module in modules:
        if hasattr(module, "ROOT"):
            module.ROOT.register(app)
    return app


# Any: typer's own class of groups is not public.
@functools.cache
def _root(word: str | None) -> Any:
    """The root command. It is cached: reading the signatures of all commands takes longer than most commands run."""
    command = typer.main.get_command(build(word))
    without_pydantic(command)
    return command


def first_word(arguments: Sequence[str]) -> str | None:
    """The word that a command line begins with, after its flags; None if all commands must be known to understand it.

    >>> first_word(["--log", "view", "topic", "list"]), first_word(["--help"]), first_word(["topc", "list"])
    ('topic', None, None)
    """
    rest = iter(arguments)
    for argument in rest:
        if argument in VALUE_FLAGS:
            next(rest, None)
        elif argument not in SWITCHES:
            return argument if argument in WORDS else None
    return None


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    verbose = bool({"-v", "--verbose"} & set(arguments))
    try:
        code = _root(first_word(arguments)).main(list(arguments), prog_name="headwater", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return 130
    except typer.Abort:
        print("Nothing was changed.", file=sys.stderr)
        return 1
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    # Every other error is reported here; nothing is swallowed, because the exit code says that the command failed.
    except Exception as error:
        if isinstance(error, typer.TyperException) and error.format_message().startswith("Usage:"):
            print(error.format_message(), file=sys.stderr)  # a noun without a verb: its commands are listed
            return error.exit_code
        return report(error, color="--no-color" not in arguments, verbose=verbose)


# -- failures ---------------------------------------------------------------------------------------------------------


def report(error: BaseException, *, color: bool, verbose: bool) -> int:
    """Print an error to stderr and return its exit code."""
    if verbose:
        traceback.print_exception(error)
    with contextlib.suppress(OSError):  # the reader of stdout may be gone; the error is printed all the same
        sys.stdout.flush()  # data that was written before the error comes first
    message, code = explain(error)
    print(f"{painted('error:', 'red', color=color and wants_color(sys.stderr))} {message}", file=sys.stderr)
    return code


def explain(error: BaseException) -> tuple[str, int]:
    """The message and the exit code of a failure.

    >>> explain(NotFound(kind="topic", name="orders"))[1]
    3
    """
    if isinstance(error, HeadwaterError):
        is_log = isinstance(error, NotFound) and error.kind == "log"
        remedy = _NO_LOG if is_log else _REMEDIES.get(type(error).__name__)
        text = str(error) if remedy is None else f"{error.filled(error.problem)} {remedy}"
        return text, error.exit_code
    if isinstance(error, typer.TyperException):
        return _usage_message(error), error.exit_code
    if isinstance(error, OSError):
        message = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}."
        if isinstance(error, FileNotFoundError):
            return f"{message} Correct the path.", 3
        if isinstance(error, PermissionError):
            return f"{message} Run it as a user with permission, or change the permissions.", 4
        return message, 1
    missing = missing_package(error)
    if missing is not None:
        return str(missing), missing.exit_code
    text = sentence(f"{type(error).__name__}: {error}".removesuffix(": "))
    return f"{text} This should not happen: please report it, with what `--verbose` shows.", 1


def _usage_message(error: typer.TyperException) -> str:
    message = error.format_message().removeprefix("Invalid value: ").strip()
    message = message if message.endswith((".", "?", "!", "`")) else f"{message}."
    context = getattr(error, "ctx", None)
    # A message that names a command or a flag needs no further hint.
    return f"{message} See `{context.command_path} --help`." if context is not None and "`" not in message else message
