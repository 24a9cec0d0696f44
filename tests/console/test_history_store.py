"""Rates and lag survive a restart of the console: kept in an internal topic, bounded, and never where nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, dictionaries, floats, lists, sampled_from, tuples

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.console import history_store
from headwater.console.history import History
from headwater.console.history_store import HISTORY_TOPIC, HistoryStore, Key
from headwater.log import Log
from headwater.log import open as open_log
from tests.console.test_history import SCHEMA, queries_of

LAG: Key = ("group", "billing", "lag")
RATE: Key = ("topic", "orders", "rate")
SPEED: Key = ("query", "spend", "rate")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    with open_log(tmp_path / "log", clock=clock, config=Config(maintenance="manual")) as log:
        yield log


def test_rates_and_lag_survive_a_restart(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_store, "ROUND_SECONDS", 0.0)
    log.create("orders", SCHEMA)
    log.commit_offsets("billing", "orders", {0: 0})
    store = HistoryStore(log)
    before = History(log, queries_of(log), store=store)
    for _ in range(3):
        log.append("orders", [{"customer": "ada", "amount": 1}] * 5)
        before.measure()
    store.close()
    log.create("later", SCHEMA)
    after = History(log, queries_of(log), store=HistoryStore(log))
    after.restore()
    for kind, name, measure in (RATE, LAG):
        was = before.series(kind, name, measure)  # type: ignore[arg-type]  # a literal
        assert len(was) in (2, 3)
        assert [value for _, value in after.series(kind, name, measure)] == [value for _, value in was]  # type: ignore[arg-type]
    assert [value for _, value in after.rates] == [value for _, value in before.rates]
    after.measure()
    assert [value for _, value in after.series("group", "billing", "lag")] == [5.0, 10.0, 15.0, 15.0]
    # No rate is known until the second measurement: the line has no zero where the process restarted.
    assert len(after.series("topic", "orders", "rate")) == 2


def test_a_console_that_is_started_again_continues_the_lines_of_the_one_before(log: Log) -> None:
    log.create("orders", SCHEMA)
    log.commit_offsets("billing", "orders", {0: 0})
    values = []
    for rows in (3, 4):
        log.append("orders", [{"customer": "ada", "amount": 1}] * rows)
        history = History(log, queries_of(log), store=HistoryStore(log))
        history.start()
        history.wait(seconds=60)
        history.stop()
        values = [value for _, value in history.series("group", "billing", "lag")]
    assert (values[0], values[-1]) == (3.0, 7.0)


def test_what_was_deleted_while_no_console_ran_is_not_restored(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_store, "ROUND_SECONDS", 0.0)
    log.create("orders", SCHEMA)
    log.commit_offsets("billing", "orders", {0: 0})
    store = HistoryStore(log)
    History(log, queries_of(log), store=store).measure()
    store.close()
    log.groups.delete("billing")
    log.delete("orders")
    after = History(log, queries_of(log), store=HistoryStore(log))
    after.restore()
    assert after.series("topic", "orders", "rows")
    after.measure()
    assert after.series("topic", "orders", "rows") == []
    assert after.series("group", "billing", "lag") == []


def test_there_is_no_point_where_nothing_was_measured(timed: Log, clock: ManualClock) -> None:
    start = clock.now_us() / 1e6
    first = HistoryStore(timed)
    for second in range(0, 60, 10):
        clock.advance(seconds=10)
        # The query stops after half a minute: nothing is known of it then.
        series = {LAG: [(start + second, 4.0)], SPEED: [(start + min(second, 30), 2.0)]}
        first.save(series, now=start + second)
    first.close()
    clock.advance(seconds=540)
    HistoryStore(timed).save({LAG: [(start + 600, 4.0)]}, now=start + 600)
    restored = HistoryStore(timed).load(since=start)
    assert [at - start for at, _ in restored[LAG]] == [0, 10, 20, 30, 40, 50, 600]
    assert [at - start for at, _ in restored[SPEED]] == [0, 10, 20, 30]


def test_an_idle_log_grows_by_one_row_a_round_and_only_one_process_writes(timed: Log, clock: ManualClock) -> None:
    now = clock.now_us() / 1e6
    store, other = HistoryStore(timed), HistoryStore(timed)
    series = {("topic", f"topic.{number}", "rows"): [(now, 1.0)] for number in range(50)}
    for round_ in range(6):
        for one in (store, other):
            one.save({**series, LAG: [(now + round_ * 10, 0.0)]}, now=now + round_ * 10)
    assert timed.end_offsets(HISTORY_TOPIC)[0] == 1 + 51 + 5  # the whole round, and five that only say when
    assert len(HistoryStore(timed).load(since=now)["topic", "topic.7", "rows"]) == 6
    assert timed.topic(HISTORY_TOPIC).retention.seconds_max == 3_600
    assert timed.topic(HISTORY_TOPIC).retention.bytes_max is not None


@given(
    rounds=lists(
        tuples(dictionaries(sampled_from([LAG, RATE, SPEED]), floats(0, 9)), booleans()), min_size=1, max_size=12
    )
)
def test_what_is_read_is_what_was_measured(rounds: list[tuple[dict[Key, float], bool]]) -> None:
    """Whichever values changed, appeared or went away, and whichever rounds began in a new process."""
    clock = ManualClock()
    with TemporaryDirectory() as folder, open_log(folder, clock=clock, config=Config(maintenance="manual")) as log:
        store, expected, start = HistoryStore(log), dict[Key, list[tuple[float, float]]](), clock.now_us() / 1e6
        for number, (values, restarts) in enumerate(rounds):
            if restarts:
                store.close()
                store = HistoryStore(log)
            now = start + number * 100
            clock.advance(seconds=100)
            store.save({key: [(now, value)] for key, value in values.items()}, now=now)
            for key, value in values.items():
                expected.setdefault(key, []).append((now, value))
        assert HistoryStore(log).load(since=start) == expected
