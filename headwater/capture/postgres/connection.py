"""Connections to PostgreSQL: addresses, sessions whose text is the same everywhere, and errors with a remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from headwater.capture.config import CaptureConfig
from headwater.capture.errors import SourceInvalid, SourceUnreachable
from headwater.errors import ArgumentInvalid
from headwater.optional import require

#: What the text of values depends on.
_SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
CONNECT_SECONDS_MAX = 10
EXPECTED = "postgresql://user@host:port/database"


def checked_address(url: str) -> str:
    """The address, if it names a database.

    >>> checked_address("postgresql://app@127.0.0.1/shop")
    'postgresql://app@127.0.0.1/shop'
    """
    parts = urlsplit(url)
    if not parts.path.strip("/") and "dbname" not in dict(parse_qsl(parts.query)):
        raise ArgumentInvalid(name="url", value=url, expected=EXPECTED)
    return url


def identifier(name: str) -> str:
    """A name as SQL quotes it.

    >>> print(identifier('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


class Address:
    """Where the database of a capture is, and how sessions to it are opened."""

    def __init__(self, config: CaptureConfig) -> None:
        self._psycopg = require("psycopg", extra="postgres")
        parts = urlsplit(config.url)
        options = dict(parse_qsl(parts.query))
        self.publication = options.pop("publication", None)
        """The publication that the address names; None if the capture has its own."""
        self.place = f"{parts.hostname or 'local'}:{parts.port or 5432}{parts.path}"
        self._url = urlunsplit(parts._replace(scheme="postgresql", query=urlencode(options)))
        self._settings: dict[str, Any] = {
            "application_name": f"headwater capture {config.name}",
            "options": " ".join(f"-c {name}={value}" for name, value in _SESSION.items()),
            "client_encoding": "UTF8",
        }
        if "connect_timeout" not in options:
            self._settings["connect_timeout"] = CONNECT_SECONDS_MAX
        password = config.password()
        if password is not None:
            self._settings["password"] = password

    def dsn(self, **settings: str) -> str:
        """How ADBC and libpq connect. It has the password: never show it."""
        text: str = self._psycopg.conninfo.make_conninfo(self._url, **self._settings, **settings)
        return text

    def connect(self) -> Connection:
        with explained(self.place):
            return Connection(self._psycopg.connect(self.dsn(), autocommit=True, prepare_threshold=None), self.place)

    # Any: the module is imported when it is used.
    def replication(self) -> Any:
        """A connection of libpq's in replication mode."""
        with explained(self.place):
            connection = self._psycopg.pq.PGconn.connect(self.dsn(replication="database").encode())
            if connection.status != self._psycopg.pq.ConnStatus.OK:
                raise self._psycopg.OperationalError(connection.error_message.decode(errors="replace"))
        return connection


class Connection:
    """A session that runs one statement at a time, by itself."""

    # Any: the module is imported when it is used.
    def __init__(self, raw: Any, place: str) -> None:
        self.raw = raw
        self.place = place

    # Any: values of rows.
    def query(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with explained(self.place):
            cursor = self.raw.execute(statement, tuple(values) if values else None)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.raw.close()


@contextlib.contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise what PostgreSQL refuses as an error with a remedy, and a lost connection as `SourceUnreachable`."""
    psycopg = require("psycopg", extra="postgres")
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate
        text = " ".join(str(error).split())
        if state is None or state.startswith(("57", "08")):
            for words, instead in _LOGIN:
                if words in text:
                    raise SourceInvalid(source=place, why=f"PostgreSQL says: {text}", instead=instead) from error
            raise SourceUnreachable(source=place, why=text) from error
        instead = _REFUSALS.get(state, "Check the server's log and the rights of the user of the capture")
        raise SourceInvalid(source=place, why=f"PostgreSQL says: {text}", instead=instead) from error


_LOGIN = (
    ("password authentication failed", "Give the right password by `--password-env` or `--password-file`"),
    ("no password supplied", "Give the password by `--password-env NAME` or `--password-file PATH`"),
    ("no pg_hba.conf entry", "Allow this user, host and database in pg_hba.conf"),
    (
        "must be superuser or replication role",
        "Run `ALTER ROLE … REPLICATION` as a superuser for the user of the capture",
    ),
    ("does not exist", "Correct the name of the database or the user in the address"),
    ("not permitted to log in", "Run `ALTER ROLE … LOGIN`"),
)
_REFUSALS = {
    "42501": "Grant the user of the capture what is missing: REPLICATION, SELECT on the tables, and for a publication of its own "
    "CREATE on the database and ownership of the tables; or let an owner create the publication, and name it in the address: "
    "…/database?publication=NAME",
    "53400": "Raise `max_replication_slots` and restart PostgreSQL, or drop a slot that nothing uses",
    "53300": "Raise `max_connections` or `max_wal_senders`, or end other sessions",
}
