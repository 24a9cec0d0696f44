"""`headwater package`: an archive for the executors of a cluster that have no Headwater."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.cli.terminal.tables import counted
from headwater.units import format_bytes

COMMANDS = Noun()


@COMMANDS.command("package")
def package(
    session: Session,
    path: Annotated[Path, typer.Argument(help="The archive to write, such as environment.tar.gz.", metavar="FILE")],
    packages: Annotated[
        list[str] | None, typer.Option("--with", help="A further package that is installed here.", metavar="PACKAGE")
    ] = None,
) -> None:
    """Write an archive of Headwater and its packages for executors of a Spark cluster.

    The executors need the same Python at the same path as this machine, and nothing else. See the guide on clusters.
    """
    from headwater.spark.package import write_package

    count = write_package(path, packages=packages or ())
    size = path.stat().st_size
    session.show(
        {"path": str(path), "files": count, "bytes": size},
        [f"{path}: {counted(count, 'file')}, {format_bytes(size)}"],
    )
