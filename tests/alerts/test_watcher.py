"""Rules that are watched: what is refused, what fires, who is told, and what one rule's trouble leaves alone."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.alerts import Delivery, LogMeasures, Rule, Watcher
from headwater.alerts.delivery import RETRY
from headwater.alerts.measurements import SUBJECTS_MAX
from headwater.alerts.time_limit import Stoppable, TimeLimit
from headwater.apps.status import QueryStatus
from headwater.errors import ArgumentInvalid, HeadwaterError, NotFound, Overdue
from headwater.log import Lag, Log
from headwater.log.errors import NameInvalid
from headwater.views.errors import StatementInvalid
from tests.alerts.numbers import Heard, Numbers, opened, slow, watcher_of
from tests.console.other_app import running_elsewhere
from tests.http.test_views import keep


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with opened(tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": "no name"}, NameInvalid),
        ({"kind": "temperature"}, ArgumentInvalid),
        ({"threshold": float("nan")}, ArgumentInvalid),
        ({"threshold": -1}, ArgumentInvalid),
        ({"for_seconds": float("inf")}, ArgumentInvalid),
        ({"severity": "bad"}, ArgumentInvalid),
        ({"webhooks": ["ftp://hook"]}, ArgumentInvalid),
        ({"emails": ["nobody"]}, ArgumentInvalid),
        ({"emails": ["a@b\nBcc: c@d"]}, ArgumentInvalid),
        ({"query": None}, ArgumentInvalid),
        ({"query": "spend", "group": "billing"}, ArgumentInvalid),
        ({"unit": "seconds"}, ArgumentInvalid),
        ({"sql": "SELECT 1"}, ArgumentInvalid),
        ({"colour": "red"}, ArgumentInvalid),
        ({"kind": "view", "query": None}, ArgumentInvalid),
        ({"kind": "view", "query": None, "sql": "SELECT 1", "key": ["card"], "threshold": 3}, ArgumentInvalid),
        ({"kind": "query_down", "threshold": 3}, ArgumentInvalid),
        ({"kind": "dead_letters", "query": None, "topic": "orders", "unit": "seconds"}, ArgumentInvalid),
    ],
)
def test_a_rule_that_means_nothing_is_refused(given: dict[str, Any], error: type[HeadwaterError]) -> None:
    with pytest.raises(error):
        slow(**given)


def test_a_rule_survives_being_written_down() -> None:
    rule = slow(key=(), emails=["ada@example.org"], note="call Ada", snoozed_until_us=7, for_seconds=3)
    assert Rule.from_json(rule.as_json()) == rule


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"kind": "lag", "query": "spent"}, NotFound),
        ({"kind": "query_down", "query": "spent"}, NotFound),
        ({"kind": "watermark_delay", "query": "spent"}, NotFound),
        ({"kind": "lag", "group": "biling"}, NotFound),
        ({"kind": "dead_letters", "topic": "nothing"}, NotFound),
        ({"kind": "view", "sql": "SELECT card FROM spend", "key": ["shop"]}, ArgumentInvalid),
    ],
)
def test_a_rule_on_what_is_not_there_is_refused(log: Log, given: dict[str, Any], error: type[HeadwaterError]) -> None:
    watcher = watcher_of(log, Numbers(lags={"spend": 0}))
    with pytest.raises(error):
        watcher.put(Rule.from_dict({"name": "wrong", **given}))
    assert watcher.rules() == []


def test_a_pattern_watches_each_that_it_matches(log: Log) -> None:
    numbers = Numbers(lags={"spend": 100, "spend_by_shop": 0, "other": 100})
    watcher = watcher_of(log, numbers)
    watcher.put(slow(query="spend*"))
    assert [(change.subject, change.state) for change in watcher.look()] == [("spend", "firing")]
    [summary] = watcher.states()
    assert (summary.state, [(one.subject, one.state, one.value) for one in summary.subjects]) == (
        "firing",
        [("spend", "firing", 100.0), ("spend_by_shop", "ok", 0.0)],
    )


def test_the_lag_of_a_group_adds_up_over_partitions_and_waits_as_long_as_the_slowest(log: Log) -> None:
    def lag(topic: str, partition: int, rows: int, seconds: float) -> Lag:
        return Lag(
            group="billing", topic=topic, partition=partition, committed=0, offset_start=0, offset_next=rows,
            rows=rows, seconds=seconds,
        )  # fmt: skip

    numbers = Numbers(groups=[lag("orders", 0, 6, 50.0), lag("orders", 1, 5, 70.0), lag("cards", 0, 10, 0.0)])
    watcher = watcher_of(log, numbers)
    watcher.put(Rule(name="rows", kind="lag", group="billing", threshold=10))
    watcher.put(Rule(name="seconds", kind="lag", group="billing", topic="orders", threshold=60, unit="seconds"))
    assert [(change.rule, change.subject, change.message) for change in watcher.look()] == [
        ("rows", "billing/orders", "Group 'billing' is 11 rows behind in topic 'orders', more than 10 rows"),
        ("seconds", "billing/orders", "Group 'billing' is 1.2 min behind in topic 'orders', more than 1 min"),
    ]


def test_queries_are_watched_for_their_watermark_and_for_being_down(log: Log) -> None:
    numbers = Numbers()
    mark = numbers.now_us() - 90_000_000
    numbers.statuses = [
        QueryStatus(name="spend", kind="view", state="failed", error="division by zero", watermark_us=mark),
        QueryStatus(name="cards", kind="view", state="caught up"),
    ]
    watcher = watcher_of(log, numbers)
    watcher.put(Rule(name="down", kind="query_down", query="*", severity="critical"))
    watcher.put(Rule(name="late", kind="watermark_delay", query="*", threshold=60))
    assert [(change.rule, change.subject, change.message, change.severity) for change in watcher.look()] == [
        ("down", "spend", "Query 'spend' is failed: division by zero", "critical"),
        ("late", "spend", "The watermark of query 'spend' is 1.5 min behind the clock, more than 1 min", "warning"),
    ]
    numbers.statuses = [QueryStatus(name="spend", kind="view", state="running", watermark_us=numbers.now_us())]
    assert [(change.rule, change.state) for change in watcher.look()] == [("down", "resolved"), ("late", "resolved")]


def test_dead_letters_are_counted_per_minute(log: Log) -> None:
    numbers = Numbers(letters={"orders": 0.0})
    watcher = watcher_of(log, numbers)
    watcher.put(Rule(name="bad", kind="dead_letters", topic="orders"))
    assert watcher.look() == []
    numbers.letters = {"orders": 1.0}
    assert [change.message for change in watcher.look()] == ["Topic 'orders' had 1 dead letter in the last minute"]


def test_a_statement_fires_for_more_rows_than_are_fine_or_for_each_of_its_keys(log: Log) -> None:
    numbers = Numbers(table=pa.table({"card": [7, 9], "value": [600.0, 900.0]}))
    watcher = watcher_of(log, numbers)
    watcher.put(Rule(name="many", kind="view", sql="SELECT * FROM spend", threshold=1))
    watcher.put(Rule(name="each", kind="view", sql="SELECT * FROM spend", key=("card",)))
    assert [(change.rule, change.subject, change.value, change.message) for change in watcher.look()] == [
        ("each", "card=7", 600.0, "card 7, value 600.0"),
        ("each", "card=9", 900.0, "card 9, value 900.0"),
        ("many", "rows", 2.0, "The statement finds 2 rows, such as card 7, value 600.0"),
    ]
    numbers.table = pa.table({"card": [9], "value": [901.0]})
    assert [(one.rule, one.subject, one.state) for one in watcher.look()] == [
        ("each", "card=7", "resolved"),
        ("many", "rows", "resolved"),
    ]


def test_a_statement_with_too_many_keys_says_so(log: Log) -> None:
    numbers = Numbers()
    watcher = watcher_of(log, numbers)
    watcher.put(Rule(name="each", kind="view", sql="SELECT card FROM spend", key=("card",)))
    numbers.table = pa.table({"card": range(SUBJECTS_MAX + 5)})
    [change] = watcher.look()
    assert (change.state, "more than 1,000 keys" in change.message) == ("unknown", True)


def test_a_rule_that_fails_shows_its_error_and_disturbs_no_other(log: Log) -> None:
    numbers = Numbers(lags={"spend": 100}, table=pa.table({"card": [7]}))
    watcher = watcher_of(log, numbers)
    watcher.put(Rule(name="cards", kind="view", sql="SELECT card FROM cards", key=("card",)))
    watcher.put(slow())
    assert {change.rule for change in watcher.look()} == {"cards", "slow"}
    for trouble in (
        NotFound(kind="view", name="cards"),
        StatementInvalid(statement="…", why="?"),
        RuntimeError("worse"),
    ):
        numbers.table, numbers.lags = trouble, {"spend": 0}
        watcher.look()
        cards, lag = watcher.states()
        assert (cards.state, lag.state) == ("firing", "resolved")  # what is not known has not changed
        assert cards.error is not None
        assert str(trouble) in cards.error
    numbers.table = pa.table({"card": [7]})
    assert [(change.subject, change.state) for change in watcher.look()] == [("", "ok")]
    assert [one.error for one in watcher.states()] == [None, None]


def test_a_paused_rule_ends_without_a_notification(log: Log) -> None:
    numbers, heard = Numbers(lags={"spend": 100}), Heard()
    watcher = watcher_of(log, numbers, heard)
    watcher.put(slow())
    watcher.look()
    watcher.deliver()
    watcher.pause("slow")
    [change] = watcher.look()
    assert (change.state, change.message, change.is_told) == ("resolved", "The rule is paused.", False)
    assert [one.state for one in watcher.states()] == ["paused"]
    watcher.pause("slow", paused=False)
    assert [change.state for change in watcher.look()] == ["firing"]
    watcher.deliver()
    assert [state for _, _, state in heard.told] == ["firing", "firing"]


def test_a_removed_rule_is_over(log: Log) -> None:
    watcher = watcher_of(log, Numbers(lags={"spend": 100}))
    watcher.put(slow())
    watcher.look()
    watcher.remove("slow")
    assert [(change.state, change.message) for change in watcher.look()] == [("resolved", "The rule was removed.")]
    assert watcher.look() == []
    with pytest.raises(NotFound):
        watcher.remove("slow")


def test_a_snoozed_rule_tells_when_the_snooze_is_over_and_only_if_it_still_fires(log: Log) -> None:
    numbers, heard = Numbers(lags={"spend": 0}), Heard()
    watcher = watcher_of(log, numbers, heard)
    watcher.put(slow())
    watcher.snooze("slow", until_us=numbers.now_us() + 60_000_000)

    def looked(rows: int, seconds: float) -> list[str]:
        numbers.lags = {"spend": rows}
        numbers.clock.advance(seconds=seconds)
        found: list[str] = [change.state for change in watcher.look()]
        watcher.deliver()
        return found

    assert looked(100, 1) + looked(0, 1) + looked(100, 1) == ["firing", "resolved", "firing"]
    assert heard.told == []
    assert looked(100, 60) == ["reminder"]
    assert looked(100, 60) == []
    assert looked(0, 1) == ["resolved"]
    assert [state for _, _, state in heard.told] == ["reminder", "resolved"]


def test_an_unreachable_receiver_gets_notifications_later_in_order_and_delays_no_other(log: Log) -> None:
    numbers, heard = Numbers(lags={"spend": 100}), Heard(away={"http://away"}, wrong={"http://wrong"})
    watcher = watcher_of(log, numbers, heard)
    watcher.put(slow(webhooks=["http://away", "http://wrong"], emails=["ada@example.org"]))
    watcher.look()
    watcher.deliver()
    numbers.lags = {"spend": 0}
    watcher.look()
    watcher.deliver()
    assert heard.told == [("ada@example.org", "slow", "firing"), ("ada@example.org", "slow", "resolved")]
    assert heard.attempts.count("http://away") == 1  # its second turn has not come
    firing = watcher.history(states=["firing"])[0]
    shown = {one.target: (one.state, one.error) for one in watcher.store.outbox.of([firing.id])[firing.id]}
    assert shown == {
        "http://away": ("waiting", "no answer"),
        "http://wrong": ("failed", "the receiver answered 410"),
        "ada@example.org": ("sent", None),
    }
    heard.away.clear()
    again = watcher_of(log, numbers, heard)  # another process goes on with it
    again.look()
    for _ in range(2):
        numbers.clock.advance(seconds=2)
        again.deliver()
    assert [(target, state) for target, _, state in heard.told if target == "http://away"] == [
        ("http://away", "firing"),
        ("http://away", "resolved"),
    ]
    assert again.deliver() == 0


def test_retries_back_off_and_end_after_a_day(log: Log) -> None:
    numbers, heard = Numbers(lags={"spend": 100}), Heard(away={"http://hook"})
    watcher = watcher_of(log, numbers, heard)
    watcher.put(slow())
    watcher.look()
    waits = []
    for _ in range(400):
        watcher.deliver()
        if not watcher.store.outbox.open:
            break
        [waiting] = watcher.store.outbox.open.values()
        waits.append(round((waiting.next_us - numbers.now_us()) / 1e6))
        numbers.clock.advance(seconds=waits[-1])
    assert waits[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    [over] = watcher.store.outbox.finished.values()
    assert (over.state, over.attempts) == ("failed", len(waits) + 1)
    assert 86_400 <= sum(waits) < 86_400 + 301


def test_a_test_tells_everybody_at_once_and_changes_nothing(log: Log) -> None:
    numbers, heard = Numbers(lags={"spend": 0}), Heard(away={"http://away"})
    watcher = watcher_of(log, numbers, heard)
    watcher.put(slow(webhooks=["http://hook", "http://away"]))
    listener = watcher.listen()
    assert [(one.target, one.state) for one in watcher.test("slow")] == [
        ("http://hook", "sent"),
        ("http://away", "failed"),
    ]
    assert [change.state for change in listener.poll()] == ["test"]
    assert watcher.deliver() == 0
    assert [one.state for one in watcher.states()] == ["ok"]


def test_browsers_hear_of_what_people_are_told(log: Log) -> None:
    numbers = Numbers(lags={"spend": 100, "cards": 100})
    watcher = watcher_of(log, numbers)
    listener = watcher.listen()
    assert listener.poll() == []
    watcher.put(slow(for_seconds=5))
    watcher.put(slow(name="quiet", query="cards", browser=False))
    watcher.look()
    numbers.clock.advance(seconds=5)
    watcher.look()
    elsewhere = watcher_of(log, numbers).listen(after=0)
    for one in (listener, elsewhere):
        assert [(change.rule, change.state) for change in one.wait(seconds=10)] == [("slow", "firing")]
        assert one.poll() == []


def test_a_rule_that_another_version_has_written_is_shown_and_can_be_replaced(log: Log) -> None:
    watcher = watcher_of(log, Numbers(lags={"spend": 0}))
    watcher.put(slow())
    log.append("__alerts", [{"name": "newer", "rule": '{"name": "newer", "kind": "weather"}', "at": 0}])
    watcher.look()
    assert [(one.name, one.state) for one in watcher.states()] == [("slow", "ok"), ("newer", "unknown")]
    watcher.remove("newer")
    assert [one.name for one in watcher.states()] == ["slow"]


def test_history_is_read_from_its_end_with_filters(log: Log) -> None:
    numbers = Numbers(lags={"spend": 0})
    watcher = watcher_of(log, numbers)
    watcher.put(slow())
    watcher.put(slow(name="other"))
    began_us = numbers.now_us()
    for rows in (100, 0) * 6:
        numbers.clock.advance(seconds=1)
        numbers.lags = {"spend": rows}
        watcher.look()
    assert len(watcher.history(limit=1_000)) == 24
    assert [change.state for change in watcher.history(rule="slow", limit=3)] == ["resolved", "firing", "resolved"]
    assert len(watcher.history(rule="slow", states=["firing"])) == 6
    assert len(watcher.history(since_us=began_us + 11_000_000)) == 4


def test_a_statement_that_never_ends_holds_up_no_other_rule(log: Log) -> None:
    numbers, release, begun = Numbers(lags={"spend": 100}), threading.Event(), []

    class Slow(Numbers):
        def run_sql(self, statement: str, *, rows_max: int, stoppable: Stoppable | None = None) -> pa.Table:
            if statement == "SELECT slowly":
                begun.append(statement)
                assert release.wait(60)
            return super().run_sql(statement, rows_max=rows_max, stoppable=stoppable)

    measures = Slow(clock=numbers.clock, lags=numbers.lags, table=pa.table({"card": [7]}))
    watcher = Watcher(log, measures, sender=Heard(), statement_seconds_max=0.01)
    slowly = Rule(name="a-slow-one", kind="view", sql="SELECT slowly")
    with pytest.raises(Overdue):
        watcher.put(slowly)
    watcher.store.put(slowly)
    watcher.put(slow())
    assert [(change.rule, change.state) for change in watcher.look()] == [("a-slow-one", "unknown"), ("slow", "firing")]
    assert watcher.look() == []
    assert len(begun) == 1  # it is not begun again while it runs
    release.set()
    found: list[str] = []
    while not found:
        found = [change.state for change in watcher.look() if change.subject]
    assert found == ["firing"]


def test_a_statement_whose_time_is_over_is_ended_and_not_asked_again_at_once(log: Log) -> None:
    ended, begun = threading.Event(), []

    class Endless(Numbers):
        def run_sql(self, statement: str, *, rows_max: int, stoppable: Stoppable | None = None) -> pa.Table:
            begun.append((statement, rows_max))
            assert stoppable is not None
            stoppable(ended.set)
            assert ended.wait(60)
            raise StatementInvalid(statement=statement, why="it was interrupted")

    watcher = Watcher(log, Endless(), sender=Heard(), statement_seconds_max=0.01)
    with pytest.raises(Overdue):
        watcher.put(Rule(name="endless", kind="view", sql="SELECT endlessly"))
    assert ended.wait(60)
    for name in ("endless", "another"):  # the same statement in two rules is one statement
        watcher.store.put(Rule(name=name, kind="view", sql="SELECT endlessly"))
    for _ in range(3):
        watcher.look()
    assert [one.state for one in watcher.states()] == ["unknown", "unknown"]
    assert len(begun) == 1


def test_a_real_statement_that_takes_too_long_ends(log: Log) -> None:
    endless = "SELECT count(*) FROM range(1000000000000) AS t(i) WHERE i % 7 = 3"
    watcher = Watcher(log, sender=Heard(), statement_seconds_max=0.2)
    with pytest.raises(Overdue):
        watcher.put(Rule(name="endless", kind="view", sql=endless))
    for thread in threading.enumerate():
        if thread.name == "headwater-alert-statement":
            thread.join(60)
            assert not thread.is_alive()


def test_a_real_statement_over_the_views_of_one_app_that_takes_too_long_ends(log: Log) -> None:
    log.create("cards", "card int64", key="card", compact=True)
    log.append("cards", [{"card": 1}, {"card": 2}])
    keep(log, "fraud", cards="cards")
    endless = "SELECT count(*) FROM " + ", ".join(f"cards c{number}" for number in range(40))
    watcher = Watcher(log, sender=Heard(), statement_seconds_max=0.2)
    with pytest.raises(Overdue):
        watcher.put(Rule(name="endless", kind="view", sql=endless))
    for thread in threading.enumerate():
        if thread.name == "headwater-alert-statement":
            thread.join(30)
            assert not thread.is_alive()


def test_work_that_was_overdue_is_begun_again_after_a_pause() -> None:
    now, ends = [0.0], list[threading.Event]()

    def work(stoppable: Stoppable) -> int:
        ends.append(ended := threading.Event())
        stoppable(ended.set)
        assert ended.wait(60)
        raise RuntimeError("it was interrupted")

    limit = TimeLimit[int](now=lambda: now[0])

    def asked(work: Callable[[Stoppable], int] = work, *, seconds: float = 0.0) -> int:
        return limit.run("a", work, seconds=seconds, pause_seconds=60.0)

    with pytest.raises(TimeoutError):
        asked()
    assert ends[0].wait(60)
    now[0] = 59.0
    with pytest.raises(TimeoutError):
        asked()
    assert len(ends) == 1
    now[0] = 61.0
    until(lambda: asked(lambda _: 7, seconds=60.0) == 7)  # the first may take a moment to end
    assert len(ends) == 1


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition; work that is still overdue does not meet it."""
    while True:
        with contextlib.suppress(TimeoutError):
            if holds():
                return


