"""The measures of a log and its apps: those of this process, those of other processes, and stopped ones.

A query of an app that no process runs counts as stopped. So a rule on it fires when the process that ran it has died, as
long as another process, such as `headwater serve`, evaluates the rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.alerts.gateway_measures import GatewayMeasures
from headwater.alerts.measurements import CaptureHealth, GatewayHealth, QueueHealth
from headwater.alerts.queue_measures import QueueMeasures
from headwater.alerts.time_limit import Stoppable
from headwater.apps.errors import AppSilent, RunnerNotFound
from headwater.errors import NotFound
from headwater.log import Lag
from headwater.log.dead_letters import SUFFIX, dead_letter_topics
from headwater.units import MINUTE
from headwater.views.errors import StatementInvalid

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.apps.home import Home
    from headwater.apps.status import QueryStatus
    from headwater.apps.views import LogViews
    from headwater.log import Log
    from headwater.views import ViewKeeper

#: How long an app of another process may take to return its status.
ASK_SECONDS_MAX = 5.0
Statuses = Callable[[], Sequence["QueryStatus"]]


class LogMeasures:
    """The measures of a log and its apps. `app` is the one that this process runs, with its statuses and views."""

    def __init__(
        self,
        log: Log,
        *,
        app: str | None = None,
        statuses: Statuses = tuple,
        keeper: ViewKeeper | None = None,
    ) -> None:
        self._log = log
        self._app = app
        self._statuses = statuses
        self._keeper = keeper
        self._queues = QueueMeasures(log)
        self._gateways = GatewayMeasures(log)

    def now_us(self) -> int:
        return self._log.clock.now_us()

    def topics(self) -> Sequence[str]:
        return self._log.topics()

    def group_lags(self) -> Sequence[Lag]:
        found: list[Lag] = []
        for group in self._log.groups.names():
            with contextlib.suppress(NotFound):  # the group or its topic was deleted in the meantime
                found += self._log.groups.lag(group)
        return found

    def dead_letters(self) -> Mapping[str, float]:
        since_us = self.now_us() - round(MINUTE * 1e6)
        counts: dict[str, float] = {}
        for topic in dead_letter_topics(self._log):
            with contextlib.suppress(NotFound):  # deleted in the meantime
                starts, ends = self._log.offset_at(topic, since_us), self._log.end_offsets(topic)
                counts[topic.removesuffix(SUFFIX)] = float(sum(ends[one] - starts[one] for one in ends))
        return counts

    def captures(self) -> Sequence[CaptureHealth]:
        from headwater.capture import CaptureStore
        from headwater.capture.report import current_report

        store, now_us, found = CaptureStore(self._log), self.now_us(), []
        for name, config in store.configs().items():
            report, _, error = current_report(self._log, config)
            known_us = max(report.at_us, store.progress(name).at_us or 0)
            found.append(
                CaptureHealth(
                    name=name,
                    delay_seconds=None if report.error else report.delay_seconds,
                    retained_bytes=report.retained_bytes,
                    danger=report.danger,
                    unknown_seconds=max(0.0, (now_us - known_us) / 1e6) if known_us else 0.0,
                    error=error or report.error,
                )
            )
        return found

    def queues(self) -> Sequence[QueueHealth]:
        return self._queues.read()

    def gateways(self) -> Sequence[GatewayHealth]:
        return self._gateways.read()

    # -- queries ------------------------------------------------------------------------------------------------------

    def query_statuses(self) -> Sequence[QueryStatus]:
        from headwater.apps.home import homes

        found = list(self._statuses())
        for name, home in homes(self._log.home).items():
            if name != self._app:
                found += self._of_other(home)
        return found

    def _of_other(self, home: Home) -> list[QueryStatus]:
        from headwater.apps.status import status_of
        from headwater.apps.stopped_apps import stopped_queries

        try:
            with home.connected(seconds_max=ASK_SECONDS_MAX) as connection:
                return [status_of(one) for one in connection.get("/queries", app=home.path.name)["queries"]]
        except (RunnerNotFound, AppSilent):
            return stopped_queries(home, self._log)

    # -- views --------------------------------------------------------------------------------------------------------

    def run_sql(self, statement: str, *, rows_max: int, stoppable: Stoppable | None = None) -> pa.Table:
        """The first rows of one SELECT over views and topics; it cannot read files of this machine."""
        from headwater.views.sql import Sql

        text = statement.strip().rstrip(";")
        with self._views() as views:
            sql = Sql(self._log, views, files=False)
            sql.topics(text)  # raises if it is not a query, or names a table that does not exist
            # If one app has all views, it runs the statement; otherwise this process reads the views of all apps.
            if len(views.apps) > 1:
                return sql.query(text, limit=rows_max, stoppable=stoppable)
            try:
                return sql.query(f"SELECT * FROM (\n{text}\n) LIMIT {rows_max}", stoppable=stoppable)
            except StatementInvalid as error:
                raise StatementInvalid(statement=text[:200], why=error.why) from error

    @contextlib.contextmanager
    def _views(self) -> Iterator[LogViews]:
        from headwater.apps.views import views_of
        from headwater.views.statement import SERVED, Bounds

        kept = {} if self._app is None or self._keeper is None else {self._app: self._keeper}
        # The caller stops a statement that takes too long; only its memory is limited here.
        with views_of(self._log, kept=kept, bounds=Bounds(memory_max=SERVED.memory_max)) as views:
            yield views
