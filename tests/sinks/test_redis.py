"""The Redis sink against a real server: what a row becomes, how long it stays, and what is invalidated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pytest
import redis

from headwater.errors import ArgumentInvalid
from headwater.sinks import RedisSink, Retry
from headwater.sinks.errors import SinkRefused, SinkUnavailable
from tests.servers import free_port
from tests.sinks.places import SHORT, micro


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        client.flushall()
        yield client


def rows(**columns: list[Any]) -> list[pa.RecordBatch]:
    return [pa.record_batch(columns)]


def test_a_row_is_a_hash_and_a_null_is_no_field(redis_url: str, client: redis.Redis) -> None:
    sink = RedisSink(url=redis_url, prefix="p", key=("a", "b"))
    sink.commit(rows(a=["x:y"], b=[7], tags=[["t"]], note=["n"], real=[1.5]), micro(0))
    assert client.hgetall("p:x\\:y:7") == {"a": "x:y", "b": "7", "tags": '["t"]', "note": "n", "real": "1.5"}
    sink.commit(rows(a=["x:y"], b=[7], note=pa.array([None], pa.string())), micro(1))
    assert client.hgetall("p:x\\:y:7") == {"a": "x:y", "b": "7"}


def test_a_row_is_json_if_told_so_and_goes_after_its_time(redis_url: str, client: redis.Redis) -> None:
    sink = RedisSink(url=redis_url, prefix="p", key="id", mode="json", ttl="10 minutes")
    sink.commit(rows(id=[1], name=["one"]), micro(0))
    assert orjson.loads(str(client.get("p:1"))) == {"id": 1, "name": "one"}
    assert 590_000 < int(client.pttl("p:1")) <= 600_000
    RedisSink(url=redis_url, prefix="q", key="id", ttl=600).commit(rows(id=[1]), micro(0))
    assert int(client.pttl("q:1")) > 0


def test_changed_keys_are_invalidated_and_others_stay(redis_url: str, client: redis.Redis) -> None:
    client.mset({"p:1": "old", "p:2": "old", "p:3": "kept"})
    sink = RedisSink(url=redis_url, prefix="p", key="id", mode="invalidate")
    sink.commit(rows(id=[1, 2], _op=["+U", "-D"]), micro(0))
    assert client.keys("p:*") == ["p:3"]
    client.set("p:1", "filled again by a reader")
    sink.commit(rows(id=[1, 2], _op=["+U", "-D"]), micro(0))
    assert client.get("p:1") == "filled again by a reader", "a batch that is done again invalidates nothing"


def test_wrong_credentials_are_not_waited_for(redis_url: str, client: redis.Redis) -> None:
    client.acl_setuser("writer", enabled=True, passwords=["+right"], keys=["*"], categories=["+@all"])
    wrong = redis_url.replace("//", "//writer:wrong@")
    with pytest.raises(SinkRefused, match="Correct the user or the password"):
        RedisSink(url=wrong, prefix="p", key="id", retry=Retry(seconds_max=3600)).check(pa.schema([("id", pa.int64())]))
    assert "wrong" not in repr(RedisSink(url=wrong, prefix="p", key="id"))


def test_a_server_that_is_full_or_away_is_waited_for(redis_url: str, client: redis.Redis) -> None:
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(SinkUnavailable, match="command not allowed"):
            RedisSink(url=redis_url, prefix="p", key="id", retry=SHORT).commit(rows(id=[1]), micro(0))
    finally:
        client.config_set("maxmemory", "0")
    away = RedisSink(url=f"redis://127.0.0.1:{free_port()}", prefix="p", key="id", retry=SHORT)
    with pytest.raises(SinkUnavailable, match="refused"):
        away.commit(rows(id=[1]), micro(0))


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ArgumentInvalid, match="`key`"):
        RedisSink(url="redis://x", prefix="p")
    with pytest.raises(ArgumentInvalid, match="`mode`"):
        RedisSink(url="redis://x", prefix="p", key="id", mode="list")  # type: ignore[arg-type]
    with pytest.raises(ArgumentInvalid, match="`ttl`"):
        RedisSink(url="redis://x", prefix="p", key="id", ttl=0)
