"""Views that this process maintains, and views that a stopped app left; in this process and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.apps.errors import RunnerNotFound
from headwater.errors import NotFound, NotPossible
from headwater.log import Log
from headwater.services import Services
from headwater.services.callers import ScopeMissing
from headwater.views import DuckStore, ViewKeeper, ViewSpec
from headwater.views.errors import StatementInvalid
from tests.http.test_views import keep, with_view
from tests.services.conftest import ServicesOf

ROWS = [{"card": 1, "total": 2.5}, {"card": 73314510714175488, "total": 4.0}]


@pytest.fixture(params=["maintained", "left"])
def runner(request: pytest.FixtureRequest, log: Log, tmp_path: Path) -> Iterator[Any]:
    """The app `fraud`, whose view `spend` is maintained by the process of the services, or was left by a stopped one."""
    if request.param == "left":
        with_view(log)
        yield None
        return
    topic = log.create("spend", "card int64, total float64", key="card", compact=True)
    log.append("spend", ROWS)
    keeper = ViewKeeper(log, DuckStore(tmp_path / "views.duckdb"))
    keeper.add(ViewSpec(name="spend", topic="spend", key=topic.key, schema=topic.schema))
    keeper.catch_up()
    told: list[str] = []
    yield SimpleNamespace(
        app=SimpleNamespace(name="fraud", queries=[]),
        keeper=keeper,
        rebuild_view=lambda view: told.append(f"rebuild {view}"),
        drop_view=lambda view: told.append(f"drop {view}"),
        told=told,
    )
    keeper.stop()
    keeper.store.close()


maintained = pytest.mark.parametrize("runner", ["maintained"], indirect=True)
left = pytest.mark.parametrize("runner", ["left"], indirect=True)


def test_a_view_is_listed_described_and_read(services: Services, runner: Any) -> None:
    [found] = services.views.all().views
    assert (found.name, found.app, found.running, found.key) == ("spend", "fraud", runner is not None, ["card"])
    assert services.views.describe("spend") == found
    assert found.offsets == {"0": 2}
    with services.views.open("spend") as view:
        assert view.rows() == ROWS
        assert view.get(card=1) == ROWS[0]
        assert view.sql("SELECT sum(total) AS t FROM spend").to_pylist() == [{"t": 6.5}]
    with services.views.tables() as tables:
        assert tables.names() == ["spend"]
        assert tables.table("spend").to_pylist() == ROWS
    with pytest.raises(NotFound, match="Did you mean 'spend'"):
        services.views.describe("spnd")


def test_sql_reads_topics_and_views_that_the_caller_may_read(services_of: ServicesOf, runner: Any) -> None:
    assert runner is None or runner.app.name == "fraud"
    sql = services_of().sql
    assert sql.query("SELECT count(*) AS n FROM log.spend").to_pylist() == [{"n": 2}]
    assert sql.query("SELECT card FROM spend ORDER BY card", limit=1).to_pylist() == [{"card": 1}]
    assert sql.query("SELECT total FROM spend WHERE card = 1", app="fraud").to_pylist() == [{"total": 2.5}]
    with pytest.raises(StatementInvalid):
        sql.query("DELETE FROM spend")
    with pytest.raises(ScopeMissing):
        services_of("read:other").sql.query("SELECT * FROM spend")


def test_a_caller_sees_what_the_scopes_allow(services_of: ServicesOf) -> None:
    reader = services_of("read:spend").views
    assert [one.name for one in reader.all().views] == ["spend"]
    assert reader.describe("spend").app == "fraud"
    stranger = services_of("read:other").views
    assert stranger.all().views == []
    with pytest.raises(ScopeMissing, match="read:spend"):
        stranger.describe("spend")
    with pytest.raises(ScopeMissing, match="read:spend"), stranger.open("spend") as view:
        view.rows()
    for change in (reader.rebuild, reader.drop):
        with pytest.raises(ScopeMissing, match=r"admin:\*"):
            change("spend")


@maintained
def test_a_view_is_rebuilt_and_dropped_by_the_app_that_runs(
    services: Services, runner: Any, audited: Callable[[], list[dict[str, Any]]]
) -> None:
    views = services.views
    assert views.rebuild("spend", dry_run=True).app == "fraud"
    assert views.rebuild("spend").version == 1
    assert views.drop("spend", dry_run=True) == "fraud"
    assert runner.told == ["rebuild spend"]
    assert views.drop("gone") == "fraud"  # one that the app declares no longer is not in the list
    assert runner.told == ["rebuild spend", "drop gone"]
    assert [row["action"] for row in audited()] == ["views.rebuild", "views.drop"]


@left
def test_what_a_stopped_app_left_is_not_changed(services: Services) -> None:
    with pytest.raises(RunnerNotFound, match="fraud"):
        services.views.rebuild("spend")
    for dry_run in (True, False):
        with pytest.raises(RunnerNotFound, match="fraud"):
            services.views.drop("spend", dry_run=dry_run)


@left
def test_a_name_that_two_apps_have_is_told_apart(services: Services, log: Log) -> None:
    log.create("other", "card int64, total float64", key="card", compact=True)
    log.append("other", [{"card": 1, "total": 9.0}])
    keep(log, "another", spend="other")
    assert sorted(one.app for one in services.views.all().views) == ["another", "fraud"]
    with pytest.raises(NotPossible):
        services.views.describe("spend")
    assert services.views.describe("spend", app="another").topic == "other"
    with services.views.open("spend", app="another") as view:
        assert [row["total"] for row in view.rows()] == [9.0]
