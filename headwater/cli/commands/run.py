"""`headwater run`: run the app of a file, and show the statuses of its queries."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater import cli
from headwater.cli import let_pandas_in
from headwater.cli.arguments import StatementBounds
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.interrupts import on_interrupt
from headwater.cli.terminal.tables import counted
from headwater.errors import NotFound
from headwater.optional import require_extras

if TYPE_CHECKING:
    from headwater.apps.failure import Trouble
    from headwater.apps.home import Runner as Announced
    from headwater.apps.runner import Runner

SHOW_SECONDS = 0.5
#: How settings begin that the JVM must know when it starts, and the addresses of masters that are not local.
_OF_JAVA = ("spark.driver.", "spark.jars", "spark://", "k8s://")
File = Annotated[
    str | None,
    typer.Argument(
        help="A Python file that makes an app; FILE:NAME where it makes several. Otherwise the setting `app`.",
        metavar="FILE",
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", help="Where Spark runs, such as spark://host:7077.", metavar="URL")
]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Run this query alone; may be repeated.", metavar="QUERY")
]
Port = Annotated[int, typer.Option("--port", help="Port of the server; 0 takes a free one.", min=0, max=65535)]


COMMANDS = Noun()


@COMMANDS.command("run")
def run(
    session: Session,
    bounds: StatementBounds,
    file: File = None,
    until_caught_up: Annotated[bool, typer.Option("--until-caught-up", help="Process all input, then stop.")] = False,
    end_of_input: Annotated[
        bool,
        typer.Option(
            "--end-of-input", help="With --until-caught-up: no more rows follow, so close all windows at the end."
        ),
    ] = False,
    start: Annotated[
        str | None,
        typer.Option("--from", help="Where new queries begin: earliest, latest or a time.", metavar="WHERE"),
    ] = None,
    master: Master = None,
    only: Only = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another process runs the app, then take over.")
    ] = False,
    port: Port = 0,
) -> None:
    """Run the app of a file until Ctrl-C, or until it has caught up.

    Queries start from their checkpoints and are restarted when they fail. Ctrl-C ends the current batches first; a
    second Ctrl-C does not wait.
    """
    if end_of_input and not until_caught_up:
        raise typer.BadParameter("`--end-of-input` is for a run that ends: say `--until-caught-up` beside it.")
    let_pandas_in()
    check_machine()
    chosen = chosen_file(session, file)
    start_java_early(chosen, master=master)
    from headwater.apps.app_file import load_app
    from headwater.apps.runner import Runner

    app = load_app(chosen)
    runner = Runner(
        app,
        log=session.flags.log,
        master=master,
        only=only or (),
        start=start,
        until_caught_up=until_caught_up,
        end_of_input=end_of_input,
        standby=standby,
        port=port,
        served=partial(_served, console=not until_caught_up, settings=bounds.settings()),
    )
    if standby and runner.home.is_held():
        session.say(f"{app.name} is run by another process; waiting to take over.")
    elif standby and app.lease_seconds is not None:
        session.say(f"Waiting for the lease of {app.name}.")
    with interruptible(session, runner):
        runner.start_spark_early()
        with runner.ready():
            work(session, runner, until_caught_up=until_caught_up)
        if runner.spark is not None:
            runner.spark.stop()


# Any: arguments of the server, by their names.
def _served(runner: Runner, *, console: bool, **arguments: Any) -> contextlib.AbstractContextManager[Announced]:
    """Serve the app; the server, which takes long to import, is imported while Spark starts."""
    from headwater.console import served_with_console
    from headwater.http.server import served_app

    return (served_with_console if console else served_app)(runner, **arguments)


def start_java_early(file: str, *, master: str | None) -> None:
    """Start the JVM of an app before the app is read, unless its file has what the JVM must know when it starts."""
    path = Path(file.partition(":")[0])
    if not cli.is_own_process or master is not None or not path.is_file():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        compile(text, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):  # what reads the app says so
        return
    if any(word in text for word in _OF_JAVA):
        return
    from headwater.spark.java_process import start_early
    from headwater.workers import make_importable

    make_importable(str(path.parent.absolute()))
    with contextlib.suppress(NotFound):  # there is no Java: what needs it says so
        start_early()


def check_machine() -> None:
    """Raise if a package or the Java that an app needs is missing, before anything starts."""
    from headwater.spark.java import find_java

    require_extras("spark", "views")
    find_java()


def chosen_file(session: Session, given: str | None) -> str:
    """The file to run: the one that was given, or the one that the project's settings name."""
    chosen = given or session.config.app
    if chosen is None:
        raise typer.BadParameter(
            'No file to run was named. Give one, or write `app = "pipeline.py"` into headwater.toml; '
            "`headwater init NAME` makes a project that has both."
        )
    return chosen


