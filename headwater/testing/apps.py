"""Run a whole app in a test: feed rows, advance time, check the results, without sleeping."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.apps.app import App
from headwater.apps.app_file import load_app
from headwater.apps.runner import Runner
from headwater.clock import ManualClock
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.port import Rows
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

    All rows that were fed are processed before a result is read. Spark is started once per test process.
    `app` may also be the path of the app's file, which is then run for each test.
    """

    def __init__(
        self, app: App | str | Path, *, start: datetime | None = None, spark: SparkSession | None = None
    ) -> None:
        moment = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._app = app if isinstance(app, App) else load_app(str(app))
        self._spark = spark
        self.clock = ManualClock(start_us=round(moment.timestamp() * 1e6))
        self._stack = contextlib.ExitStack()
        self._drained = True

    def __enter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-test-")))
        self._clock_file = self._folder / "clock"
        self._tell_time()
        before = self._app.log, self._app._home
        self._stack.callback(self._restore, *before)
        self._app._home = self._folder / "home"
        self.log: Log = self._stack.enter_context(open_log(self._folder / "log", clock=self.clock))
        runner = Runner(
            self._app,
            log=str(self._folder / "log"),
            serve=False,
            spark=self._spark,
            clock=str(self._clock_file),
        )
        self._runner = self._stack.enter_context(runner.ready())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _restore(self, log: str, home: str | Path | None) -> None:
        self._app.log, self._app._home = log, home

    # -- input --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time in this test, in UTC."""
        return datetime.fromtimestamp(self.clock.now_us() / 1e6, tz=UTC)

    def feed(self, topic: str, rows: Rows) -> None:
        """Append rows to a topic that the app reads."""
        self.log.append(topic, rows)
        self._drained = False

    def advance(self, period: Duration) -> None:
        """Let time pass. What was fed before is processed at its own time; timers that are due then fire."""
        self.drain()
        self.clock.advance(seconds=parse_seconds(period))
        self._tell_time()
        self._drained = False

    def drain(self) -> None:
        """Process all rows that were fed; reading a result calls this."""
        if not self._drained:
            self._runner.drain()
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
        found = self.log.read(topic).rows()
        return [row if system else {name: value for name, value in row.items() if name[0] != "_"} for row in found]

    @property
    def views(self) -> Mapping[str, View]:
        """The views of the app, after all rows that were fed."""
        self.drain()
        return self._runner.keeper.views
