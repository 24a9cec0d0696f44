"""`headwater token`: who may use the server of a log, and for what."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import Yes
from headwater.cli.asking import confirm
from headwater.cli.commands import command, noun
from headwater.cli.session import Record, Session
from headwater.cli.tables import Column
from headwater.cli.wording import iso, shown
from headwater.errors import PackageMissing
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog
    from headwater.server import Token, Tokens

Name = Annotated[str, typer.Argument(help="Name of the token.", metavar="NAME")]


def register(app: typer.Typer) -> None:
    token = noun(app, "token", "Tokens: who may use the log's server, and for what.")
    command(token, "create")(create)
    command(token, "list", "ls")(list_tokens)
    command(token, "revoke", "rm")(revoke)


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
        str | None, typer.Option("--expires", help="How long it is good: 30 days.", metavar="TIME")
    ] = None,
) -> None:
    """Make a token, and show it: this once only, for the log keeps nothing but its hash."""
    with session.log(create=True, folder=True) as log:
        tokens = _tokens(log)
        seconds = None if expires is None else parse_seconds(expires)
        text = tokens.create(name, tuple(scope or ("admin:*",)), seconds=seconds)
        _audit(log, "token create", name)
        made = next(token for token in tokens.list() if token.name == name)
    session.show({**_record(made), "token": text}, [text])
    session.say(f"Token {name!r} may {', '.join(made.scopes)}. Keep it safe: it is not shown again.")


def list_tokens(session: Session) -> None:
    """List the tokens, without what makes them good."""
    with session.log(folder=True) as log:
        found = _tokens(log).list()
    columns = [
        Column(title="NAME", cut=True),
        Column(title="ID"),
        Column(title="SCOPES", cut=True),
        Column(title="CREATED"),
        Column(title="EXPIRES"),
    ]
    rows = [
        [
            token.name,
            token.id,
            ", ".join(token.scopes),
            shown(token.created_us)[:16],
            "never" if token.expires_us is None else shown(token.expires_us)[:16],
        ]
        for token in found
    ]
    session.show_all([_record(token) for token in found], columns, rows)
    if not found:
        session.say("There are no tokens: a server of this log is open to this machine, and to no other.")


def revoke(session: Session, name: Name, yes: Yes = False) -> None:
    """Forget a token: from the next request on it is worth nothing."""
    with session.log(write=True, folder=True) as log:
        tokens = _tokens(log)
        if any(name in (token.name, token.id) for token in tokens.list()):
            confirm(session, f"Whoever uses the token {name!r} is refused from now on.", yes=yes)
        found = tokens.revoke(name)
        _audit(log, "token revoke", found.name)
    session.say(f"Revoked token {found.name!r}.")
    if session.output != "table":
        session.show({**_record(found), "revoked": True})


def _tokens(log: EmbeddedLog) -> Tokens:
    try:
        from headwater.server.tokens import Tokens
    except ImportError as error:
        raise PackageMissing(package=error.name or "fastapi", extra="server") from error
    return Tokens(log.path)


def _audit(log: EmbeddedLog, action: str, target: str) -> None:
    from headwater.server.audit import Audit

    user = pwd.getpwuid(os.getuid()).pw_name
    Audit(log).record(caller=user, address="command line", action=action, target=target, status=200)


def _record(token: Token) -> Record:
    return {
        "name": token.name,
        "id": token.id,
        "scopes": list(token.scopes),
        "created_at": iso(token.created_us),
        "expires_at": iso(token.expires_us),
    }
