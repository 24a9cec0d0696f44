"""The definition of a capture: the database, its tables, and what their rows look like."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit, urlunsplit

import orjson

from headwater.capture.condition import Condition
from headwater.capture.envelope import EnvelopeName
from headwater.errors import ArgumentInvalid
from headwater.log.topic_rules import check_name


@dataclass(frozen=True, kw_only=True)
class CaptureConfig:
    """The definition of a capture: the database, the tables, and what their rows look like.

    The address has no password: definitions are rows of the log, which others may read. The password comes from the
    environment variable `password_env` or the file `password_file`.

    >>> CaptureConfig(name="shop", url="sqlite:///shop.db", tables=("orders",)).topic_of("orders")
    'shop.orders'
    """

    name: str
    url: str
    tables: tuple[str, ...] = ("*",)
    prefix: str | None = None
    envelope: EnvelopeName = "flat"
    partitions: int = 1
    paused: bool = False
    password_env: str | None = None
    password_file: str | None = None
    transactions: bool = False
    """Whether a topic `transactions` has the beginning and the end of each transaction, with the number of its changes."""
    outbox: str | None = None
    """The table whose insertions are events, each for the topic of its aggregate type."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Conditions by table: rows that do not meet them are left out."""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The columns that are captured, by table; all of them where none are named."""
    mask: Mapping[str, str] = field(default_factory=dict)
    """How values are hidden, by `table.column`: 'hash', 'null', or a text that stands instead."""
    salt_env: str = "HEADWATER_CAPTURE_SALT"
    """The environment variable with the secret of hashes."""
    id: str = ""
    """Tells captures of one name apart in a database that several logs capture; given when the capture is created."""
    snapshot_requests: Mapping[str, str | None] = field(default_factory=dict)
    """Tables to read by a new snapshot, each with a condition in SQL or None; the process that runs the capture takes them up."""

    def __post_init__(self) -> None:
        check_name("capture", self.name)
        object.__setattr__(self, "tables", tuple(self.tables))
        object.__setattr__(self, "columns", {table: tuple(names) for table, names in self.columns.items()})
        if not self.tables:
            raise ArgumentInvalid(
                name="tables", value=self.tables, expected="the names of tables, or patterns such as '*'"
            )
        if self.envelope not in get_args(EnvelopeName):
            raise ArgumentInvalid(name="envelope", value=self.envelope, expected="'flat' or 'debezium'")
        for condition in self.where.values():
            Condition(condition)
        for masked in self.mask:
            if not all(masked.rpartition(".")[::2]):
                raise ArgumentInvalid(name="mask", value=masked, expected="a table and a column: customers.email")
        check_no_password(self.url)

    @property
    def kind(self) -> str:
        """The kind of database that the address names.

        >>> CaptureConfig(name="shop", url="postgresql://app@db.example/shop").kind
        'postgresql'
        """
        return urlsplit(self.url).scheme

    def topic_of(self, table: str) -> str:
        """The topic of a table: its name behind the prefix, which is the capture's name and a dot unless it is given."""
        return (f"{self.name}." if self.prefix is None else self.prefix) + table

    def password(self) -> str | None:
        """Read the password; None if neither variable nor file is named."""
        return read_password(self.password_env, self.password_file)

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> CaptureConfig:
        body = orjson.loads(text)
        return cls(**body | {"tables": tuple(body["tables"])})


def without_password(url: str) -> str:
    """The address with stars where a password is.

    >>> without_password("postgresql://app:secret@db.example/shop?password=secret")
    'postgresql://app:***@db.example/shop?password=***'
    """
    parts = urlsplit(url)
    if parts.password is not None:
        place = f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}"
        url = urlunsplit(parts._replace(netloc=place))
    return re.sub(r"([?&]password=)[^&]*", r"\1***", url)


def check_no_password(url: str) -> None:
    """Raise if an address has a password: definitions are rows of the log, which others may read."""
    if urlsplit(url).password is not None or re.search(r"[?&]password=", url):
        raise ArgumentInvalid(
            name="url",
            value=without_password(url),
            expected="an address without a password; name the environment variable or the file that has it "
            "with `password_env` or `password_file`",
        )


def read_password(env: str | None, file: str | None) -> str | None:
    """Read a password from an environment variable or a file; None if neither is named."""
    if env is not None:
        if (value := os.environ.get(env)) is None:
            expected = "the name of an environment variable that is set"
            raise ArgumentInvalid(name="password_env", value=env, expected=expected)
        return value
    if file is not None:
        try:
            return Path(file).read_text().rstrip("\r\n")
        except OSError as error:
            expected = f"a file that this process can read ({error.strerror})"
            raise ArgumentInvalid(name="password_file", value=file, expected=expected) from error
    return None
