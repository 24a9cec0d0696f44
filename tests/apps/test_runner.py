"""What a runner does to queries, whatever they compute: keep them at work, tell of them, replay them, switch versions."""

from __future__ import annotations

import json
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.apps.errors import QueryFailed
from headwater.apps.home import Home
from headwater.apps.runner import FAILURES_MAX, Runner
from headwater.apps.supervision import wait_seconds
from headwater.errors import ArgumentInvalid, InUse, NotFound
from headwater.faults import REPLAY_CRASH_POINTS, install
from headwater.log.errors import ServerUnreachable
from headwater.services import app_services
from headwater.services.json_form import to_json
from tests.apps.fixtures import SECONDS_MAX, PlainRunner, Row, supervised
from tests.conditions import until
from tests.servers import Postgres
from tests.servers import postgres as postgres

PAYMENTS = {"id": "int64", "card": "int64", "amount": "int64"}
COLUMNS = {"spend": {"card": "int64", "n": "int64", "total": "int64"}, "copied": PAYMENTS}
Totals = dict[int, tuple[int, int]]


def totals(rows: list[Row], *, factor: int = 1) -> Totals:
    found: Totals = defaultdict(lambda: (0, 0))
    for row in rows:
        n, total = found[row["card"]]
        found[row["card"]] = (n + 1, total + row["amount"] * factor)
    return dict(found)


def shop(folder: Path, *, factor: int = 1, cards: int = 3) -> hw.App:
    """An app with one view: what each card has spent, times a factor, of the first so many cards."""
    app = hw.App("shop", log=folder / "data")
    app.input("payments", PAYMENTS, key="card", partitions=2)

    @app.view(key="card")
    def spend(payments: list[Row]) -> list[Row]:
        found = totals([row for row in payments if row["card"] < cards], factor=factor)
        return [{"card": card, "n": n, "total": total} for card, (n, total) in found.items()]

    return app


def payments(count: int) -> list[Row]:
    return [{"id": n, "card": n % 3, "amount": n} for n in range(count)]


def shown(view: Any) -> Totals:
    return {row["card"]: (row["n"], row["total"]) for row in view.rows()}


def at_work(app: hw.App, **settings: Any) -> Any:
    return supervised(PlainRunner(app, columns=COLUMNS, **settings))


# -- a running app ----------------------------------------------------------------------------------------------------


def test_a_running_app_is_asked_and_told_over_its_api(tmp_path: Path) -> None:
    app = shop(tmp_path)
    rows = payments(30)
    with at_work(app) as runner:
        appended = runner.log.append("payments", rows)
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        view = app.views["spend"]
        wanted = {"payments": appended.offsets_next}
        assert view.get(card=2, at_least=wanted, timeout=SECONDS_MAX) == {"card": 2, "n": 10, "total": 155}
        with app_services(Home(app.home)) as services:
            queries = services.queries
            assert [(one.name, one.kind) for one in queries.statuses().queries] == [("spend", "view")]
            assert "spend" in queries.graph_text("shop")
            assert "payments" in queries.graph_svg("shop")
            with pytest.raises(NotFound, match="Did you mean 'spend'"):
                queries.stop("spent")
            with pytest.raises(InUse), Runner(app, serve=False).ready():
                pass
            queries.stop("spend")
            runner.log.append("payments", rows)
            assert queries.status("spend")[0].state == "stopped"
            assert shown(view) == totals(rows)
            queries.restart("spend")
            until(lambda: shown(view) == totals(rows * 2), "the query has started again")
            assert services.views.rebuild("spend").version == 2
            assert shown(view) == totals(rows * 2)
            with pytest.raises(ArgumentInvalid, match="no longer declares"):
                services.views.drop("spend")
    assert shown(app.views["spend"]) == totals(rows * 2)  # read from the store, while no process runs the app


def test_an_app_goes_on_when_its_log_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headwater.apps.runner.UNREACHABLE_SECONDS", 0.01)
    app = shop(tmp_path)
    with at_work(app, serve=False) as runner:
        runner.log.append("payments", payments(30))
        until(lambda: "spend" in runner.keeper.views, "the view is kept")

        def away(name: str) -> Any:
            raise ServerUnreachable(address="somewhere", why=f"no answer about {name}")

        with monkeypatch.context() as patch:
            patch.setattr(runner.log, "topic", away)
            until(lambda: "no answer about" in caplog.text, "the app has looked")
        runner.log.append("payments", payments(30))
        until(lambda: shown(app.views["spend"]) == totals(payments(30) * 2), "the view goes on")


