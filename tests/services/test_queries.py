"""Queries of apps that this process runs, that others run, and that no process runs; in this process and over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.alerts import Rule
from headwater.alerts.log_measures import LogMeasures
from headwater.alerts.measurements import Sample, measurements
from headwater.apps.errors import AppSilent, NoAppRuns, RunnerNotFound
from headwater.apps.home import DeclaredQuery, Home
from headwater.apps.status import Graph, QueryStatus
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.services import Audit, Services, Settings, local
from headwater.services.callers import LOCAL, ScopeMissing
from headwater.services.host import Host
from headwater.services.metrics import Metrics
from headwater.services.queries import AppStatus
from tests.apps.checkpoints import commit_batch, plan_batch
from tests.console.other_app import running_elsewhere
from tests.console.stage import APP, Stage, runner_of
from tests.services.conftest import ServicesOf

SPEND = QueryStatus(name="spend", kind="view", state="running", app=APP, inputs=("payments",), error="ValueError: 4000")


@pytest.fixture
def stage(log: Log) -> Stage:
    made = Stage(log)
    made.statuses = [SPEND]
    made.show()
    return made


@pytest.fixture
def runner(log: Log, stage: Stage) -> Any:
    """The services run in a process that runs the app of the stage."""
    assert stage.statuses
    return runner_of(log)


@contextmanager
def beside(log: Log, name: str) -> Iterator[Any]:
    with running_elsewhere(log, name, dataclasses.replace(SPEND, app=name)) as app:
        yield app


def test_the_app_of_this_process_is_asked_and_told(
    services: Services, stage: Stage, audited: Callable[[], list[dict[str, Any]]]
) -> None:
    queries = services.queries
    assert queries.apps() == [AppStatus(name=APP, running=True, spark=True)]
    assert queries.statuses().queries == [SPEND]
    assert queries.status("spend") == [SPEND]
    assert queries.explain("spend").plan.startswith("== Physical Plan ==")
    assert queries.failure("spend") is None
    assert (queries.compare("spend").same, queries.compare("spend").samples) == (40, [])
    assert queries.graphs() == [queries.graph(APP)] == [Graph(app=APP, nodes=(), edges=())]
    queries.stop("spend")
    queries.restart("spend", app=APP)
    queries.rescale("spend", 4)
    assert stage.asked() == ["stop spend", "restart spend", "rescale spend 4"]
    assert audited() == [
        {"action": "queries.stop", "target": "spend", "status": 200},
        {"action": "queries.restart", "target": f"spend app={APP}", "status": 200},
        {"action": "queries.rescale", "target": "spend partitions=4", "status": 200},
    ]


def test_a_query_is_told_apart_from_that_of_the_same_name_in_another_app(
    log: Log, services: Services, stage: Stage
) -> None:
    queries = services.queries
    with beside(log, "a") as first, beside(log, "b") as second:
        assert [one.app for one in queries.statuses().queries] == [APP, "a", "b"]
        queries.stop("spend", app="b")
        queries.restart("spend", app="a")
        queries.rescale("spend", 4, app="a")
        assert queries.explain("spend", app="b").plan == "elsewhere"
        failure = queries.failure("spend", app="b")
        assert failure is not None
        assert failure.line == "elsewhere"
        assert stage.asked() == []
        assert first.asked == ["POST /queries/spend/restart", "POST /queries/spend/rescale"]
        assert second.asked == ["POST /queries/spend/stop", "GET /queries/spend/explain", "GET /queries/spend/failure"]
        queries.stop("spend", app=APP)
        assert stage.asked() == ["stop spend"]
        with pytest.raises(ArgumentInvalid, match="one of a, b, shop"):
            queries.stop("spend")
        with pytest.raises(RunnerNotFound):
            queries.stop("spend", app="c")
        with pytest.raises(NotFound, match="Did you mean 'spend'"):
            queries.stop("spent")


def test_an_app_that_hangs_holds_up_no_other_and_is_named(
    log: Log, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.services.queries.ASK_SECONDS_MAX", 0.2)
    with beside(log, "hung") as hung:
        hung.awake.clear()
        found = services.queries.statuses()
        assert ([one.app for one in found.queries], found.silent) == ([APP], ["hung"])
        with pytest.raises(AppSilent):
            services.queries.failure("spend", app="hung")


def test_an_app_of_another_version_is_shown_as_far_as_it_is_known(
    log: Log, services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    with beside(log, "newer") as newer, beside(log, "strange") as strange:
        newer.queries = [{**dataclasses.asdict(SPEND), "app": "newer", "mood": "good"}]
        strange.queries = [{"what": "is this"}]
        found = services.queries.statuses()
        assert ([one.app for one in found.queries], found.silent) == ([APP, "newer"], ["strange"])
    assert "strange" in caplog.text


def test_a_caller_sees_what_the_scopes_allow(services_of: ServicesOf, stage: Stage) -> None:
    stage.statuses = [
        dataclasses.replace(SPEND, inputs=("payments", "cards")),
        QueryStatus(name="salaries", kind="view", app=APP, inputs=("people",)),
    ]
    stage.show()
    narrow = services_of("read:payments", "admin:spend").queries
    [seen] = narrow.statuses().queries
    assert (seen.name, seen.error) == ("spend", None)
    for act in (narrow.explain, narrow.failure):
        with pytest.raises(ScopeMissing, match="read:cards"):
            act("spend")
        with pytest.raises(NotFound):
            act("salaries")
    for change in (narrow.stop, narrow.restart, narrow.replay, narrow.switch, narrow.drop, narrow.ask):
        with pytest.raises(ScopeMissing, match=r"admin:\*"):
            change("spend")
    for look in (narrow.apps, narrow.graphs, lambda: narrow.compare("spend")):
        with pytest.raises(ScopeMissing, match=r"read:\*"):
            look()
    assert services_of("read:payments", "read:cards").queries.explain("spend").query == "spend"
    assert stage.asked() == []


def test_all_readers_of_a_status_show_the_same_lag(log: Log) -> None:
    """The service, which the command line and the console show, alert rules and metrics; of an app that does not run."""
    home = Home(log.home / "apps" / APP)
    home.set_queries([DeclaredQuery(name="spend", kind="view", inputs=("payments",), output="spend")])
    log.create("payments", "card int64")
    log.append("payments", [{"card": 1}] * 1_800)
    services = local(Host(log=log, settings=Settings()), LOCAL)
    assert [one.lag_rows for one in services.queries.statuses().queries] == [1_800]
    assert [one.lag_rows for one in LogMeasures(log).query_statuses()] == [1_800]
    rule = Rule(name="slow", kind="lag", query="spend", threshold=1_000)
    [measurement] = measurements(rule, Sample(LogMeasures(log)))
    assert (measurement.is_over, measurement.value) == (True, 1_800)
    line = f'headwater_query_lag_rows{{app="{APP}",query="spend",version="1"}} 1800'
    assert line in Metrics(Host(log=log, settings=Settings()), LOCAL).scrape().splitlines()


def test_without_a_runner_queries_are_as_the_last_run_left_them(log: Log) -> None:
    queries = local(Host(log=log, settings=Settings(), audit=Audit(log)), LOCAL).queries
    with pytest.raises(NoAppRuns):
        queries.stop("spend")
    log.create("payments", "card int64")
    log.append("payments", [{"card": 1}] * 7)
    home = Home(log.home / "apps" / APP)
    home.set_queries(
        [
            DeclaredQuery(
                name="spend", kind="view", inputs=("payments",), output="spend", sinks={"mail": "at least once"}
            )
        ]
    )
    [left] = queries.statuses().queries
    assert (left.name, left.app, left.kind, left.state) == ("spend", APP, "view", "stopped")
    assert (left.outputs, left.batch, left.lag_rows) == (("spend", "mail"), None, 7)
    plan_batch(home.checkpoint("spend", 1), 3, {"payments": {0: 5}})
    commit_batch(home.checkpoint("spend", 1), 3)
    [left] = queries.statuses().queries
    assert (left.batch, left.lag_rows, left.rows_total) == (3, 2, 5)
    assert queries.statuses().running == []
    assert [one.lag_rows for one in queries.status("spend")] == [2]
    assert queries.apps() == [AppStatus(name=APP, running=False)]
    with pytest.raises(RunnerNotFound, match=APP):
        queries.stop("spend")
    queries.rescale("spend", 16)
    assert home.partitions("spend", 1, setting=None, default=2) == 16, "from its next start on"
    with pytest.raises(ArgumentInvalid, match="from 1 to"):
        queries.rescale("spend", 0)
