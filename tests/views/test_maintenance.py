"""The keeper: changelogs become rows, with the sources they reflect, whatever happens to a changelog."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log, Retention
from headwater.log.embedded import local_log
from headwater.views import ViewKeeper, ViewStore
from headwater.views.errors import ViewBehind, ViewConflict, ViewRowInvalid
from tests.views.conftest import SPEND, Opened, spec

SECONDS_MAX = 240.0


def commit(
    log: Log, topic: str, rows: list[dict[str, Any]], *, query: str, batch: int, **sources: dict[str, int]
) -> None:
    """One batch of a query, as the topic sink commits it."""
    with log.stage(query, sequence=batch, attempt="a") as stage:
        if rows:
            stage.append(topic, pa.RecordBatch.from_pylist(rows, schema=log.topic(topic).schema))
        staged = stage.finish()
    metadata = {"query": query, "batch": batch, "sources": [{"topics": sources, "at_us": 0}]}
    log.commit_staged([staged], producer=query, sequence=batch, metadata=metadata)


def make(log: Log, *names: str, schema: pa.Schema = SPEND, partitions: int = 1) -> None:
    for name in names:
        log.create(name, schema, key="card", compact=True, partitions=partitions)


def totals(keeper: ViewKeeper, name: str = "spend") -> dict[int, float]:
    return {row["card"]: row["total"] for row in keeper.view(name).rows()}


def test_the_last_row_of_each_key_counts_and_a_tombstone_takes_it_away(log: Log, keeper: ViewKeeper) -> None:
    make(log, "spend", partitions=3)
    keeper.add(spec())
    log.append("spend", [{"card": i % 5, "total": float(i)} for i in range(50)])
    keeper.catch_up()
    assert totals(keeper) == {0: 45.0, 1: 46.0, 2: 47.0, 3: 48.0, 4: 49.0}
    log.append("spend", [{"card": 0, "_tombstone": True}, {"card": 1, "_tombstone": True}, {"card": 1, "total": 1.0}])
    keeper.catch_up()
    assert totals(keeper) == {1: 1.0, 2: 47.0, 3: 48.0, 4: 49.0}
    assert keeper.view("spend").position.offsets == log.end_offsets("spend")


def test_a_keeper_goes_on_where_another_has_stopped(log: Log, open_store: Opened) -> None:
    make(log, "spend")
    for total in (1.0, 2.0, 3.0):
        store = open_store()
        keeper = ViewKeeper(log, store)
        keeper.add(spec())
        log.append("spend", [{"card": 1, "total": total}, {"card": int(total), "total": total}])
        keeper.catch_up()
        assert keeper.maintained("spend").rows_applied <= 2, "what was applied is not applied again"
        store.close()
    store = open_store()
    keeper = ViewKeeper(log, store)
    keeper.add(spec())
    assert totals(keeper) == {1: 3.0, 2: 2.0, 3: 3.0}
    store.close()


def test_a_view_says_which_of_its_sources_it_reflects(log: Log, keeper: ViewKeeper) -> None:
    make(log, "spend")
    view = keeper.add(spec(producers=("q",)))
    commit(log, "spend", [{"card": 1, "total": 1.0}], query="q", batch=0, payments={"0": 10, "1": 4})
    keeper.catch_up()
    assert view.position.sources == {"payments": {0: 10, 1: 4}}
    commit(log, "spend", [], query="q", batch=1, payments={"0": 20, "1": 4})
    keeper.start()
    assert view.get(card=1, at_least={"payments": {0: 20}}, timeout=SECONDS_MAX) is not None
    with pytest.raises(ViewBehind, match="up to 20 in partition 0, not yet up to 21 in partition 0"):
        view.get(card=1, at_least={"payments": {0: 21}}, timeout=0.05)
    with pytest.raises(ArgumentInvalid, match="payments"):
        view.get(card=1, at_least={"orders": {0: 1}}, timeout=SECONDS_MAX)
    with pytest.raises(ArgumentInvalid, match="partition"):
        view.get(card=1, at_least={"payments": 21})  # type: ignore[dict-item]


def test_a_write_is_followed_through_a_view_and_a_topic_in_between(log: Log, store: ViewStore) -> None:
    make(log, "inner", "middle", "outer")
    keeper = ViewKeeper(log, store, derived={"middle": ("q2",)})
    keeper.add(spec("inner", producers=("q1",)))
    outer = keeper.add(spec("outer", producers=("q3",)))
    commit(log, "inner", [{"card": 1, "total": 1.0}], query="q1", batch=0, payments={"0": 5})
    commit(log, "middle", [{"card": 1, "total": 1.0}], query="q2", batch=0, inner={"0": 0})
    commit(log, "outer", [{"card": 1, "total": 0.0}], query="q3", batch=0, middle={"0": 1})
    keeper.catch_up()
    keeper.start()
    wanted = {"payments": {0: 5}}
    with pytest.raises(ViewBehind, match="'inner'"):
        outer.get(card=1, at_least=wanted, timeout=0.05)
    commit(log, "middle", [{"card": 1, "total": 1.0}], query="q2", batch=1, inner={"0": 1})
    with pytest.raises(ViewBehind, match="'middle'"):
        outer.get(card=1, at_least=wanted, timeout=0.05)
    commit(log, "outer", [{"card": 1, "total": 9.0}], query="q3", batch=1, middle={"0": 2})
    found = outer.get(card=1, at_least=wanted, timeout=SECONDS_MAX)
    assert found is not None
    assert found["total"] == 9.0
    keeper.stop()


def test_a_changelog_that_gets_a_column_or_a_wider_one_is_followed(log: Log, keeper: ViewKeeper) -> None:
    make(log, "spend", schema=pa.schema([("card", pa.int32()), ("total", pa.float64())]))
    view = keeper.add(spec(schema=log.topic("spend").schema))
    log.append("spend", [{"card": 1, "total": 1.0}])
    keeper.catch_up()
    log.alter("spend", schema="card int64, total float64, city string")
    log.append("spend", [{"card": 2, "total": 2.0, "city": "Oslo"}])
    keeper.catch_up()
    assert sorted(view.rows(), key=lambda row: row["card"]) == [
        {"card": 1, "total": 1.0, "city": None},
        {"card": 2, "total": 2.0, "city": "Oslo"},
    ]
    assert view.sql("SELECT city FROM spend WHERE card = 2").to_pylist() == [{"city": "Oslo"}]


def test_a_changelog_with_another_key_asks_for_a_new_version(log: Log, keeper: ViewKeeper) -> None:
    log.create("spend", SPEND, key="shop", compact=True)
    keeper.add(spec())
    with pytest.raises(ViewConflict, match="its key is card, but that of topic 'spend' is shop"):
        keeper.catch_up()


def test_a_broken_view_is_reported_and_the_others_go_on(log: Log, keeper: ViewKeeper) -> None:
    make(log, "good", "bad")
    bad, good = keeper.add(spec("bad")), keeper.add(spec("good"))
    log.append("bad", [{"card": 1, "total": 1.0}])
    keeper.start()
    bad.get(card=1, at_least={"bad": {0: 1}}, timeout=SECONDS_MAX)
    log.append("bad", [{"card": None, "total": 2.0}])
    log.append("good", [{"card": 1, "total": 1.0}])
    assert good.get(card=1, at_least={"good": {0: 1}}, timeout=SECONDS_MAX) is not None
    with pytest.raises(ViewRowInvalid, match="'card' is null"):
        bad.get(card=1, at_least={"bad": {0: 2}}, timeout=SECONDS_MAX)
    assert "null" in str(bad.describe()["problem"])
    assert list(keeper.problems) == ["bad@1"]
    assert bad.get(card=1) == {"card": 1, "total": 1.0, "shop": None}, "what it had is still served"


def test_a_changelog_that_was_made_anew_is_read_from_its_beginning(log: Log, keeper: ViewKeeper) -> None:
    make(log, "spend")
    keeper.add(spec())
    log.append("spend", [{"card": card, "total": 1.0} for card in range(5)])
    keeper.catch_up()
    log.delete("spend")
    make(log, "spend")
    log.append("spend", [{"card": 9, "total": 9.0}])
    keeper.catch_up()
    assert totals(keeper) == {9: 9.0}


def test_a_view_waits_for_a_changelog_that_is_not_there_yet(log: Log, keeper: ViewKeeper) -> None:
    view = keeper.add(spec())
    keeper.catch_up()
    assert (view.rows(), view.freshness) == ([], 0.0)
    make(log, "spend")
    log.append("spend", [{"card": 9, "total": 9.0}])
    keeper.catch_up()
    assert totals(keeper) == {9: 9.0}


def test_a_store_that_fell_behind_retention_is_built_anew(log: Log, keeper: ViewKeeper) -> None:
    log.create("spend", SPEND, key="card", segment_bytes_max=65_536)
    keeper.add(spec())
    log.append("spend", [{"card": -1, "total": 1.0}])
    keeper.catch_up()
    for start in range(0, 20_000, 2_000):
        log.append("spend", [{"card": card, "total": float(card)} for card in range(start, start + 2_000)])
    log.alter("spend", retention=Retention(bytes_max=100_000))
    local_log(log).maintain("spend")
    oldest = log.start_offsets("spend")[0]
    assert oldest > 1
    keeper.catch_up()
    assert set(totals(keeper)) == {row["card"] for row in log.read("spend").rows()}


def test_a_key_that_moves_to_a_new_partition_keeps_its_newest_row(log: Log, keeper: ViewKeeper) -> None:
    log.create("spend", SPEND, key="card", partitions=2)  # one that is compacted keeps its number of partitions
    keeper.add(spec())
    log.append("spend", [{"card": card, "total": 1.0} for card in range(20)])
    log.alter("spend", partitions=5)
    log.append("spend", [{"card": card, "total": 2.0} for card in range(20)])
    keeper.catch_up()
    assert totals(keeper) == dict.fromkeys(range(20), 2.0)


def test_a_version_is_kept_beside_another_and_switched_to(log: Log, keeper: ViewKeeper) -> None:
    make(log, "spend", "spend.v2")
    view = keeper.add(spec())
    log.append("spend", [{"card": 1, "total": 1.0}])
    log.append("spend.v2", [{"card": 1, "total": 2.0}])
    keeper.add(spec(topic="spend.v2", version=2))
    keeper.catch_up()
    assert totals(keeper) == {1: 1.0}
    assert view.describe()["versions"] == [1, 2]
    keeper.switch("spend", 2)
    assert totals(keeper) == {1: 2.0}
    keeper.remove("spend", version=1, drop=True)
    assert [one.spec.version for one in keeper.store.stored()] == [2]
    with pytest.raises(NotFound):
        keeper.switch("spend", 7)
    keeper.remove("spend", drop=True)
    assert keeper.names() == []


def test_what_is_subscribed_to_does_not_wait_for_a_slow_subscriber(log: Log, keeper: ViewKeeper) -> None:
    make(log, "spend")
    view = keeper.add(spec())
    log.append("spend", [{"card": card, "total": 0.0} for card in range(1000)])
    keeper.start()
    view.get(card=1, at_least={"spend": {0: 1000}}, timeout=SECONDS_MAX)
    slow = view.subscribe()
    assert slow.next(timeout=SECONDS_MAX) is not None  # and then it reads no more
    log.append("spend", [{"card": 1, "total": 1.0}])
    found = view.get(card=1, at_least={"spend": {0: 1001}}, timeout=SECONDS_MAX)
    assert found is not None
    assert found["total"] == 1.0


def test_a_closed_subscription_lets_its_reader_go(log: Log, keeper: ViewKeeper) -> None:
    make(log, "spend")
    changes = keeper.add(spec()).subscribe()
    told: list[object] = []
    reader = threading.Thread(target=lambda: told.extend(changes))
    reader.start()
    changes.close()
    reader.join(SECONDS_MAX)
    assert not reader.is_alive()
    assert told == []