def test_a_reader_waits_for_its_write_through_a_derived_topic(tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("payments", PAYMENTS, key="card", partitions=3)
    app.topic(key="card", name="copied", inputs={"rows": "payments"})(
        lambda rows: [{name: row[name] for name in PAYMENTS} for row in rows]
    )
    app.view(key="card", name="spend", inputs={"payments": "copied"})(shop(tmp_path).query("spend").function)
    with at_work(app, serve=False) as runner:
        appended = runner.log.append("payments", payments(30))
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        wanted = {"payments": appended.offsets_next}
        row = app.views["spend"].get(card=2, at_least=wanted, timeout=SECONDS_MAX)
        assert row == {"card": 2, "n": 10, "total": 155}
        with pytest.raises(ArgumentInvalid, match="is made from"):
            app.views["spend"].get(card=2, at_least={"elsewhere": {0: 1}})


def test_a_bounded_run_ends_when_all_is_processed_and_the_next_goes_on(tmp_path: Path) -> None:
    app = shop(tmp_path)
    for times in (1, 2):
        with hw.open(tmp_path / "data") as log:
            log.create("payments", PAYMENTS, key="card", partitions=2, exist_ok=True)
            log.append("payments", payments(9))
        PlainRunner(app, columns=COLUMNS, until_caught_up=True, serve=False).run()
        assert shown(app.views["spend"]) == totals(payments(9) * times)
    with (
        pytest.raises(ArgumentInvalid, match="has begun already"),
        PlainRunner(app, columns=COLUMNS, start="latest", serve=False).ready(),
    ):
        pass


@pytest.mark.process
def test_views_may_live_in_postgresql(tmp_path: Path, postgres: Postgres) -> None:
    app = hw.App("shop", log=tmp_path / "data", views=postgres.new_database())
    app.input("payments", PAYMENTS, key="card")
    app.view(key="card", name="spend")(shop(tmp_path).query("spend").function)
    with PlainRunner(app, columns=COLUMNS, serve=False).ready() as runner:
        runner.log.append("payments", payments(9))
        runner.drain()
    assert shown(app.views["spend"]) == totals(payments(9))  # read from the store, while no process runs the app


def broken_until(file: Path) -> Callable[[list[Row]], list[Row]]:
    def copied(payments: list[Row]) -> list[Row]:
        if payments and not file.exists():
            raise RuntimeError(f"there is no {file.name}")
        return [{name: row[name] for name in PAYMENTS} for row in payments]

    return copied


def test_a_query_that_fails_starts_again_later_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("headwater.apps.supervision.time.monotonic", lambda: now)
    app = hw.App("shop", log=tmp_path / "data")
    app.input("payments", PAYMENTS, key="card")
    app.topic(key="card", name="copied")(broken_until(tmp_path / "key"))
    with PlainRunner(app, columns=COLUMNS, serve=False).ready() as runner:
        runner.log.append("payments", payments(3))
        (one,) = runner.supervised.values()
        for failures in range(1, 10):
            for _ in range(2):  # it is started, and has failed
                one.look()
                assert one.progress.status().state == ("starting" if one.failures == 0 else "restarting")
            assert (one.failures, one.running) == (failures, None)
            now += wait_seconds(failures) - 0.001
            one.look()
            assert one.running is None, "it is not due yet"
            now += 0.002
        status = one.progress.status()
        assert (status.state, status.restarts) == ("restarting", 9)
        assert status.error is not None
        assert status.error.startswith("RuntimeError: there is no key (")
        (tmp_path / "key").touch()
        one.look()
        one.look()
        assert one.failures == 0
        assert one.progress.status().error is None
        assert runner.log.read("copied").count() == 3


def test_a_bounded_run_gives_up_on_a_query_that_fails_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.apps.supervision.WAIT_SECONDS", 0.0)
    app = hw.App("shop", log=tmp_path / "data")
    app.input("payments", PAYMENTS, key="card")
    app.topic(key="card", name="copied")(broken_until(tmp_path / "key"))
    with hw.open(tmp_path / "data") as log:
        log.create("payments", PAYMENTS, key="card")
        log.append("payments", payments(1))
    runner = PlainRunner(app, columns=COLUMNS, until_caught_up=True, serve=False)
    with pytest.raises(QueryFailed, match="there is no key"):
        runner.run()
    [one] = runner.supervised.values()
    assert one.failures == FAILURES_MAX


def test_a_query_whose_input_has_new_columns_is_started_again_and_others_are_not(tmp_path: Path) -> None:
    app = shop(tmp_path)
    app.input("refunds", PAYMENTS, key="card")
    app.topic(key="card", name="copied", inputs={"rows": "refunds"})(lambda rows: rows)
    with PlainRunner(app, columns=COLUMNS, serve=False).ready() as runner:
        for _ in range(2):
            runner._look_at_all()
        before = {name: one.running for name, one in runner.supervised.items()}
        runner.log.alter("payments", schema={**PAYMENTS, "shop": "string"})
        for _ in range(2):
            runner._look_at_all()
        assert [name for name, one in runner.supervised.items() if one.running is not before[name]] == ["spend-v1"]


def test_two_queries_come_up_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.apps.fixtures.PlainQuery.is_coming_up", True)
    app = hw.App("shop", log=tmp_path / "data")
    app.input("payments", PAYMENTS, key="card")
    names = [f"copy_{number}" for number in range(5)]
    for name in names:
        app.topic(key="card", name=name)(lambda payments: payments)
    with PlainRunner(app, columns=dict.fromkeys(names, PAYMENTS), serve=False).ready() as runner:
        for _ in range(3):
            runner._look_at_all()
            assert sum(one.running is not None for one in runner.supervised.values()) == 2
        monkeypatch.setattr("tests.apps.fixtures.PlainQuery.is_coming_up", False)
        runner._look_at_all()
        assert sum(one.running is not None for one in runner.supervised.values()) == 4


def test_only_some_queries_of_an_app_are_run(tmp_path: Path) -> None:
    app = shop(tmp_path)
    app.topic(key="card", name="copied", inputs={"rows": "payments"})(lambda rows: rows)
    with PlainRunner(app, columns=COLUMNS, only=["copied"], serve=False).ready() as runner:
        assert list(runner.supervised) == ["copied-v1"]
        assert {one.name: one.state for one in runner.statuses()} == {"copied": "waiting", "spend": "stopped"}
        assert {node.name for node in runner.graph().nodes} >= {"spend", "copied", "payments"}
    with pytest.raises(NotFound, match="Did you mean 'copied'"):
        PlainRunner(app, columns=COLUMNS, only=["copid"])


def test_what_another_thread_asks_for_is_done_by_the_one_that_supervises(tmp_path: Path) -> None:
    with at_work(shop(tmp_path), serve=False) as runner:
        assert runner.ask(threading.get_ident) != threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            runner.ask(lambda: 1 // 0)
        assert runner.ask(lambda: runner.ask(lambda: 7)) == 7


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        runner = PlainRunner(shop(tmp_path), columns=COLUMNS, port=taken.getsockname()[1])
        with pytest.raises(InUse, match="used by another program"), runner.ready():
            pass


# -- replay -----------------------------------------------------------------------------------------------------------


def test_a_replay_is_compared_and_takes_over_while_subscribers_go_on(tmp_path: Path) -> None:
    app = shop(tmp_path)
    rows = payments(30)
    with at_work(app) as runner:
        runner.log.append("payments", rows)
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        view = app.views["spend"]
        until(lambda: shown(view) == totals(rows), "the rows are counted")
        with app_services(Home(app.home)) as services, view.subscribe() as changes:
            queries = services.queries
            assert queries.replay("spend", version="v2").trial == 2
            until(lambda: queries.compare("spend").same == 3, "the second version has caught up")
            for _ in range(3):
                next(changes)
            switched = queries.switch("spend")
            assert (switched.state, switched.same, switched.changed) == ("switched", 3, 0)
            runner.log.append("payments", rows)
            assert next(changes).row["n"] == 20  # the subscriber has missed nothing
        until(lambda: shown(view) == totals(rows * 2), "the second version goes on")
        assert "spend.v2" not in runner.log.topics()


def test_a_replay_corrects_what_readers_have_seen(tmp_path: Path) -> None:
    with at_work(shop(tmp_path), serve=False) as runner:
        runner.log.append("payments", payments(6))
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        until(lambda: len(runner.keeper.views["spend"].rows()) == 3, "three cards")
    with at_work(shop(tmp_path, factor=2, cards=2), serve=False) as runner:
        runner.replays.begin("spend")
        until(lambda: runner.replays.report("spend").only_active == 1, "the trial has seen all")
        report = runner.replays.report("spend")
        assert (report.same, report.changed, report.only_active, report.only_trial) == (0, 2, 1, 0)
        runner.replays.switch("spend")
        view = runner.keeper.views["spend"]
        until(lambda: shown(view) == {0: (2, 6), 1: (2, 10)}, "readers see the corrections")


class Interrupted(Exception):
    """In place of a kill: what has been written stays, and nothing more happens."""


@pytest.mark.parametrize("point", REPLAY_CRASH_POINTS)
def test_the_next_start_finishes_a_switch_that_was_interrupted(tmp_path: Path, point: str) -> None:
    rows = payments(30)

    def hook(reached: str) -> None:
        if reached == point:
            raise Interrupted

    with at_work(shop(tmp_path), serve=False) as runner:
        runner.log.append("payments", rows)
        runner.replays.begin("spend")
        until(lambda: runner.replays.report("spend").same == 3, "the second version has caught up")
        install(hook)
        try:
            with pytest.raises(Interrupted):
                runner.replays.switch("spend")
        finally:
            install(None)
    app = shop(tmp_path)
    with at_work(app, serve=False) as runner:
        if point in ("replay.stopped", "replay.met"):  # nothing was decided yet: the trial goes on
            until(lambda: "spend-v2" in runner.supervised, "the trial goes on")
            runner.replays.switch("spend")
        in_use = Home(app.home)
        until(lambda: in_use.versions("spend", topic="spend").active.number == 2, "the second version is in use")
        runner.log.append("payments", rows)
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        view = runner.keeper.views["spend"]
        until(lambda: shown(view) == totals(rows * 2), "the second version goes on")
        assert list(runner.supervised) == ["spend-v2"]
        assert "spend.v2" not in runner.log.topics()


def test_versions_meet_at_the_furthest_offset_that_either_has_come_to(tmp_path: Path) -> None:
    """The one in use has stopped before some rows that the trial has seen, and is brought there before the switch."""
    with PlainRunner(shop(tmp_path), columns=COLUMNS, serve=False).ready() as runner:
        (active,) = runner.supervised.values()
        runner.log.append("payments", payments(6))
        for _ in range(2):
            active.look()
        active.stop()
        runner.replays.begin("spend")
        runner.log.append("payments", payments(9))
        trial = runner.supervised["spend-v2"]
        for _ in range(2):
            trial.look()
        switched = runner.replays.switch("spend")
        assert (switched.same, switched.changed) == (3, 0)
        runner.keeper.catch_up()
        assert shown(runner.keeper.views["spend"]) == totals([*payments(6), *payments(9)])


def test_a_topic_keeps_its_history_and_goes_on_with_the_rows_of_the_new_version(tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path / "data")
    app.input("payments", PAYMENTS, key="card")
    app.topic(key="card", name="copied", inputs={"rows": "payments"})(
        lambda rows: [{"id": row["id"], "card": 0, "amount": row["amount"]} for row in rows]
    )
    with PlainRunner(app, columns=COLUMNS, serve=False).ready() as runner:

        def look() -> None:
            for _ in range(2):
                for one in list(runner.supervised.values()):
                    one.look()

        runner.log.append("payments", payments(3))
        look()
        runner.replays.begin("copied")
        look()
        assert runner.replays.switch("copied").same == 3
        runner.log.append("payments", payments(1))
        look()
        assert [row["id"] for row in runner.log.read("copied").rows()] == [0, 1, 2, 0]


def test_a_trial_is_given_up_and_what_cannot_be_tried_is_refused(tmp_path: Path) -> None:
    with PlainRunner(shop(tmp_path), columns=COLUMNS, serve=False).ready() as runner:
        replays = runner.replays
        with pytest.raises(ArgumentInvalid, match="a query with a version to try"):
            replays.switch("spend")
        with pytest.raises(ArgumentInvalid, match="v2, the next version"):
            replays.begin("spend", version="v7")
        replays.begin("spend")
        with pytest.raises(ArgumentInvalid, match="version 2 is being tried already"):
            replays.begin("spend")
        runner.supervised["spend-v2"].look()
        assert "spend.v2" in runner.log.topics()
        assert replays.drop("spend").state == "dropped"
        assert "spend.v2" not in runner.log.topics()
        assert list(runner.supervised) == ["spend-v1"]
        assert replays.begin("spend").trial == 3  # the number of what was tried is not used again
        assert json.loads(json.dumps(to_json(replays.report("spend"))))["trial"] == 3
