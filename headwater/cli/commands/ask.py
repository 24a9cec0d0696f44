"""`headwater ask`: what a running query knows now, answered from the state of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headwater.cli.command import command
from headwater.cli.commands.query import AppName, Name
from headwater.cli.session import Session
from headwater.cli.terminal.results import show_result
from headwater.errors import ArgumentInvalid

ROWS_MAX = 10_000


def register(app: typer.Typer) -> None:
    command(app, "ask")(ask)


def ask(
    session: Session,
    query: Name,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", "-k", help="A key: COLUMN=VALUE, or only the VALUE; all without it.", metavar="KEY"),
    ] = None,
    compute: Annotated[
        list[str] | None,
        typer.Option("--compute", help="What all rows amount to, such as spent=sum(total).", metavar="NAME=WHAT"),
    ] = None,
    operator: Annotated[
        str | None, typer.Option("--operator", help="An operator of the query; its last one.", metavar="NAME")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Show at most so many rows.", min=1)] = ROWS_MAX,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to wait for the answer.", min=0)] = 30.0,
    app: AppName = None,
) -> None:
    """Ask a running query what it knows of a key, of all keys, or what they amount to.

    The query is declared with `ask=True`. The answer is that of one moment: of a definite batch, whose offsets are told.
    """
    import pyarrow as pa

    with session.services(write=True) as services:
        answer = services.queries.ask(
            query,
            key=_key(key) if key else None,
            compute=dict(_pair("--compute", one) for one in compute) if compute else None,
            operator=operator,
            rows_max=limit,
            seconds=seconds,
            app=app,
        )
    if answer.rows:
        show_result(session, pa.Table.from_pylist(answer.rows))
    offsets = ", ".join(
        f"{topic}/{partition} up to {offset}"
        for topic, found in answer.offsets.items()
        for partition, offset in found.items()
    )
    rows = f"{len(answer.rows):,} rows" if answer.complete else f"the first {len(answer.rows):,} rows"
    session.say(f"{rows} of {answer.operator}, as of batch {answer.batch}: {offsets}.")


def _key(given: Sequence[str]) -> object:
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    return dict(_pair("--key", one) for one in given)


def _pair(option: str, text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ArgumentInvalid(name=option, value=text, expected="a name and a value, as in card=42")
    return name.strip(), value
