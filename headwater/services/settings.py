"""What a server allows: one frozen value, checked when built. Whatever can grow has a bound here."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from headwater.config import SettingInvalid
from headwater.units import GIB, MIB

if TYPE_CHECKING:
    from headwater.views.statement import Bounds


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The bounds of a server, and the names under which it may be asked for.

    >>> Settings(body_bytes_max=1_000).body_bytes_max
    1000
    """

    #: The largest body of a request.
    body_bytes_max: int = 128 * MIB
    #: An answer with rows ends at about so many bytes; the next request goes on from there.
    answer_bytes_max: int = 32 * MIB
    #: Rows of one answer.
    answer_rows_max: int = 100_000
    #: What one SQL statement may take. Its answer has `answer_rows_max` rows in JSON, and so many bytes in Arrow.
    statement_seconds_max: float = 60.0
    statement_memory_max: int = GIB
    #: The largest result of a statement, which the server holds until it is sent.
    statement_bytes_max: int = 256 * MIB
    #: Statements that run at once, each in a process of its own; others wait.
    statements_max: int = 4
    #: How long the head of a request may take to arrive; after that its connection is closed.
    head_seconds_max: float = 20.0
    #: Requests of one client, by its token or its address.
    requests_per_second_max: float = 2_000.0
    #: Wrong tokens from one address.
    failures_per_minute_max: float = 30.0
    #: How long a request may wait for rows.
    wait_seconds_max: float = 60.0
    #: Tails at once.
    streams_max: int = 1_000
    #: Transactions that are open at once, and how long one may be silent.
    transactions_max: int = 1_000
    transaction_seconds_max: float = 300.0
    #: Places in partitions that are remembered for clients that read on.
    cursors_max: int = 4_096
    #: Members of consumer groups that this server speaks for.
    members_max: int = 1_000
    #: Names of hosts that requests may ask for, besides the one that the server was started with.
    hosts: tuple[str, ...] = ()
    #: Whether lag is also told under the names that exporters for Kafka use.
    kafka_names: bool = False

    @property
    def statement_bounds(self) -> Bounds:
        """What a statement may take."""
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
