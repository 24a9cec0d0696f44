"""Arguments that several commands share, and what a shell may complete them with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headwater.config import Config
from headwater.errors import HeadwaterError


def known_topics(context: typer.Context, incomplete: str) -> list[str]:
    """The topics of the log, by their folders alone: completion must not wait for Arrow."""
    return [name for name in _listed(context, "topics") if name.startswith(incomplete)]


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
#: How `headwater.services.positions` reads a position.
POSITION_HELP = "start, end, N, -N for the last rows, @TIME (UTC) or @-1h."
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
