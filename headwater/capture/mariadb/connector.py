"""Addresses of MariaDB servers: mariadb://user@host:port/database, or mysql:// with the same parts."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headwater.errors import ArgumentInvalid
from headwater.optional import require_extras

if TYPE_CHECKING:
    from headwater.capture.config import CaptureConfig
    from headwater.capture.mariadb.source import MariadbSource

SCHEMES = ("mariadb", "mysql")
EXPECTED = "mariadb://user@host:3306/database"


class MariadbConnector:
    """Databases of a MariaDB server.

    >>> MariadbConnector.address("mysql://app@db.example/shop")
    'mysql://app@db.example/shop'
    >>> MariadbConnector.address("mariadb://app@db.example")
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `url` is 'mariadb://app@db.example'. Give mariadb://user@host:3306/database.
    """

    @classmethod
    def address(cls, url: str) -> str:
        """Check that an address names a user, a host and a database."""
        try:
            parts = urlsplit(url)
            is_whole = parts.scheme in SCHEMES and parts.hostname and parts.username and (parts.port or 3306)
        except ValueError:  # a port that is no number
            is_whole = False
        if not is_whole or not parts.path.strip("/") or "/" in parts.path.strip("/"):
            raise ArgumentInvalid(name="url", value=url, expected=EXPECTED)
        return url

    @classmethod
    def open(cls, config: CaptureConfig) -> MariadbSource:
        """Connect to the server of a capture."""
        require_extras("mysql")
        from headwater.capture.mariadb.server import Server
        from headwater.capture.mariadb.source import MariadbSource

        server = Server.at(config.url, password=config.password() or "")
        return MariadbSource(server, capture=config.name, tables=config.tables)
