"""The definition of a sync: its topics, its target, and how rows are applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args
from urllib.parse import urlsplit

import orjson

from headwater.capture.config import check_no_password, read_password
from headwater.errors import ArgumentInvalid
from headwater.log.topic_rules import check_name

#: current: the last row of each key. history: every version of a row, with the time from and to which it was valid.
Mode = Literal["current", "history"]


@dataclass(frozen=True, kw_only=True)
class SyncConfig:
    """The definition of a sync: which topics it applies, and to which target.

    `table` names the table of a topic in the target: `{table}` stands for what follows the last dot of the topic's
    name, `{topic}` for the whole name. The address has no password, as that of a capture.

    >>> SyncConfig(name="copy", url="sqlite:///copy.db", topics=("shop.*",)).table_of("shop.orders")
    'orders'
    >>> SyncConfig(name="copy", url="sqlite:///copy.db", table="copy_{topic}").table_of("shop.orders")
    'copy_shop_orders'
    """

    name: str
    url: str
    topics: tuple[str, ...] = ("*",)
    table: str = "{table}"
    mode: Mode = "current"
    dead_letters: bool = False
    transactions: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    paused: bool = False
    password_env: str | None = None
    password_file: str | None = None

    def __post_init__(self) -> None:
        check_name("sync", self.name)
        object.__setattr__(self, "topics", tuple(self.topics))
        if not self.topics:
            expected = "the names of topics, or patterns such as 'shop.*'"
            raise ArgumentInvalid(name="topics", value=self.topics, expected=expected)
        if self.mode not in get_args(Mode):
            raise ArgumentInvalid(name="mode", value=self.mode, expected="'current' or 'history'")
        if "{table}" not in self.table and "{topic}" not in self.table:
            expected = "a pattern with {table} or {topic} in it"
            raise ArgumentInvalid(name="table", value=self.table, expected=expected)
        check_no_password(self.url)

    @property
    def kind(self) -> str:
        """The kind of target that the address names."""
        return urlsplit(self.url).scheme

    def table_of(self, topic: str) -> str:
        """The table of a topic in the target."""
        return self.table.replace("{table}", topic.rpartition(".")[2]).replace("{topic}", topic.replace(".", "_"))

    def password(self) -> str | None:
        """Read the password; None if neither variable nor file is named."""
        return read_password(self.password_env, self.password_file)

    def check_options(self, known: Mapping[str, str]) -> dict[str, str]:
        """The options of the target with defaults; raises if the target has no such option."""
        for name in self.options:
            if name not in known:
                expected = f"one of {', '.join(known)}" if known else "none: this target has no options"
                raise ArgumentInvalid(name="option", value=name, expected=expected)
        return {**known, **self.options}

    def check_current(self) -> None:
        """Raise if the sync asks for history, which this target does not keep."""
        if self.mode != "current":
            expected = "'current'; delta:// and parquet:// targets keep the history"
            raise ArgumentInvalid(name="mode", value=self.mode, expected=expected)

    def check_no_transactions(self) -> None:
        """Raise if the sync asks for whole transactions, which this target cannot apply: its tables change one by one."""
        if self.transactions:
            expected = "a database or Redis as the target; this one has no transactions over several tables"
            raise ArgumentInvalid(name="transactions", value=True, expected=expected)

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> SyncConfig:
        body = orjson.loads(text)
        return cls(**body | {"topics": tuple(body["topics"])})
