"""Arrow streams that are small as they come and large once they are unpacked."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from headwater.errors import EncodingInvalid
from headwater.http import Settings
from headwater.http.arrow_body import unpacked, unpacked_size
from headwater.http.errors import BodyTooLarge
from headwater.log import Log
from headwater.log.remote.wire import ARROW
from headwater.units import MIB

CODECS = [None, "lz4", "zstd"]


def stream(table: pa.Table, codec: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def held(body: bytes) -> int:
    """What the buffers have after Arrow has unpacked them."""

    def size(array: pa.Array) -> int:
        own = sum(buffer.size for buffer in array.buffers() if buffer is not None)
        return int(own) + (size(array.dictionary) if pa.types.is_dictionary(array.type) else 0)

    with pa.ipc.open_stream(body) as reader:
        return sum(size(column) for batch in reader for column in batch.columns)


tables = st.builds(
    lambda numbers, words, lists: pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "s": pa.array(words[: len(numbers)] + [None] * (len(numbers) - len(words)), pa.string()),
            "l": pa.array([lists] * len(numbers), pa.list_(pa.int8())),
        }
    ),
    numbers=st.lists(st.none() | st.integers(0, 3), max_size=300),
    words=st.lists(st.text(max_size=20), max_size=300),
    lists=st.lists(st.integers(0, 1), max_size=20),
)


@given(table=tables, codec=st.sampled_from(["lz4", "zstd"]))
def test_the_size_is_known_before_anything_is_unpacked(table: pa.Table, codec: str) -> None:
    body = stream(table, codec)
    assert unpacked_size(body) == held(body)


@given(table=tables, codec=st.sampled_from(CODECS))
def test_what_fits_comes_through_unchanged(table: pa.Table, codec: str | None) -> None:
    assert unpacked(stream(table, codec), size_max=MIB).equals(table)


@given(
    table=tables,
    codec=st.sampled_from(CODECS),
    damage=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.none() | st.integers(0, 10**6),
)
def test_damaged_streams_are_refused_in_one_way(
    table: pa.Table, codec: str | None, damage: list[tuple[int, int]], cut: int | None
) -> None:
    body = bytearray(stream(table, codec))
    for place, value in damage:
        body[place % len(body)] = value
    with contextlib.suppress(EncodingInvalid, BodyTooLarge):
        unpacked(bytes(body if cut is None else body[: cut % len(body)]), size_max=MIB)


def bombs() -> dict[str, pa.Table]:
    zeros = pa.array([0] * 1_000_000, pa.int64())
    word = pa.array(["x" * 100_000])
    return {
        "zeros": pa.table({"n": zeros}),
        "a dictionary": pa.table({"n": pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), word)}),
        "numbers of a dictionary": pa.table(
            {"n": pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000, pa.int8()), pa.array([1.0]))}
        ),
        "nulls": pa.table({"n": pa.nulls(10**9)}),
    }


@pytest.mark.parametrize("name", bombs())
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_bomb_is_refused(name: str, codec: str) -> None:
    body = stream(bombs()[name], codec)
    assert len(body) < MIB
    with pytest.raises(BodyTooLarge):
        unpacked(body, size_max=MIB)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_the_server_refuses_a_bomb_and_takes_a_body_that_fits(
    client_of: Callable[..., TestClient], log: Log, codec: str
) -> None:
    log.create("numbers", {"n": "int64"})
    client, headers = client_of(settings=Settings(body_bytes_max=MIB)), {"Content-Type": ARROW}
    bomb, fitting = stream(bombs()["zeros"], codec), stream(pa.table({"n": [1, 2]}), codec)
    transaction = client.post("/api/v1/transactions", json={}).json()["id"]
    for path in ("/api/v1/topics/numbers/rows", f"/api/v1/transactions/{transaction}/rows/numbers"):
        answer = client.post(path, content=bomb, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (413, "BodyTooLarge")
        assert client.post(path, content=fitting, headers=headers).is_success
    assert [row["n"] for row in log.read("numbers").rows()] == [1, 2]
