"""The application: all commands together, how a run of one of them ends, and how a failure is reported.

A failed command prints one message with the problem and the remedy, and ends with an exit code: 0 done, 1 an error,
2 wrong usage, 3 not found, 4 not allowed, 5 a conflict, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from headwater.cli.commands import (
    alert,
    capture,
    check,
    config,
    consume,
    dev,
    dlq,
    doctor,
    entity,
    erase,
    gateway,
    group,
    init,
    log,
    mirror,
    package,
    produce,
    query,
    queue,
    schema,
    serve,
    sql,
    state,
    sync,
    token,
    topic,
    view,
    worker,
)
from headwater.cli.commands import run as run_command
from headwater.cli.declaration import remember_flags, without_pydantic
from headwater.cli.demo import command as demo
from headwater.cli.terminal.streams import painted, wants_color
from headwater.errors import HeadwaterError, NotFound, sentence
from headwater.optional import missing_package

HELP = "Headwater: event streams from one folder. Data goes to stdout, everything else to stderr."
#: In the order of the help page.
MODULES = (
    *(
        produce,
        consume,
        topic,
        group,
        schema,
        capture,
        gateway,
        queue,
        worker,
        sync,
        mirror,
        sql,
        init,
        run_command,
        dev,
        check,
        package,
        serve,
        token,
        query,
        view,
        dlq,
        alert,
        entity,
        erase,
    ),
    *(state, log, config, doctor, demo),
)
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


def build() -> typer.Typer:
    """Build the application with all its commands."""
    app = typer.Typer(
        name="headwater", help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.callback()(remember_flags(version=doctor.version_option))
    for module in MODULES:
        module.COMMANDS.register(app)
    query.ROOT.register(app)
    return app


# Any: typer's own class of groups is not public.
@functools.cache
def _root() -> Any:
    """The root command. It is cached: reading the signatures of all commands takes longer than most commands run."""
    command = typer.main.get_command(build())
    without_pydantic(command)
    return command


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    verbose = bool({"-v", "--verbose"} & set(arguments))
    try:
        code = _root().main(list(arguments), prog_name="headwater", standalone_mode=False)
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
