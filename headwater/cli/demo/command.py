"""`headwater demo`: a small company in motion, in the terminal and in the browser."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.declaration import Noun
from headwater.cli.demo.display import Stage, show_outcomes
from headwater.cli.demo.log_tour import SECONDS_MIN, Tour
from headwater.cli.session import Session
from headwater.cli.terminal.interrupts import on_interrupt
from headwater.cli.terminal.streams import is_terminal
from headwater.errors import ArgumentInvalid
from headwater.home import is_remote, is_server
from headwater.optional import require_extras

if TYPE_CHECKING:
    from headwater.cli.demo.director import Director, Plan

PORT = 8080
PORTS = 20
#: Under this a check would see too little.
CHECK_SECONDS_MIN = 20.0

Seconds = Annotated[
    float | None, typer.Option("--seconds", help="How long rows come; without it, until Ctrl-C.", min=5.0, metavar="N")
]
Folder = Annotated[Path | None, typer.Option("--dir", help="Keep the data here.", file_okay=False, metavar="FOLDER")]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")]
Port = Annotated[
    int | None, typer.Option("--port", help="Port of the server; 8080 or the next free one.", min=0, max=65535)
]
Browser = Annotated[
    bool | None,
    typer.Option("--open/--no-open", help="Open the browser; by itself on a terminal, and not with a check."),
]
Seed = Annotated[int, typer.Option("--seed", help="Another seed makes another world.", metavar="N")]


COMMANDS = Noun("demo")


@COMMANDS.itself
def demo(
    session: Session,
    seconds: Seconds = None,
    check: Annotated[
        bool, typer.Option("--check", help="At the end recompute every output, and fail on any difference.")
    ] = False,
    folder: Folder = None,
    keep: Keep = False,
    port: Port = None,
    browser: Browser = None,
    seed: Seed = 7,
) -> None:
    """Watch a small company at work: its rows, queries and views, live.

    The server is up at once, and rows come in; then Spark starts, and its queries begin one after the other. Nothing
    leaves this machine, unless the log is elsewhere: `--log kafka://…`. Ctrl-C ends it in order.
    """
    if check and seconds is None:
        seconds = CHECK_SECONDS_MIN
    with _place(folder, keep=keep) as place:
        plan = _plan(session, place, port=port, seconds=seconds, check=check, crash=False, seed=seed)
        _perform(session, plan, browser=browser, kept=keep or folder is not None)


@COMMANDS.command("crash")
def crash(
    session: Session,
    seconds: Seconds = CHECK_SECONDS_MIN,
    folder: Folder = None,
    keep: Keep = False,
    port: Port = None,
    browser: Browser = None,
    seed: Seed = 7,
) -> None:
    """Kill the company in the middle of its work, start it again, and count.

    The process that runs all queries is killed with `kill -9` while rows come. At the end every output is recomputed from
    the input topics; the command fails if a row was lost, doubled or is wrong.
    """
    with _place(folder, keep=keep) as place:
        plan = _plan(session, place, port=port, seconds=seconds, check=True, crash=True, seed=seed)
        _perform(session, plan, browser=browser, kept=keep or folder is not None)


@COMMANDS.command("log")
def tour(
    session: Session,
    seconds: Annotated[
        float, typer.Option("--seconds", help="How long the tour takes.", min=SECONDS_MIN, metavar="N")
    ] = 20.0,
    folder: Folder = None,
    keep: Keep = False,
) -> None:
    """Take a live tour of the log, in which a process is killed.

    Several processes share one folder. Halfway, one of them is killed with SIGKILL. At the end everything is counted;
    the command fails if an order was lost or billed twice.
    """
    with _place(folder, keep=keep, must_be_empty=False) as place:
        result = Tour(session, place, seconds).run()
        painted = session.paint(str(result), "green" if result.holds else "red")
        session.show(vars(result), [painted], holds=result.holds)
        if keep or folder is not None:
            session.say(f"The data is in {place}: try `headwater --log {place} topic list`.")
    if not result.holds:
        session.warn("The counts differ: this is a bug. Please report it, with the folder (`--keep`).")
        raise typer.Exit(1)


def _plan(
    session: Session, place: Path, *, port: int | None, seconds: float | None, check: bool, crash: bool, seed: int
) -> Plan:
    _check_machine()
    from headwater.cli.demo.director import Plan

    chosen = free_port() if port is None else port
    log = _log(session.flags.log)
    return Plan(folder=place, log=log, port=chosen, seconds=seconds, check=check, crash=crash, seed=seed)


def _log(address: str | None) -> str:
    """The address of a log that is not in the demo's folder; on a cluster a new namespace, since the demo begins with no rows."""
    if address is None or not is_remote(address):
        return ""
    if is_server(address):
        raise ArgumentInvalid(
            name="--log", value=address, expected="kafka://…, or none: the demo makes a log of its own"
        )
    scheme, _, rest = address.rstrip("/").partition("://")
    return address if "/" in rest else f"{scheme}://{rest}/demo-{secrets.token_hex(3)}"


def _check_machine() -> None:
    """Say what is missing before anything starts."""
    from headwater.cli.demo.process import make_company_importable
    from headwater.spark.java import find_java

    require_extras("demo")
    find_java()
    make_company_importable()


def _perform(session: Session, plan: Plan, *, browser: bool | None, kept: bool) -> None:
    from headwater.cli.demo.director import Director, EndedEarly

    opens = is_terminal(sys.stderr) and not plan.check if browser is None else browser
    with Stage(session, browser=opens) as stage:
        director = Director(plan, stage)
        with _interruptible(director):
            try:
                outcomes = director.run()
            except EndedEarly:
                session.say("Ended before there was anything to check.")
                raise typer.Exit(130) from None
    if kept:
        session.say(f"The data is in {plan.folder}: try `headwater --log {plan.address} topic list`.")
    elif plan.log:
        session.say(f"Its topics are still there: try `headwater --log {plan.address} topic list`.")
    if plan.check and not show_outcomes(session, outcomes, appended=director.appended, crashed=plan.crash):
        raise typer.Exit(1)


@contextlib.contextmanager
def _place(folder: Path | None, *, keep: bool, must_be_empty: bool = True) -> Iterator[Path]:
    if must_be_empty and folder is not None and folder.exists() and any(folder.iterdir()):
        raise ArgumentInvalid(name="--dir", value=str(folder), expected="a folder that is empty, or not there yet")
    made = Path(tempfile.mkdtemp(prefix="headwater-demo-")) if folder is None else folder.absolute()
    try:
        yield made
    finally:
        if folder is None and not keep:
            shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def _interruptible(director: Director) -> Iterator[None]:
    """End the demo on Ctrl-C; a second Ctrl-C does not wait."""

    def leave() -> None:
        if director.is_leaving:
            director.abandon()
            os._exit(130)
        director.leave()

    with on_interrupt(leave):
        yield


def free_port() -> int:
    """8080, or the next free port; 0 if all of them are taken."""
    for port in range(PORT, PORT + PORTS):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                trial.bind(("127.0.0.1", port))
                return port
    return 0
