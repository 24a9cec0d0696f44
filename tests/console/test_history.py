"""What is measured stays true and cheap, however many topics there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from headwater.apps.status import QueryStatus
from headwater.console import history as measured
from headwater.console import history as module
from headwater.console.history import History
from headwater.console.shell import liveness_text
from headwater.log import Log
from headwater.log.port import Description
from headwater.services.callers import LOCAL, Caller, Scope
from headwater.services.host import Host
from headwater.services.queries import Queries, QueryList
from headwater.services.settings import Settings
from headwater.services.syncs import Syncs
from headwater.sync import SyncConfig, SyncStore
from tests.console.other_app import running_elsewhere

SCHEMA = "customer string, amount long"

SPEND = QueryStatus(name="spend", kind="view", state="running", inputs=("payments",))


def queries_of(log: Log) -> Queries:
    return Queries(Host(log=log, settings=Settings()))


@pytest.fixture
def described(log: Log, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each topic was described."""
    calls: Counter[str] = Counter()
    describe = log.describe

    def counted(topic: str) -> Description:
        calls[topic] += 1
        return describe(topic)

    monkeypatch.setattr(log, "describe", counted)
    return calls


@pytest.fixture
def many(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """More topics than are looked at each time, and files that are believed at once."""
    monkeypatch.setattr(module, "DENSE_TOPICS_MAX", 5)
    monkeypatch.setattr(module, "TICK_NS", 0)
    names = [f"topic.{number:02}" for number in range(20)]
    for name in names:
        log.create(name, SCHEMA, durability="memory" if name.endswith("1") else "os")
    return names


def test_of_many_topics_only_those_that_change_are_described_again(
    log: Log, many: list[str], described: Counter[str]
) -> None:
    history = History(log, queries_of(log))
    history.measure()
    assert sorted(history.topics) == many
    described.clear()
    log.append("topic.05", [{"customer": "ada", "amount": 1}])
    log.append("topic.11", [{"customer": "ada", "amount": 1}] * 3)
    history.measure()
    assert {"topic.05", "topic.11"} <= described.keys()
    assert len(described) <= 3  # and one whose turn it was
    assert (history.topics["topic.05"].rows, history.topics["topic.11"].rows) == (1, 3)
    assert history.topics["topic.11"].rate > 0
    history.measure()
    assert history.topics["topic.11"].rate == 0


@pytest.mark.usefixtures("many")
def test_all_topics_have_their_turn_and_those_that_are_gone_are_forgotten(log: Log, described: Counter[str]) -> None:
    history = History(log, queries_of(log))
    history.measure()
    described.clear()
    log.delete("topic.03")
    log.create("topic.99", SCHEMA)
    for _ in range(module.ROUNDS):
        history.measure()
    assert set(described) == set(log.topics()) == set(history.topics)


def test_a_topic_created_again_is_measured_as_new(log: Log, many: list[str]) -> None:
    history = History(log, queries_of(log))
    log.append(many[4], [{"customer": "ada", "amount": 1}] * 7)
    history.measure()
    assert history.topics[many[4]].rows == 7
    log.delete(many[4])
    log.create(many[4], SCHEMA)
    history.measure()
    assert history.topics[many[4]].rows == 0


def test_lines_of_what_is_gone_make_room_for_others(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 12)
    history = History(log, queries_of(log))
    for number in range(10):
        name = f"brief.{number}"
        log.create(name, SCHEMA)
        log.commit_offsets(f"readers.{number}", name, {0: 0})
        history.measure()
        assert len(history.series("topic", name, "rows")) == 1
        assert len(history.series("group", f"readers.{number}", "lag")) == 1
        log.groups.delete(f"readers.{number}")
        log.delete(name)
    history.measure()
    assert history.series("topic", "brief.9", "rows") == []
    assert history.series("group", "readers.9", "lag") == []


def test_lines_of_a_query_outlast_a_restart_but_not_half_an_hour(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, now = queries_of(log), [1_000_000.0]
    monkeypatch.setattr("headwater.console.history.time.time", lambda: now[0])
    history = History(log, queries)
    spend = QueryStatus(name="spend", kind="view", app="shop")
    monkeypatch.setattr(queries, "statuses", lambda: QueryList(queries=[spend]))
    history.measure()
    monkeypatch.setattr(queries, "statuses", QueryList)
    now[0] += 60.0
    history.measure()
    assert len(history.series("query", "spend", "rate")) == 1
    now[0] += module.POINTS_MAX * module.INTERVAL_SECONDS
    history.measure()
    assert history.series("query", "spend", "rate") == []


def test_the_rates_of_all_topics_are_added_up_once_a_look(log: Log, many: list[str]) -> None:
    history = History(log, queries_of(log))
    history.measure()
    for name in (many[3], many[4]):
        log.append(name, [{"customer": "ada", "amount": 1}] * 5)
    history.measure()
    assert [rate for _, rate in history.rates] == [history.topics[many[3]].rate + history.topics[many[4]].rate]


def test_an_app_that_hangs_delays_no_other_and_is_named(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.services.queries.ASK_SECONDS_MAX", 2.0)
    history = History(log, queries_of(log))
    with (
        running_elsewhere(log, "hung", replace(SPEND, app="hung")) as hung,
        running_elsewhere(log, "well", replace(SPEND, app="well")),
    ):
        hung.awake.clear()
        history.measure()
        assert [status.app for status in history.statuses] == ["well"]
        assert history.silent == ["hung"]
        assert liveness_text(history, LOCAL) == "hung does not answer"
        narrow = Caller(name="narrow", scopes=(Scope.parse("read:orders"),))
        assert liveness_text(history, narrow) == "an app does not answer"
        hung.awake.set()
        history.measure()
        assert [status.app for status in history.statuses] == ["hung", "well"]
        assert liveness_text(history, LOCAL) == "live"
    history.measure()
    assert not history.statuses
    assert not history.silent


def test_numbers_that_are_not_measured_any_more_are_called_old(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(log, queries_of(log))
    history.measure()
    assert liveness_text(history, LOCAL) == "live"

    def fails() -> None:
        raise TypeError("an unexpected error")

    monkeypatch.setattr(history, "_measure_groups", fails)
    monkeypatch.setattr(measured, "STALE_SECONDS", 0.0)
    monkeypatch.setattr(measured, "INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(measured, "SHARE_MAX", float("inf"))
    log.create("orders", "id long")
    history.measure()
    assert list(history.topics) == ["orders"]  # the rest is looked at all the same
    assert "an unexpected error" in caplog.text
    assert liveness_text(history, LOCAL).endswith(" old")


def test_measuring_now_asks_a_target_that_answers_slowly_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "SHARE_MAX", 1e-9)  # every answer is slow
    host = Host(log=log, settings=Settings())
    history = History(log, queries_of(log), syncs=Syncs(host))
    history.measure()
    assert not history.syncs
    log.create("orders", "id long", key="id", compact=True)
    SyncStore(log).create(SyncConfig(name="copy", url=f"sqlite:///{log.address}/copy.db", topics=("orders",)))
    history._measure_round()
    assert not history.syncs
    history.measure()
    assert [sync.name for sync in history.syncs] == ["copy"]
