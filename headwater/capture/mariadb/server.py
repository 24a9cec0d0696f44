"""A MariaDB server: its connections, what capture needs of its settings, and its errors with their remedies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql

from headwater.capture.errors import SourceInvalid, SourceUnreachable

#: How long a connection is waited for, and an answer.
CONNECT_SECONDS_MAX = 10
ANSWER_SECONDS_MAX = 300
#: What capture needs: the setting, its value, and what it is for.
SETTINGS = {
    "log_bin": ("1", "the binary log, which has the changes"),
    "binlog_format": ("ROW", "changes as rows, not as statements"),
    "binlog_row_image": ("FULL", "all columns of a changed row"),
    "binlog_row_metadata": ("FULL", "the names and types of columns beside the rows"),
}
_DENIED = (1044, 1045, 1142, 1143, 1227, 1370, 1698)
_UNKNOWN_DATABASE = 1049
_LOST = (2003, 2006, 2013, 1053, 1927, 1129, 1040, 1203)


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where a server is, and who connects to it."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    ssl_ca: str | None = None

    @classmethod
    def at(cls, url: str, *, password: str) -> Server:
        parts = urlsplit(url)
        settings = {name: found[-1] for name, found in parse_qs(parts.query).items()}
        return cls(
            host=parts.hostname or "",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=password,
            database=unquote(parts.path.strip("/")),
            ssl_ca=settings.get("ssl_ca"),
        )

    def __str__(self) -> str:
        return f"MariaDB {self.host}:{self.port}/{self.database}"

    # Any: PyMySQL has no types.
    def connect(self) -> Any:
        """Open a connection whose values are text, in UTC and Unicode."""
        with self.explained():
            return pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                database=self.database,
                charset="utf8mb4",
                autocommit=True,
                conv=pymysql.converters.encoders,  # values of answers stay text
                connect_timeout=CONNECT_SECONDS_MAX,
                read_timeout=ANSWER_SECONDS_MAX,
                init_command="SET time_zone = '+00:00', sql_mode = ''",
                **({"ssl_ca": self.ssl_ca, "ssl_verify_cert": True} if self.ssl_ca else {}),
            )

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raise our errors for those of the server."""
        try:
            yield
        except pymysql.err.MySQLError as error:
            code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            said = str(error.args[-1]) if error.args else str(error)
            if code in _LOST or isinstance(error, pymysql.err.InterfaceError):
                raise SourceUnreachable(source=str(self), why=said or "the connection was lost") from error
            if code in (1045, 1698):
                why = f"the server refuses user {self.user!r}: {said}"
                instead = (
                    "Correct the user in the address, and the password in the variable or file that the capture names"
                )
            elif code in _DENIED:
                why, instead = said, f"Allow it as an administrator: {self.grants}"
            elif code == _UNKNOWN_DATABASE:
                why, instead = said, "Correct the name of the database in the address"
            else:
                why, instead = (
                    f"the server says: {said} ({code})",
                    "Correct it on the server, and run the capture again",
                )
            raise SourceInvalid(source=str(self), why=why.rstrip("."), instead=instead) from error

    @property
    def grants(self) -> str:
        """The statements that give the user what capture needs."""
        who = f"`{self.user}`@`%`"
        return f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {who}; GRANT SELECT ON `{self.database}`.* TO {who}"


class Session:
    """A connection for questions, opened when it is first used and again after it was lost."""

    def __init__(self, server: Server) -> None:
        self.server = server

    @cached_property
    # Any: PyMySQL has no types.
    def connection(self) -> Any:
        return self.server.connect()

    # Any: values of a query.
    def rows(self, statement: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        try:
            with self.server.explained(), self.connection.cursor() as cursor:
                cursor.execute(statement, values)
                return list(cursor.fetchall())
        except SourceUnreachable:
            self.close()
            raise

    def close(self) -> None:
        connection = self.__dict__.pop("connection", None)
        if connection is not None:
            with contextlib.suppress(pymysql.err.Error):
                connection.close()

    def variables(self) -> dict[str, str]:
        names = ["version", "server_id", "gtid_binlog_pos", *SETTINGS]
        return dict(zip(names, self.rows("SELECT " + ", ".join(f"@@global.{name}" for name in names))[0], strict=True))

    def charsets(self) -> dict[int, str]:
        """The character set of each collation."""
        found = self.rows(
            "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL "
            "UNION SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
        )
        return {int(number): str(name) for number, name in found if name is not None}


def check(server: Server, variables: Mapping[str, str]) -> None:
    """Raise unless the server records changes as capture needs them."""
    if "MariaDB" not in variables["version"]:
        raise SourceInvalid(
            source=str(server),
            why=f"it is MySQL {variables['version']}, and this capture was made for MariaDB's GTIDs, and tested with MariaDB only",
            instead="Capture a MariaDB server of version 10.5 or newer",
        )
    wrong = {name: value for name, (value, _) in SETTINGS.items() if variables[name] != value}
    if wrong:
        seen = ", ".join(f"{name} is {variables[name]}" for name in wrong)
        lines = ", ".join(
            f"{name}={SETTINGS[name][0] if name != 'log_bin' else 'binlog'} ({SETTINGS[name][1]})" for name in wrong
        )
        raise SourceInvalid(
            source=str(server),
            why=seen,
            instead=f"Set in the server's configuration {lines}, and restart it; programs that are connected keep their old settings until they connect again",
        )
