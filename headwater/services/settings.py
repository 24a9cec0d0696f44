"""The settings of a server: one frozen value, checked when built. Everything that can grow has a bound here."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from headwater.config import SettingInvalid
from headwater.units import GIB, MIB

if TYPE_CHECKING:
    from headwater.views.statement import Bounds


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The bounds of a server, and the host names that requests may name.

    >>> Settings(body_bytes_max=1_000).body_bytes_max
    1000
    """

    #: The largest body of a request.
    body_bytes_max: int = 128 * MIB
    #: The bytes of an answer with rows, about; the next request goes on from there.
    answer_bytes_max: int = 32 * MIB
    #: Rows of one answer.
    answer_rows_max: int = 100_000
    #: Time and memory of one SQL statement. Its answer has at most `answer_rows_max` rows in JSON.
    statement_seconds_max: float = 60.0
    statement_memory_max: int = GIB
    #: The largest result of a statement in Arrow, which the server holds until it is sent.
    statement_bytes_max: int = 256 * MIB
    #: Statements that run at once, each in a process of its own; others wait.
    statements_max: int = 4
    #: Connections that are open at once, and as the process may open files; a further one is closed at once.
    connections_max: int = 10_000
    #: How long the head of a request may take to arrive; then its connection is closed.
    head_seconds_max: float = 20.0
    #: How long the body of a request may take, and one second more for each 500 bytes of it.
    body_seconds_max: float = 20.0
    #: Bytes of bodies with rows that are being read and appended; further requests get 429 with `Retry-After`.
    appended_bytes_max: int = GIB
    #: Requests of one client, by its token or its address.
    requests_per_second_max: float = 2_000.0
    #: Wrong tokens from one address.
    failures_per_minute_max: float = 30.0
    #: How long a request may wait for rows.
    wait_seconds_max: float = 60.0
    #: Tails that are open at once.
    streams_max: int = 1_000
    #: How long a client may take nothing of what is sent to it; then its connection is closed.
    stalled_seconds_max: float = 60.0
    #: Transactions that are open at once, and how long one is kept without use.
    transactions_max: int = 1_000
    transaction_seconds_max: float = 300.0
    #: Cursors that are kept for clients that read on.
    cursors_max: int = 4_096
    #: Members of consumer groups that this server speaks for.
    members_max: int = 1_000
    #: Host names that requests may name, besides the one that the server was started with.
    hosts: tuple[str, ...] = ()
    #: Whether lag is also exported under the names of Kafka's exporters.
    kafka_names: bool = False

    @property
    def statement_bounds(self) -> Bounds:
        """The bounds of one statement."""
        from headwater.views.statement import SERVED

        return replace(
            SERVED,
            seconds_max=self.statement_seconds_max,
            rows_max=self.answer_rows_max,
            memory_max=self.statement_memory_max,
            bytes_max=min(self.statement_memory_max, self.statement_bytes_max),
        )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_max") and not value > 0:
                raise SettingInvalid(name=field.name, value=value, expected="more than 0", origin="the program")
