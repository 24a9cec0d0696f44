"""The application: all commands together, and how a run of one of them ends."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import typer

from headwater.cli.coercion import lighten
from headwater.cli.command import remember_flags
from headwater.cli.commands import (
    alert,
    ask,
    config,
    consume,
    dev,
    dlq,
    doctor,
    group,
    init,
    log,
    produce,
    query,
    schema,
    serve,
    sql,
    state,
    token,
    topic,
    version,
    view,
)
from headwater.cli.commands import run as run_command
from headwater.cli.demo import command as demo
from headwater.cli.failures import report

HELP = "Headwater: event streams from one folder. Data goes to stdout, everything else to stderr."


def build() -> typer.Typer:
    """Build the application with all its commands."""
    app = typer.Typer(
        name="headwater", help=HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.callback()(remember_flags())
    everyday = (produce, consume, topic, group, schema)
    for module in (
        *everyday,
        sql,
        init,
        run_command,
        dev,
        serve,
        token,
        query,
        ask,
        view,
        dlq,
        alert,
        state,
        log,
        config,
        doctor,
        demo,
        version,
    ):
        module.register(app)
    return app


# Any: typer's own class of groups is not public.
@functools.cache
def _root() -> Any:
    """The root command. It is cached: reading the signatures of all commands takes longer than most commands run."""
    command = typer.main.get_command(build())
    lighten(command)
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
    except typer.TyperException as error:
        if not error.format_message().startswith("Usage:"):
            return report(error, color="--no-color" not in arguments, verbose=verbose)
        print(error.format_message(), file=sys.stderr)  # a noun without a verb: its commands are listed
        return error.exit_code
    # Every other error is reported here; nothing is swallowed, because the exit code says that the command failed.
    except Exception as error:
        return report(error, color="--no-color" not in arguments, verbose=verbose)