def test_a_new_preview_stops_the_earlier_one_of_the_same_user(log: Log) -> None:
    begun, ended = list[str](), threading.Event()

    class Endless(Numbers):
        def run_sql(self, statement: str, *, rows_max: int, stoppable: Stoppable | None = None) -> pa.Table:
            begun.append(statement)
            assert stoppable is not None
            if statement == "SELECT endlessly":
                stoppable(ended.set)
                first_runs.set()
                assert ended.wait(60)
                raise StatementInvalid(statement=statement, why="it was interrupted")
            return pa.table({"card": [1]}).slice(0, rows_max)

    first_runs = threading.Event()
    watcher = Watcher(log, Endless(), sender=Heard(), statement_seconds_max=60.0)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(watcher.preview, Rule(name="a", kind="view", sql="SELECT endlessly"), asker="form")
        assert first_runs.wait(60)
        found = watcher.preview(Rule(name="a", kind="view", sql="SELECT endlessly, more"), asker="form")
        with pytest.raises(Overdue):
            first.result(60)
    assert [one.value for one in found] == [1.0]
    assert begun == ["SELECT endlessly", "SELECT endlessly, more"]


def test_queries_of_the_same_name_in_two_apps_are_both_watched(log: Log) -> None:
    def spend(app: str, *, version: int = 1, state: Any = "running") -> QueryStatus:
        return QueryStatus(name="spend", kind="view", app=app, version=version, state=state)

    numbers = Numbers(statuses=[spend("a", state="failed"), spend("b")])
    watcher = watcher_of(log, numbers)
    watcher.put(Rule(name="down", kind="query_down", query="spend"))
    assert [(one.subject, one.state) for one in watcher.look()] == [("a/spend", "firing")]
    numbers.statuses = [spend("a", state="failed"), spend("b"), spend("b", version=2, state="failed")]
    assert [(one.subject, one.state) for one in watcher.look()] == [("b/spend v2", "firing")]
    assert {one.subject for one in watcher.preview(Rule(name="x", kind="query_down", query="*"))} == {
        "a/spend",
        "b/spend v1",
        "b/spend v2",
    }


