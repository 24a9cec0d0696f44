"""Queries of apps that this process runs, that others run, and that no process runs; in this process and over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.apps.errors import AppSilent, RunnerNotFound
from headwater.apps.status import Graph, QueryStatus
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.services import Audit, Services, Settings, local
from headwater.services.callers import LOCAL, ScopeMissing
from headwater.services.host import Host
from headwater.services.queries import AppStatus
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
    assert stage.asked() == ["stop spend", "restart spend"]
    assert audited() == [
        {"action": "queries.stop", "target": "spend", "status": 200},
        {"action": "queries.restart", "target": f"spend app={APP}", "status": 200},
    ]


def test_a_query_is_told_apart_from_that_of_the_same_name_in_another_app(
    log: Log, services: Services, stage: Stage
) -> None:
    queries = services.queries
    with beside(log, "a") as first, beside(log, "b") as second:
        assert [one.app for one in queries.statuses().queries] == [APP, "a", "b"]
        queries.stop("spend", app="b")
        queries.restart("spend", app="a")
        assert queries.explain("spend", app="b").plan == "elsewhere"
        failure = queries.failure("spend", app="b")
        assert failure is not None
        assert failure.line == "elsewhere"
        assert (stage.asked(), first.asked) == ([], ["POST /queries/spend/restart"])
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


def test_without_a_runner_queries_are_as_the_last_run_left_them(log: Log) -> None:
    queries = local(Host(log=log, settings=Settings(), audit=Audit(log)), LOCAL).queries
    with pytest.raises(RunnerNotFound):
        queries.stop("spend")
    log.create("spend", "card int64", key="card", compact=True)
    (log.home / "apps" / APP / "queries" / "spend").mkdir(parents=True)
    assert queries.statuses().queries == []
    [left] = queries.statuses(stopped=True).queries
    assert (left.name, left.app, left.kind, left.state) == ("spend", APP, "view", "stopped")
    assert queries.status("spend") == [left]
    assert queries.apps() == [AppStatus(name=APP, running=False)]
    with pytest.raises(RunnerNotFound, match=APP):
        queries.stop("spend")
