"""`headwater gateway`: events in and out without a client library."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Annotated

import typer

from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns

COMMANDS = Noun("gateway", "Events in and out without a client library: StatsD, webhooks, syslog, files and more.")

Kind = Annotated[
    str, typer.Argument(help="What kind of gateway; `headwater gateway kinds` lists them.", metavar="KIND")
]


@COMMANDS.command("kinds")
def kinds(session: Session) -> None:
    """List the kinds of gateways and their settings with the defaults."""
    from headwater.gateways.kinds import KINDS, settings_of

    records = [
        {"kind": kind, "setting": name, "type": type, "default": default}
        for kind in KINDS
        for name, (type, default) in settings_of(kind).items()
    ]
    rows = [[str(value) for value in record.values()] for record in records]
    session.show_all(records, columns("KIND", "SETTING", "TYPE", "DEFAULT…"), rows)


@COMMANDS.command("run")
def run(
    session: Session,
    kind: Kind,
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings, such as port=8125 topic=metrics.", metavar="[NAME=VALUE]…")
    ] = None,
) -> None:
    """Run a gateway in this process until Ctrl-C; at the end its counters are shown.

    What was received is appended before the command ends. A gateway that fails is restarted with pauses that grow to half a
    minute.
    """
    from headwater.gateways.kinds import gateway_from_text
    from headwater.gateways.runner import GatewayRunner

    gateway = gateway_from_text(kind, settings or [])
    stop = threading.Event()
    with session.log(create=True, write=True) as log:
        runner = GatewayRunner(log, gateway)
        runner.start()
        session.warn(f"{gateway.name}: {runner.address}")
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        error = ""
        with contextlib.suppress(KeyboardInterrupt):
            while not stop.wait(0.2):
                if (status := runner.status()).error != error:
                    error = status.error
                    session.warn(f"{gateway.name}: {error}")
        runner.stop()
        status = runner.status()
    session.show(status, [f"{name:<11}{count:,}" for name, count in status.counters.items()])
