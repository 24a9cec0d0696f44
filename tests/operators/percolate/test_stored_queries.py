"""Stored queries in a topic: followed change by change, refused one by one, the same for every task of a batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.log import Log
from headwater.log import open as open_log
from headwater.operators import Percolate, percolate
from headwater.operators.errors import QueryInvalid
from headwater.operators.percolate.query.fields import fields_of
from headwater.operators.percolate.run.percolate import PercolateTask
from headwater.operators.percolate.run.stored_queries import StoredQueries, TopicQueries, costs_of
from headwater.optional import PackageMissing

SCHEMA = pa.schema({"n": pa.int64(), "title": pa.string(), "price": pa.float64()})
FIELDS = fields_of(SCHEMA, {}, None)
QUERIES = {"id": "string", "query": "string", "metadata": "map<string, string>", "enabled": "bool"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log") as opened:
        opened.create("searches", QUERIES, key="id", partitions=2, durability="os", compact=True)
        yield opened


def documents(*rows: tuple[int, str | None, float | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def task_of(operator: Percolate) -> PercolateTask:
    return operator.task(SCHEMA)


def result(operator: Percolate, *rows: tuple[int, str | None, float | None]) -> list[dict[str, Any]]:
    found = pa.Table.from_batches(task_of(operator).run(iter([documents(*rows)])))
    listed: list[dict[str, Any]] = found.to_pylist(maps_as_pydicts="strict")
    return listed


def ids(held: StoredQueries, *rows: tuple[int, str | None, float | None]) -> list[tuple[int, str]]:
    matches, _ = held.index.match(documents(*rows), pa.array([0.0] * len(rows)).to_numpy())
    return [
        (document, held.index.ids[slot])
        for document, slot in zip(matches.documents.tolist(), matches.slots.tolist(), strict=True)
    ]


def test_a_fixed_set_of_queries() -> None:
    operator = Percolate(
        queries={
            "streams": "title:stream*",
            "cheap": {"query": {"range": {"price": {"lt": 10}}}, "metadata": {"to": "me"}},
        }
    )
    first, second, third = result(operator, (1, "a Stream of streams", 5.0), (2, "streaming", 50.0), (3, None, None))
    assert (first["n"], first["query_id"], first["score"], first["metadata"]) == (1, "streams", 1.0, None)
    assert first["highlights"] == [{"field": "title", "fragment": "a <em>Stream</em> of <em>streams</em>"}]
    assert (second["query_id"], second["metadata"], second["highlights"]) == ("cheap", {"to": "me"}, [])
    assert (third["n"], third["query_id"], third["queries_version"]) == (2, "streams", 0)


def test_collected_there_is_a_row_for_each_document() -> None:
    operator = Percolate(queries={"a": "title:a", "b": "title:b"}, columns=("n",), collect=True, highlight=False)
    rows = result(operator, (1, "a b", None), (2, "c", None), (3, "b", None))
    assert [(row["n"], [one["query_id"] for one in row["matches"]]) for row in rows] == [
        (1, ["a", "b"]), (2, []), (3, ["b"]),
    ]  # fmt: skip
    assert set(rows[0]) == {"n", "matches", "queries_version"}


def test_changes_are_followed_and_the_past_is_built_again(log: Log) -> None:
    source = TopicQueries(log=log.address, topic="searches")
    log.append("searches", [{"id": "a", "query": "title:x"}, {"id": "b", "query": "title:x"}])
    one = log.end_offsets("searches")
    held = source.caught_up(None, FIELDS, log, one)
    assert ids(held, (1, "x", None)) == [(0, "a"), (0, "b")]
    log.append("searches", [{"id": "a", "query": "title:y"}, {"id": "c", "query": "title:x", "enabled": False}])
    log.append("searches", [{"id": "b", "_tombstone": True}, {"id": "d", "query": "title:x"}])
    two = log.end_offsets("searches")
    later = source.caught_up(held, FIELDS, log, two)
    assert later is held, "it catches up, and is not built again"
    assert ids(later, (1, "x", None), (2, "y", None)) == [(0, "d"), (1, "a")]
    assert later.version == 6
    earlier = source.caught_up(later, FIELDS, log, one)
    assert earlier is not held
    assert (ids(earlier, (1, "x", None)), earlier.version) == ([(0, "a"), (0, "b")], 2)


def test_a_bad_query_disturbs_no_other_and_becomes_one_letter(log: Log) -> None:
    rows = [
        {"id": "good", "query": "title:x"},
        {"id": "bad", "query": "title:(x"},
        {"id": "unknown", "query": '{"term": {"colour": "x"}}'},
        {"id": "endless", "query": "title:/(x{1000}){1000}/"},
    ]
    log.append("searches", rows)
    operator = Percolate(queries="searches", log=log.address)
    for _ in range(2):  # as two tasks of one batch do
        assert [row["query_id"] for row in result(operator, (1, "x", None))] == ["good"]
    letters = log.read("searches.dlq").rows()
    assert {letter["error"] for letter in letters} == {"QueryInvalid"}
    assert sorted(letter["row"].split('"')[3] for letter in letters) == ["bad", "endless", "unknown"]
    assert any("column 7: this bracket is never closed" in letter["message"] for letter in letters)


def test_a_changed_query_that_is_bad_matches_no_more(log: Log) -> None:
    source = TopicQueries(log=log.address, topic="searches")
    log.append("searches", [{"id": "a", "query": "title:x"}])
    held = source.caught_up(None, FIELDS, log, log.end_offsets("searches"))
    log.append("searches", [{"id": "a", "query": "title:("}])
    held = source.caught_up(held, FIELDS, log, log.end_offsets("searches"))
    assert ids(held, (1, "x", None)) == []
    assert [one.id for one in held.invalid] == ["a"]


def test_an_empty_table_matches_nothing(log: Log) -> None:
    assert result(Percolate(queries="searches", log=log.address), (1, "x", 1.0)) == []
    assert result(Percolate(queries={}), (1, "x", 1.0)) == []


def test_what_queries_cost_is_counted() -> None:
    operator = Percolate(queries={"a": "title:x AND price:>5", "b": "title:rare"})
    task = task_of(operator)
    held = StoredQueries(FIELDS)
    assert isinstance(task.source, pa.Table)
    held.store(task.source)
    task.matched(documents((1, "x", 9.0), (2, "x", 1.0), (3, "y", 9.0)), held, 0)
    table = costs_of(held.index).to_pylist()
    assert [(row["query_id"], row["candidates"], row["matches"]) for row in table] == [("a", 2, 1)]
    assert table[0]["checks"] == 3, "the first document was asked two things, the second one"
    assert table[0]["seconds"] > 0


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"queries": {"a": "titel:x"}}, QueryInvalid),
        ({"queries": "searches"}, ArgumentInvalid),
        ({"queries": 7}, ArgumentInvalid),
        ({"queries": {}, "fields": {"titel": percolate.Text()}}, ColumnUnknown),
        ({"queries": {}, "fields": {"price": percolate.Text()}}, ArgumentInvalid),
        ({"queries": {}, "default_fields": ("nowhere",)}, ColumnUnknown),
        ({"queries": {}, "default_fields": "title"}, ArgumentInvalid),
        ({"queries": {}, "columns": ("nowhere",)}, ColumnUnknown),
        ({"queries": {}, "time": "price"}, ArgumentInvalid),
        ({"queries": {}, "costs_every": "often"}, ArgumentInvalid),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        task_of(Percolate(**settings))


def test_a_column_that_is_called_as_one_of_the_result_is_refused() -> None:
    schema = pa.schema({"score": pa.int64(), "title": pa.string()})
    with pytest.raises(ArgumentInvalid, match="score"):
        Percolate(queries={}).task(schema)
    assert Percolate(queries={}, columns=("title",)).task(schema).output.names[:2] == ["title", "query_id"]


def test_a_time_beyond_the_calendar_stops_nobody() -> None:
    schema = pa.schema({"at": pa.timestamp("us", "UTC")})
    rows = pa.RecordBatch.from_pylist([{"at": 0}, {"at": None}], schema=schema)
    far = {"later": "at:>now+900000y/y", "earlier": "at:>now-900000M/M", "fixed": "at:<2026||+9999y/M"}
    found = Percolate(queries=far, highlight=False).task(schema).run(iter([rows]))
    assert [row["query_id"] for batch in found for row in batch.to_pylist()] == ["earlier", "fixed"]


def test_a_language_that_nobody_stems_is_refused() -> None:
    with pytest.raises(ArgumentInvalid, match="klingon"):
        percolate.Text("klingon")


def test_a_query_can_be_checked_before_it_is_stored() -> None:
    operator = Percolate(queries={})
    operator.check("title:x", SCHEMA)
    with pytest.raises(QueryInvalid, match="column 6"):
        operator.check("cost:x", SCHEMA)


@pytest.mark.parametrize(
    ("query", "text", "fragments"),
    [
        ('title:"b c"', "a b c b d c", ["a <em>b</em> <em>c</em> b d c"]),
        ('title:"b c"~1', "b a c b d d c", ["<em>b</em> a <em>c</em> b d d c"]),
        ("title:b -title:x", "a B-c", ["a <em>B</em>-c"]),
        ("title:märz", "Im März, im märz!", ["Im <em>März</em>, im <em>märz</em>!"]),
        ("title:京", "東京タワー", ["東<em>京</em>タワー"]),
    ],
)
def test_words_that_were_asked_for_are_marked(query: str, text: str, fragments: list[str]) -> None:
    (row,) = result(Percolate(queries={"q": query}), (1, text, None))
    assert [one["fragment"] for one in row["highlights"]] == fragments


def test_a_long_text_is_cut_around_its_marks() -> None:
    text = " ".join(["far"] * 200 + ["near"] + ["far"] * 200 + ["near"])
    operator = Percolate(queries={"q": "title:near"}, marking=percolate.Marking("[", "]", length=30))
    (row,) = result(operator, (1, text, None))
    first, second = (one["fragment"] for one in row["highlights"])
    assert first == "far far far [near] far far far"
    assert second.endswith("far [near]")


def test_a_missing_package_is_asked_for_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(PackageMissing, match=r"headwater\[search\]"):
        task_of(Percolate(queries={"a": "title:/x+/"}))


def test_all_queries_can_be_counted_and_cleared(log: Log) -> None:
    log.append("searches", [{"id": name, "query": "title:x"} for name in ("a", "b", "c", "d")])
    log.append("searches", [{"id": "b", "_tombstone": True}, {"id": "c", "query": "title:x", "enabled": False}])
    assert percolate.count(log, "searches") == 2
    topic = TopicQueries(log=log.address, topic="searches")
    held = topic.caught_up(None, FIELDS, log, log.end_offsets("searches"))
    assert sorted(ids(held, (1, "x", None))) == [(0, "a"), (0, "d")]
    assert percolate.clear(log, "searches") == 2
    log.append("searches", [{"id": "e", "query": "title:x"}])
    held = topic.caught_up(held, FIELDS, log, log.end_offsets("searches"))
    assert ids(held, (1, "x", None)) == [(0, "e")]
    assert percolate.count(log, "searches") == 1
    with pytest.raises(ColumnUnknown):
        log.create("others", {"id": "string"})
        percolate.clear(log, "others")
    log.create("unkeyed", {"id": "string", "query": "string"})
    log.append("unkeyed", [{"id": "a", "query": "title:x"}])
    assert (percolate.clear(log, "unkeyed"), percolate.count(log, "unkeyed")) == (1, 0)
