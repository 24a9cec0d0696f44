"""`headwater serve`: serve the log and the console over HTTP."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.arguments import StatementBounds
from headwater.cli.declaration import Noun
from headwater.cli.entity_file import entities_on
from headwater.cli.session import Session
from headwater.home import is_remote
from headwater.optional import require_extras
from headwater.units import parse_bytes

Host = Annotated[
    str,
    typer.Option(
        "--host", help="Address to listen on; one that other machines can reach needs tokens.", metavar="HOST"
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A further name under which requests may ask; may be repeated.", metavar="NAME"),
]


COMMANDS = Noun()


@COMMANDS.command("serve")
def serve(
    session: Session,
    bounds: StatementBounds,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes a free one.", min=0, max=65535)] = 8080,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="Certificate for HTTPS (PEM).", metavar="FILE")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key (PEM).", metavar="FILE")] = None,
    allow_host: AllowHost = None,
    body_max: Annotated[
        str, typer.Option("--body-max", help="The largest body of a request.", metavar="SIZE")
    ] = "128 MiB",
    rate_max: Annotated[
        float, typer.Option("--rate-max", help="Requests per second and client.", min=0.001, metavar="N")
    ] = 2_000.0,
    kafka_names: Annotated[
        bool, typer.Option("--kafka-names", help="Export lag also under the names of Kafka's exporters.")
    ] = False,
    console: Annotated[bool, typer.Option("--console/--no-console", help="Serve the console's pages too.")] = True,
    entities: Annotated[
        str | None,
        typer.Option(
            "--entities",
            help="A Python file that declares entities: commands for them are decided here, in this log.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Serve the log and the console over HTTP until Ctrl-C.

    Programs open it with `headwater.open("http://…")`. Users of this machine need no token until the first one is made
    with `headwater token create`; other machines always need one.
    """
    require_extras("server")
    from headwater.console import console_for_server
    from headwater.http.server import Address, check, run_server
    from headwater.services.tokens import Tokens

    address = Address(host=host, port=port, certificate=tls_certificate, key=tls_key)
    settings = bounds.settings(
        body_bytes_max=parse_bytes(body_max),
        requests_per_second_max=rate_max,
        hosts=tuple(allow_host or ()),
        kafka_names=kafka_names,
    )
    with session.log(create=True, direct=True) as log, entities_on(log, entities) as declared:
        tokens = Tokens(log.home)
        check(address, tokens)

        def tell(url: str) -> None:
            asks = "asking for tokens" if tokens else "open to this machine; `headwater token create` changes that"
            served = log.address if is_remote(log.address) else log.home
            session.say(f"Serving {served} at {url}, {asks}. Ctrl-C ends it.")
            session.show({"address": url, "log": log.address, "tokens": bool(tokens)})

        # The server handles SIGTERM itself; our own handler would end it in the middle of an answer.
        before = signal.getsignal(signal.SIGTERM)
        try:
            secure = address.certificate is not None
            more = console_for_server(guarded=not address.is_local, secure=secure) if console else {}
            run_server(log, address, settings=settings, tokens=tokens, tell=tell, entities=declared, **more)
        finally:
            signal.signal(signal.SIGTERM, before)