def work(session: Session, runner: Runner, *, until_caught_up: bool) -> None:
    session.say(f"{runner.app.name}: {counted(len(runner.queries), 'query')} on {runner.log.address}")
    if not until_caught_up:
        tell_address(session, runner.announced.address)
    elif runner.gateways:
        session.say(f"{counted(len(runner.gateways), 'gateway')} not run: gateways have no end.")
    start_spark(session, runner)
    before = {status.name: status.rows_total for status in runner.statuses()}
    with displayed(session, runner):
        if until_caught_up:
            runner.catch_up()
        else:
            runner.supervise()
    if until_caught_up:
        for name, rows in runner.captured_rows.items():
            session.say(f"capture {name}: {counted(rows, 'row')}, caught up")
        for status in runner.statuses():
            read = status.rows_total - before.get(status.name, 0)
            behind = f", {status.lag_rows:,} rows behind" if status.lag_rows else ""
            session.say(f"{status.name}: {read:,} rows read, {status.state}{behind}")
        waiting = {name: count for name, count in runner.open_windows.items() if count}
        for name, count in waiting.items():
            session.say(f"{name}: {counted(count, 'window')} still open")
        if waiting:
            session.say("Later rows may still come for them. If none do, `--end-of-input` closes them.")
    else:
        session.say("Stopped. Everything up to the last batch is committed.")


def tell_address(session: Session, address: str) -> None:
    """Say where the console or the API of the app is."""
    from headwater.console import page_of

    page = page_of(address)
    if page is None:
        session.say(f"Its API is at {address}; `pip install 'headwater[console]'` adds the console.")
    else:
        session.say(f"Open {page} in a browser.")


def start_spark(session: Session, runner: Runner) -> None:
    """Start Spark in a thread, so that an interrupt takes effect meanwhile, and show the time that it takes."""
    began = time.monotonic()
    failure: list[BaseException] = []

    def start() -> None:
        try:
            runner.start_spark()
        except BaseException as error:  # raised by the thread that waits
            failure.append(error)

    thread = threading.Thread(target=start, name="headwater-spark", daemon=True)
    thread.start()
    if not session.shows_progress:
        session.say("Starting Spark …")
    while thread.is_alive():
        thread.join(0.1)
        if session.shows_progress:
            print(f"\rStarting Spark … {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
    if session.shows_progress:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if failure:
        raise failure[0]


@contextlib.contextmanager
def displayed(session: Session, runner: Runner) -> Iterator[None]:
    """Show the statuses of the queries while the block runs: a live table on a terminal, lines elsewhere."""
    from headwater.cli.terminal.query_table import Display

    done = threading.Event()

    def show() -> None:
        with Display(session, title=f"{runner.app.name} on {runner.log.address}") as display:
            told: dict[str, Trouble] = {}
            errors: dict[str, str] = {}
            addresses: dict[str, str] = {}
            while not done.wait(SHOW_SECONDS):
                display.show(runner.statuses())
                _report_failures(session, runner, told)
                _report_captures(session, runner, errors)
                _report_gateways(session, runner, addresses, errors)
            display.show(runner.statuses())

    thread = threading.Thread(target=show, name="headwater-display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(5)


def _report_failures(session: Session, runner: Runner, told: dict[str, Trouble]) -> None:
    """Report each new failure once: the line of the user's code, and with `--verbose` the JVM's trace."""
    from headwater.apps.failure import told_of

    for name, trouble in runner.troubles().items():
        if told.get(name) != trouble:
            told[name] = trouble
            session.warn(f"{name}: {told_of(trouble)}")
            if session.flags.verbose:
                session.say(trouble.trace)


def _report_captures(session: Session, runner: Runner, told: dict[str, str]) -> None:
    """Report each new error of a capture once."""
    for one in runner.captures:
        if one.error and told.get(one.name) != one.error:
            session.warn(f"capture {one.name}: {one.error}")
        told[one.name] = one.error


def _report_gateways(session: Session, runner: Runner, addresses: dict[str, str], told: dict[str, str]) -> None:
    """Report each new address and each new error of a gateway once."""
    for one in runner.gateways:
        if one.address and addresses.get(one.name) != one.address:
            addresses[one.name] = one.address
            session.say(f"gateway {one.name}: {one.address}")
        error = one.status().error
        if error and told.get(one.name) != error:
            session.warn(f"gateway {one.name}: {error}")
        told[one.name] = error


@contextlib.contextmanager
def interruptible(session: Session, runner: Runner) -> Iterator[None]:
    """Stop the runner on Ctrl-C; a second Ctrl-C does not wait."""

    def stop() -> None:
        if runner.is_stopping:
            os._exit(130)
        runner.request_stop()
        session.say("Stopping after the current batches; Ctrl-C again stops at once.")

    with on_interrupt(stop):
        yield
