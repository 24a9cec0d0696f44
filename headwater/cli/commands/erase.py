"""`headwater erase`: forget a person, prove it, and show the certificates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.arguments import Yes
from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import columns, short_time
from headwater.errors import ArgumentInvalid
from headwater.units import format_bytes

if TYPE_CHECKING:
    from headwater.sourcing import Certificate

COMMANDS = Noun()


@COMMANDS.command("erase")
def erase(
    session: Session,
    subjects: Annotated[
        list[str] | None,
        typer.Argument(help="Whose personal values to erase, such as an entity.", metavar="SUBJECT…"),
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who orders it, for the certificate.", metavar="TEXT")] = None,
    why: Annotated[str | None, typer.Option("--why", help="The reason, for the certificate.", metavar="TEXT")] = None,
    rewrite: Annotated[
        list[str] | None,
        typer.Option(
            "--rewrite", help="Replace the values in the rows of this topic; a name or pattern.", metavar="TOPIC"
        ),
    ] = None,
    search: Annotated[
        list[Path] | None, typer.Option("--search", help="Search this file or folder, too.", metavar="PATH")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", help="Accept what is left in this place; a name or pattern.", metavar="PLACE"),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="Folder of the key store, if it is not in the log's.", metavar="PATH")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show certificates: of SUBJECT…, or all.")] = False,
    yes: Yes = False,
) -> None:
    """Erase the personal values of persons: destroy their keys, rewrite what was derived, and search every byte for the rest.

    Ends with 1 while values are left, and says where and what to do; repeat the command afterwards. The topic `erasures`
    has a certificate of each erasure.
    """
    from headwater.sourcing import erase as erase_subjects
    from headwater.sourcing import erased

    chosen = subjects or []
    if show:
        with session.log() as log:
            _show(session, erased(log, chosen, keys=keys))
        return
    if not chosen:
        raise ArgumentInvalid(name="SUBJECT…", value=None, expected="whose values to erase, or `--show`")
    with session.log(write=True) as log:
        session.confirm(f"The personal values of {', '.join(chosen)} are erased; that cannot be undone.", yes=yes)
        certificates = erase_subjects(
            log,
            chosen,
            keys=keys,
            by=by,
            why=why,
            rewrite=rewrite or [],
            search=search or [],
            accept=accept or [],
        )
    _show(session, certificates)
    remaining = {each: None for certificate in certificates for each in certificate.remaining}
    for each in remaining:
        session.warn(f"Left in {each.place}. {each.remedy}")
    if remaining:
        raise typer.Exit(1)


def _show(session: Session, certificates: list[Certificate]) -> None:
    rows = [
        [
            each.name or each.subject,
            short_time(each.at_us),
            each.outcome,
            f"{each.events:,}",
            f"{each.values_searched:,}",
            f"{each.values_too_short + each.values_shared:,}",
            f"{each.files:,}",
            format_bytes(each.bytes),
            f"{len(each.rewritten):,}",
            f"{len(each.remaining):,}",
            f"{len(each.accepted):,}",
        ]
        for each in certificates
    ]
    titles = columns(
        "SUBJECT…",
        "WHEN (UTC)",
        "OUTCOME",
        ">EVENTS",
        ">VALUES",
        ">NOT SEARCHED",
        ">FILES",
        ">BYTES",
        ">REWRITTEN",
        ">LEFT",
        ">ACCEPTED",
    )
    session.show_all(certificates, titles, rows)