def test_an_app_of_a_newer_version_is_watched_as_far_as_it_is_known(log: Log) -> None:
    spend = QueryStatus(name="spend", kind="view", app="newer", inputs=("payments",), state="failed")
    with running_elsewhere(log, "newer") as newer:
        newer.queries = [{**dataclasses.asdict(spend), "mood": "good"}]
        assert LogMeasures(log).query_statuses() == [spend]


@pytest.mark.parametrize("asked", [31_536_000.0, float("inf"), float("nan")])
def test_a_receiver_cannot_ask_for_silence(asked: float) -> None:
    first = Delivery(id="1", at_us=0, change="c", rule="r", channel="webhook", target="http://hook")
    after = first.postponed("busy", now_us=0, after_seconds=asked)
    assert (after.state, after.next_us <= RETRY.pause_seconds_max * 1e6) == ("waiting", True)


def test_a_sender_that_fails_leaves_its_receiver_free(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Heard):
        def send(self, delivery: Delivery, *, now_us: int) -> Delivery:
            if not self.attempts:
                self.attempts.append(delivery.target)
                raise OverflowError("cannot convert float infinity to integer")
            return super().send(delivery, now_us=now_us)

    numbers, heard = Numbers(lags={"spend": 100}), Broken()
    watcher = watcher_of(log, numbers, heard)
    watcher.put(slow())
    watcher.look()
    now_us = numbers.now_us()
    [delivery] = watcher.store.outbox.begin(now_us, count_max=1)
    watcher._attempt(delivery)
    assert "float infinity" in caplog.text
    assert watcher.store.outbox.begin(now_us, count_max=1) == [delivery]
