"""`headwater gateway`: events in and out without a client library."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import Yes
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns
from headwater.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from headwater.gateways import GatewayRunner
    from headwater.services.gateways import GatewayStatus

COMMANDS = Noun("gateway", "Events in and out without a client library: StatsD, webhooks, syslog, files and more.")

Name = Annotated[str, typer.Argument(help="Name of the gateway, such as statsd-metrics.", metavar="NAME")]


@COMMANDS.command("kinds")
def kinds(
    session: Session,
    kind: Annotated[str | None, typer.Argument(help="Show the settings of this kind.", metavar="[KIND]")] = None,
) -> None:
    """List the kinds of gateways, or the settings of one kind with their defaults."""
    from headwater.gateways.kinds import gateway_class
    from headwater.services.gateways import described_kinds

    if kind is not None:
        gateway_class(kind)  # one that is not there is an error that names the others
    found = [one for one in described_kinds() if kind in (None, one.kind)]
    if kind is None:
        rows = [[one.kind, one.direction, one.purpose] for one in found]
        session.show_all(found, columns("KIND", "DIRECTION", "PURPOSE…"), rows)
        return
    [chosen] = found
    rows = [[one.name, one.default or "-", one.type] for one in chosen.settings]
    lines = [f"{session.paint(chosen.kind, 'bold')}  {chosen.purpose}", ""]
    lines += session.table(columns("SETTING", "DEFAULT…", "TYPE…"), rows)
    session.show(chosen, [*lines, "", f"Run one: headwater gateway run {chosen.kind} NAME=VALUE …"])


@COMMANDS.command("run")
def run(
    session: Session,
    kind: Annotated[
        str | None,
        typer.Argument(help="What kind of gateway; `headwater gateway kinds` lists them.", metavar="[KIND]"),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings, such as port=8125 topic=metrics.", metavar="[NAME=VALUE]…")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A TOML file with a table [[gateway]] for each of several.", metavar="PATH"),
    ] = None,
) -> None:
    """Run gateways in this process until Ctrl-C; at the end their counters are shown.

    What was received is appended before the command ends. A gateway that fails is restarted with pauses that grow to half a
    minute.
    """
    from headwater.gateways import GatewayRunner
    from headwater.gateways.kinds import gateway_from_text, gateways_from_file

    if (kind is None) == (file is None):
        raise typer.BadParameter("Give a kind of gateway, or a file with `--file`.")
    gateways = gateways_from_file(file) if file is not None else [gateway_from_text(kind or "", settings or [])]
    with session.log(create=True, write=True) as log:
        runners = [GatewayRunner(log, gateway) for gateway in gateways]
        with contextlib.ExitStack() as stack:
            for runner in runners:
                runner.start()
                stack.callback(runner.stop)
                ends = [runner.address, f"topic {runner.gateway.topic}"]
                way = ends if runner.gateway.direction == "in" else reversed(ends)
                session.say(f"{runner.name}: {' → '.join(way)}")
            session.say("Stop with Ctrl-C.")
            _wait(session, runners)
            for runner in runners:
                runner.request_stop()
        statuses = [runner.status() for runner in runners]
    rows = [[one.name, *(f"{count:,}" for count in one.counters.values()), f"{one.restarts:,}"] for one in statuses]
    titles = ("GATEWAY", ">RECEIVED", ">APPENDED", ">REJECTED", ">DUPLICATES", ">LOST", ">BYTES", ">RESTARTS")
    session.show_all(statuses, columns(*titles), rows)


def _wait(session: Session, runners: list[GatewayRunner]) -> None:
    """Show what gateways do until Ctrl-C; a new error is told once."""
    from headwater.cli.terminal.gateway_progress import gateway_progress

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    errors: dict[str, str] = {}
    with gateway_progress(session) as show, contextlib.suppress(KeyboardInterrupt):
        while not stop.wait(0.2):
            statuses = [runner.status() for runner in runners]
            show(statuses)
            for one in statuses:
                if one.error != errors.get(one.name, ""):
                    errors[one.name] = one.error
                    session.warn(f"{one.name}: {one.error}")


@COMMANDS.command("list", "ls")
def list_gateways(session: Session) -> None:
    """List the gateways that run on this machine, or ran here last, with what each has taken, rejected and lost."""
    with session.services() as services:
        found = services.gateways.list_gateways()
    rows = [
        [
            one.name,
            one.state,
            f"{one.received:,}",
            f"{one.appended:,}",
            f"{one.rejected:,}" if one.rejected else "-",
            f"{one.lost:,}" if one.lost else "-",
            f"{one.per_second.get('received', 0.0):,.0f}" if one.running else "-",
            _age(one.at_us),
            one.address,
        ]
        for one in found
    ]
    titles = columns(
        "NAME",
        "STATE",
        ">RECEIVED",
        ">APPENDED",
        ">REJECTED",
        ">LOST",
        ">PER SECOND",
        ">REPORTED",
        "ADDRESS…",
    )
    session.show_all(found, titles, rows)
    if not found:
        session.say("No gateway has run on this log yet: `headwater gateway run statsd topic=metrics`.")


@COMMANDS.command("status", "describe")
def status(session: Session, name: Name) -> None:
    """Show one gateway: its state, address, counters and settings, and its last error."""
    with session.services() as services:
        found = services.gateways.status(name)
    rate = found.per_second.get("received", 0.0)
    per_second = f", {rate:,.0f} per second" if found.running else ""
    lines = [
        session.paint(found.name, "bold"),
        f"  kind        {found.kind}, events {found.direction}",
        f"  state       {_state(found)}",
        f"  address     {found.address or '-'}",
        f"  topic       {found.topic}",
        f"  run by      {_runs(found)}",
        f"  received    {found.received:,}{per_second}",
        f"  appended    {found.appended:,}",
        f"  rejected    {found.rejected:,}",
        f"  duplicates  {found.duplicates:,}",
        f"  lost        {found.lost:,}",
        f"  bytes       {format_bytes(found.bytes)}",
        f"  started     {_age(found.started_us)}, reported {_age(found.at_us)}",
    ]
    if found.restarts:
        lines.append(f"  restarts    {found.restarts:,}")
    if found.error and found.error_us is not None:
        lines.append(session.paint(f"  last error  {found.error} ({_age(found.error_us)})", "red"))
    rows = [[setting, value or "-"] for setting, value in found.settings.items()]
    session.show(found, [*lines, "", *session.table(columns("SETTING", "VALUE…"), rows)])


@COMMANDS.command("forget")
def forget(session: Session, name: Name, yes: Yes = False) -> None:
    """Delete the report of a gateway that no process runs. Its topic stays."""
    with session.services(write=True) as services:
        services.gateways.status(name)
        session.confirm(f"The report of gateway {name!r} is deleted.", yes=yes)
        services.gateways.forget(name)
    session.say(f"The report of gateway {name!r} is deleted; its topic stays.")


def _state(status: GatewayStatus) -> str:
    if status.state == "killed":
        return "killed: its process ended without stopping it; what it received after the last report is in no counter"
    return "failed: it tries again with growing pauses" if status.state == "failed" else status.state


def _runs(status: GatewayStatus) -> str:
    program = f"app {status.app}" if status.app else "headwater gateway run"
    return f"{program}, process {status.pid}" if status.pid is not None else f"no process; last by {program}"


def _age(at_us: int) -> str:
    return f"{format_seconds(max(0, round(time.time() - at_us / 1e6)))} ago"
