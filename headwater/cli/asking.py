"""Before something is destroyed, a person is asked; a program must have said `--yes`."""

from __future__ import annotations

import typer

from headwater.cli.session import Session


def confirm(session: Session, what: str, *, yes: bool) -> None:
    """Go on only if somebody wants `what`. Ends the command otherwise: with 2 where there is nobody to ask."""
    if yes:
        return
    if not session.is_interactive:
        raise typer.BadParameter(
            f"{what} There is no terminal to ask on: repeat it with `--yes`, or look first with `--dry-run`."
        )
    typer.confirm(f"{what} Go on?", abort=True, err=True)
