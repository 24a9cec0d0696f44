"""`headwater token`: the tokens of a log's server, and their scopes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.arguments import Yes
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns, short_time
from headwater.units import parse_seconds

Name = Annotated[str, typer.Argument(help="Name of the token.", metavar="NAME")]


COMMANDS = Noun("token", "Tokens: who may use the log's server, and for what.")


@COMMANDS.command("create")
def create(
    session: Session,
    name: Name,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            "-s",
            help="read, write or admin, and a pattern of topics: read:orders.*; or name, and a pattern of producers and "
            "members that are shared with other tokens; may be repeated. By default admin:*.",
            metavar="SCOPE",
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="How long it is valid: 30 days.", metavar="TIME")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            help="A file with the token's text, such as a secret of a cluster. It is not shown, and replaces the token of this name.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Make a token, and show it once: the log keeps only its hash."""
    from headwater.services.tokens import TokenText

    seconds = None if expires is None else parse_seconds(expires)
    given = None if from_file is None else TokenText(from_file.read_text(encoding="utf-8").strip())
    with session.services(create=True, direct=True) as services:
        made = services.tokens.create(name, tuple(scope or ("admin:*",)), seconds=seconds, given=given)
    if given is not None:
        session.say(f"Token {name!r} may {', '.join(made.scopes)}.")
        return
    session.show(made, [made.token])
    session.say(f"Token {name!r} may {', '.join(made.scopes)}. Keep it safe: it is not shown again.")


@COMMANDS.command("list", "ls")
def list_tokens(session: Session) -> None:
    """List the tokens, without their secrets."""
    with session.services(direct=True) as services:
        tokens = services.tokens.list()
    rows = [
        [
            token.name,
            token.id,
            ", ".join(token.scopes),
            short_time(token.created_us)[:16],
            "never" if token.expires_us is None else short_time(token.expires_us)[:16],
        ]
        for token in tokens
    ]
    session.show_all(tokens, columns("NAME…", "ID", "SCOPES…", "CREATED", "EXPIRES"), rows)
    if not tokens:
        session.say("There are no tokens: a server of this log is open to this machine, and to no other.")


@COMMANDS.command("revoke", "rm")
def revoke(session: Session, name: Name, yes: Yes = False) -> None:
    """Revoke a token: the next request with it is refused."""
    with session.services(write=True, direct=True) as services:
        if any(name in (token.name, token.id) for token in services.tokens.list()):
            session.confirm(f"Requests with the token {name!r} are refused from now on.", yes=yes)
        revoked = services.tokens.revoke(name)
    session.say(f"Revoked token {revoked.name!r}.")
    session.show(revoked, revoked=True)
