"""Which source reads which kind of database: ours, and those that other packages bring.

A connector is a class with two class methods. A package adds one by an entry point whose name is the scheme of the addresses:

    [project.entry-points."headwater.sources"]
    mongodb = "my_package.mongodb:MongoConnector"
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from headwater.capture.config import CaptureConfig, without_password
from headwater.capture.port import Source
from headwater.errors import ArgumentInvalid

GROUP = "headwater.sources"
#: The connectors of this package, by the scheme of their addresses. Each is imported when it is used.
BUILT_IN = {
    "mariadb": "headwater.capture.mariadb.connector:MariadbConnector",
    "mysql": "headwater.capture.mariadb.connector:MariadbConnector",
    "sqlite": "headwater.capture.sqlite:SqliteConnector",
    "postgresql": "headwater.capture.postgres:PostgresConnector",
    "postgres": "headwater.capture.postgres:PostgresConnector",
}


class Connector(Protocol):
    """How databases of one kind are reached."""

    @classmethod
    def address(cls, url: str) -> str:
        """Check an address, and return it in a form that means the same to all processes."""

    @classmethod
    def open(cls, config: CaptureConfig) -> Source:
        """Open the database of a capture."""


def connector(url: str) -> type[Connector]:
    """The connector for an address.

    >>> connector("sqlite:///shop.db").__name__
    'SqliteConnector'
    >>> connector("oracle://db.example")
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `url` is 'oracle://db.example'. Give sqlite:///path/to/file.db, postgresql://user@host/database or mariadb://user@host/database.
    """
    scheme = url.partition(":")[0]
    if scheme in BUILT_IN:
        module, _, name = BUILT_IN[scheme].partition(":")
        return getattr(import_module(module), name)  # type: ignore[no-any-return]
    for entry in entry_points(group=GROUP, name=scheme):
        return entry.load()  # type: ignore[no-any-return]
    expected = "sqlite:///path/to/file.db, postgresql://user@host/database or mariadb://user@host/database"
    raise ArgumentInvalid(name="url", value=without_password(url), expected=expected)


def open_source(config: CaptureConfig) -> Source:
    """Open the database of a capture."""
    return connector(config.url).open(config)
