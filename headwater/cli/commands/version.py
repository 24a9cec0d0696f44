"""`headwater version`: what is installed."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

import headwater
from headwater.cli.command import command
from headwater.cli.session import Session


def register(app: typer.Typer) -> None:
    command(app, "version")(show)


def show(session: Session) -> None:
    """Show the version of Headwater, and of what it stands on."""
    record = {
        "headwater": headwater.__version__,
        "python": platform.python_version(),
        "pyarrow": installed("pyarrow"),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    session.show(record, [f"headwater {record['headwater']}"])


def installed(package: str) -> str | None:
    """The version of a package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
