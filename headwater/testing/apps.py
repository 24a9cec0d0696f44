"""Run a whole app in a test: feed rows, advance time, check the results, without sleeping."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from headwater.apps.app import App
from headwater.apps.app import found as query_of
from headwater.apps.app_file import load_app
from headwater.apps.declaration import Query
from headwater.apps.runner import Runner
from headwater.clock import ManualClock
from headwater.engine.side_outputs import public_rows, read_side_output
from headwater.errors import ArgumentInvalid, NotFound, did_you_mean
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.client_config import Rows
from headwater.log.dead_letters import SUFFIX, dead_letter_topic
from headwater.optional import require_extras
from headwater.testing.recorded_sink import RecordedSink
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.views import View


class AppTest:
    """An app with a log of its own in a temporary folder, under a clock that only the test advances.

        with AppTest(fraud.app) as test:
            test.feed("payments", [{"card": 1, "amount": 600.0, "at": test.now}])
            test.advance("10 minutes")
            assert test.rows("stolen") == […]
            assert test.views["spend"].get(card=1)["total"] == 600.0
            assert test.sent("webhook") == [{"card": 1}]

    All rows that were fed are processed before a result is read. Spark is started once per test process.
    `app` may also be the path of the app's file, which is then run for each test.

    Nothing leaves the test: a sink of the app is replaced by one that records its rows (`sent`), and views are kept in
    the temporary folder. `sinks="real"` runs the sinks and the view store as they are declared. Nothing is read from
    outside either: a capture has the tables that `capture.table(…)` declares, and the test feeds their rows.
    `captures="real"` reads the databases.
    """

    def __init__(
        self,
        app: App | str | Path,
        *,
        start: datetime | None = None,
        spark: SparkSession | None = None,
        sinks: Literal["recorded", "real"] = "recorded",
        captures: Literal["fed", "real"] = "fed",
    ) -> None:
        require_extras("spark", "views")
        if sinks not in ("recorded", "real"):
            raise ArgumentInvalid(name="sinks", value=sinks, expected="'recorded' or 'real'")
        if captures not in ("fed", "real"):
            raise ArgumentInvalid(name="captures", value=captures, expected="'fed' or 'real'")
        moment = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._app = app if isinstance(app, App) else load_app(str(app))
        self._spark = spark
        self._records = sinks == "recorded"
        self._captures = captures
        self.clock = ManualClock(start_us=round(moment.timestamp() * 1e6))
        self._stack = contextlib.ExitStack()
        self._drained = False

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _open(self) -> None:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-test-")))
        self._clock_file = self._folder / "clock"
        self._tell_time()
        self._stack.enter_context(self._isolated())
        address = self._address()
        self.log: Log = self._stack.enter_context(open_log(address, clock=self.clock))
        runner = Runner(
            self._app,
            log=address,
            serve=False,
            spark=self._spark,
            clock=str(self._clock_file),
            captures="real" if self._captures == "real" else "declared",
        )
        self._runner = self._stack.enter_context(runner.ready())

    def _address(self) -> str:
        """The address of the log, which has no topics yet."""
        return str(self._folder / "log")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def _isolated(self) -> Iterator[None]:
        """Give the app a home in the test's folder and, unless they are to be real, recorded sinks and a local view store."""
        app = self._app
        before = app.log, app._home, app.view_store, app.queries
        app._home = self._folder / "home"
        app.queries = [replace(query, trigger=None) for query in app.queries]  # a test waits for no interval
        if self._records:
            app.view_store = None
            app.queries = [_recorded(query) for query in app.queries]
        try:
            yield
        finally:
            app.log, app._home, app.view_store, app.queries = before

    # -- input --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time in this test, in UTC."""
        return datetime.fromtimestamp(self.clock.now_us() / 1e6, tz=UTC)

    def feed(self, topic: str, rows: Rows) -> None:
        """Append rows to a topic that the app reads, or to a captured table: `_tombstone` deletes the row of a key."""
        self.log.append(self._topic_of(topic), rows)
        self._drained = False

    def _topic_of(self, name: str) -> str:
        """The topic of this name, or that of the captured table of this name."""
        if name not in self.log.topics():
            for one in self._app.captures:
                if one[name] in self.log.topics():
                    return one[name]
        return name

    def advance(self, period: Duration) -> None:
        """Let time pass. What was fed before is processed at its own time; timers that are due then fire."""
        self.drain()
        self.clock.advance(seconds=parse_seconds(period))
        self._tell_time()
        self._drained = False

    def drain(self) -> None:
        """Process all rows that were fed, until no query changes anything any more; reading a result calls this.

        Captures with `captures="real"` are read first.
        """
        if not self._drained or self._captures == "real":
            self._runner.drain()
            self._drained = True

    def finish(self) -> None:
        """Process all rows that were fed, and say that none follow: every window closes, and everything that waits is decided.

        Rows that are fed afterwards are late.
        """
        self._runner.finish()
        self._drained = True

    def _tell_time(self) -> None:
        temporary = self._clock_file.with_suffix(".new")
        temporary.write_text(str(self.clock.now_us()))
        temporary.replace(self._clock_file)

    # -- results ------------------------------------------------------------------------------------------------------

    # Any: values of rows.
    def rows(self, topic: str, *, system: bool = False) -> list[dict[str, Any]]:
        """The rows of a topic, with the system columns if `system`."""
        self.drain()
        found = self.log.read(self._topic_of(topic)).rows()
        return [row if system else {name: value for name, value in row.items() if name[0] != "_"} for row in found]

    # Any: values of rows.
    def sent(self, sink: str) -> list[dict[str, Any]]:
        """The rows that a sink was given. Rows of a changelog have `_op`.

        `sink` is its name (`webhook:https://…`) or, where only one sink is meant by it, its kind (`webhook`) or the
        name of the query that has it.
        """
        self.drain()
        if not self._records:
            expected = "the sinks to be recorded; this test was made with `sinks='real'`"
            raise ArgumentInvalid(name="sent", value=sink, expected=expected)
        sinks = [
            ((query.name, each.name, each.name.partition(":")[0]), each)
            for query in self._app.queries
            for each in query.sinks
        ]
        chosen = [each for names, each in sinks if sink in names]
        if not chosen:
            known = [name for names, _ in sinks for name in names]
            raise NotFound(kind="sink", name=sink, near=did_you_mean(sink, known))
        if len(chosen) > 1:
            expected = f"one of {', '.join(each.name for each in chosen)}: there are several"
            raise ArgumentInvalid(name="sink", value=sink, expected=expected)
        return chosen[0].rows() if isinstance(chosen[0], RecordedSink) else []

    @property
    def views(self) -> Mapping[str, View]:
        """The views of the app, after all rows that were fed."""
        self.drain()
        return self._runner.keeper.views

    # -- where a missing row went -------------------------------------------------------------------------------------

    # Any: values of rows.
    def late(self, query: str | None = None) -> list[dict[str, Any]]:
        """The rows that came behind the watermark, of one query or of all, with the columns their operator needs and `late_by_us`."""
        self.drain()
        chosen = self._app.queries if query is None else [query_of(self._app.queries, query)]
        rows: list[dict[str, Any]] = []
        for each in chosen:
            if (running := self._runner.active(each).running) is None:
                continue
            for operator in running.planned.operators:
                late = read_side_output(self._runner.home.state, str(running.query.id), operator.name, "late")
                rows += [row for table in late for row in public_rows(table).to_pylist()]
        return rows

    def dropped(self) -> dict[str, dict[str, int]]:
        """How many rows each query left out of its result, by the reason: `late`, or `rejected` to its dead letters."""
        self.drain()
        counts = {one.name: {"late": one.late, "rejected": one.rejected} for one in self._runner.statuses()}
        kept = {query: {why: count for why, count in by.items() if count} for query, by in counts.items()}
        return {query: by for query, by in kept.items() if by}

    # Any: values of rows.
    def dead_letters(self, topic: str | None = None) -> list[dict[str, Any]]:
        """The dead letters of a topic, or of all: the row as text, the error and its message, and the query."""
        self.drain()
        names = [name for name in self.log.topics() if name.endswith(SUFFIX)]
        chosen = names if topic is None else [name for name in names if name == dead_letter_topic(topic)]
        return [row for name in chosen for row in self.rows(name)]


def _recorded(query: Query) -> Query:
    return replace(query, sinks=tuple(RecordedSink(sink=sink) for sink in query.sinks))
