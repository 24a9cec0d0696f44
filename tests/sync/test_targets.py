"""What some kinds of targets do beyond the contract: history, caches, search, constraints, and kill -9."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.log.dead_letters import dead_letter_topic
from headwater.sinks import SearchSink
from headwater.sinks.errors import SinkUnavailable
from headwater.sinks.retry import Retry
from headwater.sync import Sync, SyncInvalid, TargetRefused, TopicGap
from headwater.sync.targets import open_target
from headwater.testing.crash import CrashAt, run_until_killed
from tests.laws import costly
from tests.sync.places import Place, params, place_of
from tests.sync.rows import CHANGES, TOPIC, append, define, log_at, make_topic, model


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with log_at(tmp_path) as log:
        yield log


def synced(log: Log) -> int:
    with Sync.open(log, "copy") as sync:
        return sync.catch_up()


# -- history ----------------------------------------------------------------------------------------------------------


# Any: values of rows.
def history_model(log: Log) -> list[tuple[Any, ...]]:
    """Every version of every row, by a walk over the topic."""
    versions: list[list[Any]] = []
    current: dict[int, list[Any]] = {}
    for row in log.read(TOPIC).rows():
        at = row["_appended_at"]
        if (before := current.pop(row["id"], None)) is not None:
            before[4:] = [at, False]
        if not row["_tombstone"]:
            current[row["id"]] = [row["id"], row["item"], row["price"], at, None, True]
            versions.append(current[row["id"]])
    return sorted(map(tuple, versions), key=repr)


def history_of(url: str) -> list[tuple[Any, ...]]:
    if url.startswith("delta"):
        from deltalake import DeltaTable

        rows = DeltaTable(url.removeprefix("delta:///") + "/orders").to_pyarrow_table().to_pylist()
    else:
        import pyarrow.parquet as pq

        rows = pq.read_table(url.removeprefix("parquet:///") + "/orders.parquet").to_pylist()
    names = ("id", "item", "price", "valid_from", "valid_to", "is_current")
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@costly(40)
@given(batches=st.lists(st.lists(CHANGES, min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_history_has_every_version_with_its_times(kind: str, batches: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name, log_at(Path(name)) as log:
        make_topic(log)
        url = f"{kind}:///{name}/lake"
        define(log, url, mode="history")
        for batch in batches:
            append(log, batch)
            synced(log)
        assert history_of(url) == history_model(log)
        with Sync.open(log, "copy") as sync:
            assert sync.compare()[0].is_equal


def test_only_lakes_keep_a_history(log: Log, tmp_path: Path) -> None:
    with pytest.raises(ArgumentInvalid, match="delta://"):
        define(log, f"sqlite:///{tmp_path}/copy.db", mode="history")
    with pytest.raises(ArgumentInvalid, match="no options"):
        define(log, f"sqlite:///{tmp_path}/copy.db", options={"ttl": "1"})


# -- search -----------------------------------------------------------------------------------------------------------


def test_the_index_finds_what_the_table_holds(log: Log, tmp_path: Path) -> None:
    make_topic(log)
    with pytest.raises(ArgumentInvalid, match="text=title,body"):
        define(log, f"search:///{tmp_path}/index")
    define(log, f"search:///{tmp_path}/index", options={"text": "item", "language": "en"})
    index = SearchSink(path=tmp_path / "index" / "orders", key="id", text="item", language="en")
    append(log, [(1, ("running shoes", 1.0, True)), (2, ("green tea", 1.0, True))])
    synced(log)
    assert [row["id"] for row in index.search("run")] == [1]
    append(log, [(1, ("walking boots", 1.0, True)), (2, None)])
    synced(log)
    assert index.search("run") == []
    assert [row["id"] for row in index.search("boot tea")] == [1]


def test_a_rebuild_of_an_index_that_dies_between_two_renames_is_finished(log: Log, tmp_path: Path) -> None:
    make_topic(log)
    define(log, f"search:///{tmp_path}/index", options={"text": "item"})
    append(log, [(1, ("tea", 1.0, True))])
    synced(log)
    (tmp_path / "index" / "orders").rename(tmp_path / "index" / "orders__rebuild")
    (tmp_path / "index" / "orders__old").mkdir()
    assert synced(log) == 0
    assert not (tmp_path / "index" / "orders__old").exists()


# -- Redis ------------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_cache_has_fields_expires_and_tells_which_keys_changed(log: Log, request: pytest.FixtureRequest) -> None:
    import redis

    server = request.getfixturevalue("redis_peer")
    make_topic(log)
    with redis.Redis.from_url(server.url) as client, client.pubsub() as listener:
        client.flushdb()
        listener.subscribe("invalidate:orders")
        assert listener.get_message(timeout=30)["type"] == "subscribe"
        define(log, server.url, options={"ttl": "1 hour"})
        define(log, server.url, name="drop", options={"format": "invalidate", "channel": ""})
        append(log, [(1, ("tea", 1.5, True)), (2, (None, 1.0, False))])
        synced(log)
        assert client.hgetall("orders:1") == {b"id": b"1", b"item": b"tea", b"price": b"1.5", b"paid": b"true"}
        assert client.hgetall("orders:2") == {b"id": b"2", b"price": b"1.0", b"paid": b"false"}
        assert 3_000_000 < client.pttl("orders:1") <= 3_600_000
        append(log, [(1, None)])
        synced(log)
        assert client.exists("orders:1") == 0
        told = [listener.get_message(timeout=30)["data"] for _ in range(3)]
        assert told == [b"orders:1", b"orders:2", b"orders:1"]
        with Sync.open(log, "drop") as sync:
            sync.catch_up()
            assert client.exists("orders:2") == 0
            with pytest.raises(SyncInvalid, match="has no rows"):
                sync.compare()


# -- constraints, servers, and dead processes -------------------------------------------------------------------------


@pytest.mark.process
def test_a_violated_constraint_of_postgres_is_a_dead_letter(
    log: Log, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of("postgres", tmp_path, request, monkeypatch)
    server = request.getfixturevalue("postgres")
    conninfo = server.conninfo(place.url.rpartition("/")[2])
    server.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item varchar(5), price float8, paid boolean, UNIQUE (item) DEFERRABLE INITIALLY DEFERRED)",
        conninfo=conninfo,
    )
    make_topic(log)
    config = place.define(log, dead_letters=True)
    rows = [(key, (f"i{key}", 1.0, True)) for key in range(1, 40)]
    append(log, [*rows, (40, ("too long", 1.0, True)), (41, ("i7", 1.0, True)), (42, ("good", 1.0, True))])
    synced(log)
    assert place.holds(config, log, model([*rows, (42, ("good", 1.0, True))]))
    letters = log.read(dead_letter_topic(TOPIC)).rows()
    assert [row["offset"] for row in letters] == [39, 40]
    assert "too long" in letters[0]["message"]
    assert "unique" in letters[1]["message"]


@pytest.mark.process
def test_a_server_that_refuses_or_is_away_is_explained(
    log: Log, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of("postgres", tmp_path, request, monkeypatch)
    make_topic(log)
    place.define(log)
    append(log, [(1, ("tea", 1.0, True))])
    monkeypatch.setenv("SYNC_PASSWORD", "wrong")
    with Sync.open(log, "copy") as sync, pytest.raises(TargetRefused, match="password authentication failed"):
        sync.catch_up()
    define(log, "postgresql://me@127.0.0.1:1/none", name="away")
    with Sync.open(log, "away") as sync, pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1"):
        sync._retry = Retry(seconds_max=0)
        sync.catch_up()


def _synced_by_a_child(folder: Path) -> None:
    with log_at(folder) as log:
        synced(log)


def _run_sync(folder: Path, kind: str, *, at: CrashAt | None = None) -> int:
    """Apply all in a child that may be killed at a point; return how it ended, as `subprocess` tells it."""
    if kind != "delta":
        ended = run_until_killed(lambda: _synced_by_a_child(folder), at=at)
        return -ended.signal or ended.code
    # Delta's runtime does not survive a fork of a process that has used it.
    script = (
        "from pathlib import Path; from headwater.testing.crash import CrashAt, watch_points; "
        "from tests.sync.test_targets import _synced_by_a_child; "
        f"watch_points({at!r}); _synced_by_a_child(Path({str(folder)!r}))"
    )
    return subprocess.run([sys.executable, "-c", script], check=False).returncode


@pytest.mark.process
@pytest.mark.parametrize("kind", params())
def test_a_killed_sync_loses_and_doubles_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Place = place_of(kind, tmp_path, request, monkeypatch)
    changes = [(key % 17, (f"i{key}", float(key), True) if key % 5 else None) for key in range(60)]
    with log_at(tmp_path) as log:
        make_topic(log, partitions=2)
        config = place.define(log)
        for number, point in enumerate(("target.written", "target.before_commit", "target.committed")):
            append(log, changes[number * 20 : number * 20 + 20])
            assert _run_sync(tmp_path, kind, at=CrashAt(point=point)) == -signal.SIGKILL
        assert _run_sync(tmp_path, kind) == 0
        assert place.holds(config, log, model(changes))


# -- topics that have lost rows ---------------------------------------------------------------------------------------


def test_a_position_behind_removed_tombstones_is_refused(tmp_path: Path) -> None:
    import headwater as hw
    from headwater.config import Config

    clock = ManualClock()
    config = Config(durability="os", maintenance="manual")
    with hw.open(tmp_path / "log", config=config, clock=clock) as log:
        log.create(TOPIC, {"id": "int64", "item": "string"}, key="id", compact=True, segment_bytes_max=4096)
        define(log, f"sqlite:///{tmp_path}/copy.db")
        log.append(TOPIC, [{"id": 1, "item": "tea"}, {"id": 2, "item": "milk"}])
        synced(log)
        log.append(TOPIC, [{"id": 1, "_tombstone": True}])
        clock.advance(seconds=2 * 86_400)
        log.append(TOPIC, [{"id": 3, "item": "x" * 200} for _ in range(100)])
        synced(log)  # late, but nothing was removed
        log.append(TOPIC, [{"id": 2, "_tombstone": True}])
        log.append(TOPIC, [{"id": 3, "item": "x" * 200} for _ in range(100)])
        clock.advance(seconds=2 * 86_400)
        log.append(TOPIC, [{"id": 4, "item": "x" * 200} for _ in range(100)])
        log.maintain()  # type: ignore[attr-defined]  # of a log in a folder
        with pytest.raises(TopicGap, match="a deletion may be missing"):
            synced(log)
        with Sync.open(log, "copy") as sync:
            sync.rebuild()
            [table] = sync.tables()
            rows = [row for piece in open_target(sync.config).scan(table)[1] for row in piece.to_pylist()]
        assert {row["id"] for row in rows} == {3, 4}
