"""`headwater config`: the settings of this run, and where each came from."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns

COMMANDS = Noun("config", "The settings, and where each came from.")


@COMMANDS.command("show")
def show(
    session: Session,
    origin: Annotated[bool, typer.Option("--origin/--no-origin", help="Also say where each value came from.")] = True,
) -> None:
    """Show every setting as it holds for this run.

    Flags are stronger than `HEADWATER_*`, which is stronger than `./headwater.toml`, your own file and the defaults.
    """
    settings = session.config.describe()
    titles = columns("SETTING", "VALUE…", *(["ORIGIN…"] if origin else []))
    rows = [[one.name, one.text, *([one.origin] if origin else [])] for one in settings]
    records = [
        {
            "name": one.name,
            "value": one.value if isinstance(one.value, int | float | str | None) else str(one.value),
            "text": one.text,
            **({"origin": one.origin} if origin else {}),
            "help": one.help,
        }
        for one in settings
    ]
    session.show_all(records, titles, rows)
