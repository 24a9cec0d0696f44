"""Arguments and options that several commands share, and how a shell completes them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.config import Config
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.units import parse_bytes

if TYPE_CHECKING:
    from headwater.services import Settings


def known_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a topic from the log's folders, without loading Arrow."""
    return [name for name in _listed(context, "topics") if name.startswith(incomplete)]


def known_kinds(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a kind of entities from its topic of events."""
    names = [name.removesuffix(".events") for name in _listed(context, "topics") if name.endswith(".events")]
    return [name for name in names if name.startswith(incomplete)]


def known_groups(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _listed(context, "groups") if name.startswith(incomplete)]


def _listed(context: typer.Context, folder: str) -> list[str]:
    try:
        given = context.params.get("flag_log") or context.find_root().params.get("flag_log")
        names = os.listdir(Path(Config.load({"log": given}).log, folder))
    except (HeadwaterError, OSError):
        return []
    return sorted(name for name in names if not name.startswith((".", "__")))


Topic = Annotated[str, typer.Argument(help="Name of the topic.", metavar="TOPIC", autocompletion=known_topics)]
Group = Annotated[str, typer.Argument(help="Name of the group.", metavar="GROUP", autocompletion=known_groups)]
AppName = Annotated[str | None, typer.Option("--app", help="Name of the app, if the log has several.", metavar="APP")]
#: How `headwater.services.positions` reads a position.
POSITION_HELP = "start, end, N, -N for the last rows, @TIME (UTC) or @-1h."
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def names_of(text: str | None) -> list[str] | None:
    """Names with commas between, as a list.

    >>> names_of("id, at"), names_of(None)
    (['id', 'at'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def pairs_of(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Names and values from texts such as `card=42`.

    >>> pairs_of("--header", ["trace=7"])
    {'trace': '7'}
    """
    pairs = [text.partition("=") for text in texts]
    for name, separator, value in pairs:
        if not separator or not name.strip():
            expected = "a name and a value with '=' between, as in card=42"
            raise ArgumentInvalid(name=option, value=f"{name}{value}", expected=expected)
    return {name.strip(): value for name, _, value in pairs}


@dataclass(frozen=True, kw_only=True)
class StatementBounds:
    """Options of every command that serves: what a SQL statement over HTTP may take."""

    statement_seconds: Annotated[
        float,
        typer.Option("--statement-seconds", help="How long one SQL statement may run.", min=0.001, metavar="SECONDS"),
    ] = 60.0
    statement_memory: Annotated[
        str, typer.Option("--statement-memory", help="Memory for one SQL statement and its result.", metavar="SIZE")
    ] = "1 GiB"
    answer_rows: Annotated[
        int, typer.Option("--answer-rows", help="Rows of one answer in JSON.", min=1, metavar="N")
    ] = 100_000

    # Any: the other settings, each of its own type.
    def settings(self, **others: Any) -> Settings:
        """The settings of a server with these bounds."""
        from headwater.services import Settings

        return Settings(
            statement_seconds_max=self.statement_seconds,
            statement_memory_max=parse_bytes(self.statement_memory),
            answer_rows_max=self.answer_rows,
            **others,
        )
