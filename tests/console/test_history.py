"""What is measured stays true and cheap, however many topics there are."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.console import history as module
from headwater.console.apps import Apps
from headwater.console.history import History
from headwater.log import EmbeddedLog
from headwater.log.port import Description
from headwater.runtime.status import QueryStatus

SCHEMA = "customer string, amount long"


@pytest.fixture
def described(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each topic was described."""
    calls: Counter[str] = Counter()
    describe = log.describe

    def counted(topic: str) -> Description:
        calls[topic] += 1
        return describe(topic)

    monkeypatch.setattr(log, "describe", counted)
    return calls


@pytest.fixture
def many(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """More topics than are looked at each time, and files that are believed at once."""
    monkeypatch.setattr(module, "DENSE_TOPICS_MAX", 5)
    monkeypatch.setattr(module, "TICK_NS", 0)
    names = [f"topic.{number:02}" for number in range(20)]
    for name in names:
        log.create(name, SCHEMA, durability="memory" if name.endswith("1") else "os")
    return names


def test_of_many_topics_only_those_that_change_are_described_again(
    log: EmbeddedLog, many: list[str], described: Counter[str]
) -> None:
    history = History(log, Apps(log))
    history.look()
    assert sorted(history.topics) == many
    described.clear()
    log.append("topic.05", [{"customer": "ada", "amount": 1}])
    log.append("topic.11", [{"customer": "ada", "amount": 1}] * 3)
    history.look()
    assert {"topic.05", "topic.11"} <= described.keys()
    assert len(described) <= 3  # and one whose turn it was
    assert (history.topics["topic.05"].rows, history.topics["topic.11"].rows) == (1, 3)
    assert history.topics["topic.11"].rate > 0
    history.look()
    assert history.topics["topic.11"].rate == 0


@pytest.mark.usefixtures("many")
def test_all_topics_have_their_turn_and_those_that_are_gone_are_forgotten(
    log: EmbeddedLog, described: Counter[str]
) -> None:
    history = History(log, Apps(log))
    history.look()
    described.clear()
    log.delete("topic.03")
    log.create("topic.99", SCHEMA)
    for _ in range(module.TURNS):
        history.look()
    assert set(described) == set(log.topics()) == set(history.topics)


def test_a_topic_made_anew_is_seen_as_new(log: EmbeddedLog, many: list[str]) -> None:
    history = History(log, Apps(log))
    log.append(many[4], [{"customer": "ada", "amount": 1}] * 7)
    history.look()
    assert history.topics[many[4]].rows == 7
    log.delete(many[4])
    log.create(many[4], SCHEMA)
    history.look()
    assert history.topics[many[4]].rows == 0


def test_lines_of_what_is_gone_make_room_for_others(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 12)
    history = History(log, Apps(log))
    for number in range(10):
        name = f"brief.{number}"
        log.create(name, SCHEMA)
        log.commit_offsets(f"readers.{number}", name, {0: 0})
        history.look()
        assert len(history.series("topic", name, "rate")) == 1
        assert len(history.series("group", f"readers.{number}", "lag")) == 1
        log.groups.delete(f"readers.{number}")
        log.delete(name)
    history.look()
    assert history.series("topic", "brief.9", "rate") == []
    assert history.series("group", "readers.9", "lag") == []


def test_lines_of_a_query_outlast_a_restart_but_not_half_an_hour(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps, now = Apps(log), [1_000_000.0]
    monkeypatch.setattr("headwater.console.history.time.time", lambda: now[0])
    history = History(log, apps)
    monkeypatch.setattr(apps, "statuses", lambda: [QueryStatus(name="spend", kind="view", app="shop")])
    history.look()
    monkeypatch.setattr(apps, "statuses", list)
    now[0] += 60.0
    history.look()
    assert len(history.series("query", "spend", "rate")) == 1
    now[0] += module.POINTS_MAX * module.LOOK_SECONDS
    history.look()
    assert history.series("query", "spend", "rate") == []


def test_the_rates_of_all_topics_are_added_up_once_a_look(log: EmbeddedLog, many: list[str]) -> None:
    history = History(log, Apps(log))
    history.look()
    for name in (many[3], many[4]):
        log.append(name, [{"customer": "ada", "amount": 1}] * 5)
    history.look()
    assert [rate for _, rate in history.rates] == [0.0, history.topics[many[3]].rate + history.topics[many[4]].rate]
