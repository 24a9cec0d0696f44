"""What rules look at, as a small port: a log with its apps satisfies it, and so does a table of numbers in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from headwater.alerts.patience import Stoppable
from headwater.log import Lag

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.runtime.status import QueryStatus


class Measures(Protocol):
    """How things are now."""

    def now_us(self) -> int: ...
    def group_lags(self) -> Sequence[Lag]: ...
    def query_statuses(self) -> Sequence[QueryStatus]: ...
    def dead_letters(self) -> Mapping[str, float]:
        """How many letters each topic was given in the last minute, by the topic's own name."""
        ...

    def topics(self) -> Sequence[str]: ...
    def run_sql(self, statement: str, *, rows_max: int, stoppable: Stoppable | None = None) -> pa.Table:
        """The first rows of a statement; `stoppable` is handed what ends it from another thread."""
        ...


class RunSql(Protocol):
    """Runs a statement."""

    def __call__(self, statement: str, *, rows_max: int) -> pa.Table: ...


class Look:
    """Things as they are at one moment: what several rules ask for is found out once, and only if one asks."""

    def __init__(self, measures: Measures, *, run_sql: RunSql | None = None) -> None:
        """With `run_sql` statements are run by that, for example by somebody who does not wait for ever."""
        self._measures = measures
        self._run_sql: RunSql = run_sql or measures.run_sql

    @cached_property
    def now_us(self) -> int:
        return self._measures.now_us()

    @cached_property
    def group_lags(self) -> Sequence[Lag]:
        return self._measures.group_lags()

    @cached_property
    def query_statuses(self) -> Sequence[QueryStatus]:
        return self._measures.query_statuses()

    @cached_property
    def dead_letters(self) -> Mapping[str, float]:
        return self._measures.dead_letters()

    @cached_property
    def topics(self) -> Sequence[str]:
        return self._measures.topics()

    def run_sql(self, statement: str, *, rows_max: int) -> pa.Table:
        return self._run_sql(statement, rows_max=rows_max)
