"""The apps of a log: each is asked and told what is its own, and one that hangs or speaks strangely holds up nobody."""

from __future__ import annotations

import dataclasses

import pytest

from headwater.console import apps as module
from headwater.console import history as measured
from headwater.console.apps import Apps
from headwater.console.history import History
from headwater.console.shell import liveness_told
from headwater.errors import QueryNotFound
from headwater.log import EmbeddedLog
from headwater.runtime import viewing
from headwater.runtime.status import QueryStatus
from headwater.server.tokens import LOCAL, Caller, Scope
from tests.console.elsewhere import running_elsewhere
from tests.console.staged import APP, Stage, runner_of

SPEND = QueryStatus(name="spend", kind="view", state="running", app=APP, inputs=("payments",))


def staged(log: EmbeddedLog) -> Stage:
    stage = Stage(log)
    stage.statuses = [SPEND]
    stage.show()
    return stage


def test_a_query_is_told_apart_from_that_of_the_same_name_in_another_app(log: EmbeddedLog) -> None:
    stage, apps = staged(log), Apps(log, runner_of(log))
    with (
        running_elsewhere(log, "a", dataclasses.replace(SPEND, app="a")) as first,
        running_elsewhere(log, "b", dataclasses.replace(SPEND, app="b")) as second,
    ):
        apps.stop("spend", app="b")
        apps.restart("spend", app="a")
        assert apps.explain("spend", app="b") == "elsewhere"
        trouble = apps.trouble("spend", app="b")
        assert trouble is not None
        assert trouble.line == "elsewhere"
        assert (stage.asked(), first.asked) == ([], ["POST /queries/spend/restart"])
        assert second.asked == [
            "POST /queries/spend/stop",
            "GET /queries/spend/explain",
            "GET /queries/spend/trouble",
        ]
        apps.stop("spend", app=APP)
        assert stage.asked() == ["stop spend"]
        with pytest.raises(QueryNotFound):
            apps.stop("spend", app="c")


def test_an_app_that_hangs_holds_up_nobody_and_is_named(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_SECONDS_MAX", 2.0)
    apps = Apps(log)
    history = History(log, apps)
    with (
        running_elsewhere(log, "hung", dataclasses.replace(SPEND, app="hung")) as hung,
        running_elsewhere(log, "well", dataclasses.replace(SPEND, app="well")),
    ):
        hung.awake.clear()
        history.look()
        assert [one.app for one in history.statuses] == ["well"]
        assert apps.silent == ("hung",)
        assert liveness_told(history, apps, LOCAL) == "hung does not answer"
        narrow = Caller(name="narrow", scopes=(Scope.parse("read:orders"),))
        assert liveness_told(history, apps, narrow) == "an app does not answer"
        hung.awake.set()
        history.look()
        assert [one.app for one in history.statuses] == ["hung", "well"]
        assert liveness_told(history, apps, LOCAL) == "live"
    history.look()
    assert not history.statuses
    assert not apps.silent


def test_the_views_of_an_app_that_hangs_are_not_waited_for(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "ASK_SECONDS_MAX", 0.2)
    with running_elsewhere(log, "hung") as hung:
        hung.awake.clear()
        assert Apps(log).views() == []


def test_an_app_of_another_version_is_shown_as_far_as_it_is_known(
    log: EmbeddedLog, caplog: pytest.LogCaptureFixture
) -> None:
    apps = Apps(log)
    with running_elsewhere(log, "newer") as newer, running_elsewhere(log, "strange") as strange:
        newer.queries = [{**SPEND.as_dict(), "mood": "good"}]
        strange.queries = [{"what": "is this"}]
        assert [one.name for one in apps.statuses()] == ["spend"]
        assert apps.silent == ("strange",)
    assert "strange" in caplog.text


def test_numbers_that_are_not_measured_any_more_are_called_old(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    apps = Apps(log)
    history = History(log, apps)
    history.look()
    assert liveness_told(history, apps, LOCAL) == "live"

    def fails() -> None:
        raise TypeError("nobody knows why")

    monkeypatch.setattr(history, "_look_at_groups", fails)
    monkeypatch.setattr(measured, "STALE_SECONDS", 0.0)
    monkeypatch.setattr(measured, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(measured, "SHARE_MAX", float("inf"))
    log.create("orders", "id long")
    history.look()
    assert list(history.topics) == ["orders"]  # the rest is looked at all the same
    assert "nobody knows why" in caplog.text
    assert liveness_told(history, apps, LOCAL).endswith(" old")
