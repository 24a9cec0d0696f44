"""`headwater erase`: destroy the keys of a person, and search for what is left in plain text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.arguments import Yes
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns
from headwater.units import format_bytes

COMMANDS = Noun()


@COMMANDS.command("erase")
def erase(
    session: Session,
    subjects: Annotated[
        list[str], typer.Argument(help="Whose personal values to erase, such as an entity.", metavar="SUBJECT…")
    ],
    by: Annotated[str | None, typer.Option("--by", help="Who orders it, for the certificate.", metavar="TEXT")] = None,
    why: Annotated[str | None, typer.Option("--why", help="The reason, for the certificate.", metavar="TEXT")] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="Folder of the key store, if it is not in the log's.", metavar="PATH")
    ] = None,
    yes: Yes = False,
) -> None:
    """Destroy the keys of persons in the events of entities, and search every byte of the log for their values.

    Ends with 1 if a value is left in plain text, and says where. A row of the topic `erasures` certifies each erasure.
    """
    from headwater.sourcing import erase as erase_subjects

    with session.log(write=True) as log:
        session.confirm(f"The keys of {', '.join(subjects)} are destroyed; that cannot be undone.", yes=yes)
        certificates = erase_subjects(log, subjects, keys=keys, by=by, why=why)
    rows = [
        [
            each.subject,
            f"{each.events:,}",
            f"{each.values_searched:,}",
            f"{each.values_too_short:,}",
            f"{each.files:,}",
            format_bytes(each.bytes),
            f"{len(each.remaining):,}" if each.remaining else "-",
        ]
        for each in certificates
    ]
    titles = columns("SUBJECT…", ">EVENTS", ">VALUES", ">TOO SHORT", ">FILES", ">SEARCHED", ">LEFT IN")
    session.show_all(certificates, titles, rows)
    for each in certificates:
        for place in each.remaining:
            session.warn(f"values of {each.subject} are left in {place}")
    if not all(each.complete for each in certificates):
        raise typer.Exit(1)
