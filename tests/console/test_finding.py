"""Operators that find tell of themselves, in words that another process can read and try a rule by."""

from __future__ import annotations

import json

import pyarrow as pa

from headwater.console.matches.model import MatchTopic, drawn_column
from headwater.console.rules.trial import TrialInput, check
from headwater.engine.finder import Finder, applied_finders, note_finder
from headwater.operators.match import Match, begin
from headwater.operators.percolate import Percolate, Text

SCHEMA = pa.schema({"title": pa.string(), "price": pa.int64()})


def test_finders_are_collected_inside_of_a_block_alone() -> None:
    one = Finder(kind="rules", operator="rules", time="at", by=("card",), rules="rules")
    note_finder(one)
    with applied_finders() as outer:
        note_finder(one)
        with applied_finders() as inner:
            pass
    note_finder(one)
    assert (outer, inner) == ([one], [])


def test_a_finder_survives_json() -> None:
    fields = {"title": Text("english", stop_words=("the",))}
    told = Percolate(queries="searches", log="./data", fields=fields, default_fields=("title",), name="news").finder()
    assert Finder.from_json(json.loads(json.dumps(told.to_json()))).to_json() == json.loads(json.dumps(told.to_json()))


def test_a_search_is_read_elsewhere_as_the_operator_reads_it() -> None:
    told = Percolate(queries="searches", log="./data", fields={"title": Text("english", stop_words=True)}).finder()
    settings = json.loads(json.dumps(told.to_json()))["settings"]
    bench = TrialInput(kind="searches", topic="articles", schema=SCHEMA, time=None, by=(), settings=settings)
    check(bench, "title:storms AND price:<10")


def test_a_pattern_tells_its_text_key_and_time_however_it_was_written() -> None:
    text = "PARTITION BY card ORDER BY at PATTERN (a b) DEFINE a AS amount < 5, b AS amount > 500"
    match = Match(text, name="fraud")
    told = match.finder(match.rule())
    assert (told.kind, told.operator, told.time, told.by, told.text) == ("pattern", "fraud", "at", ("card",), text)
    built = Match(begin("a", "amount < 5").next("b", "amount > 500"), time="at", by="card")
    written = built.finder(built.rule())
    assert "PATTERN" in written.text
    assert Match(written.text).rule().by == ("card",)


def test_the_number_that_a_pattern_looks_at_is_drawn_and_not_one_that_it_only_tells() -> None:
    text = (
        "PARTITION BY card ORDER BY at MEASURES b.payment AS payment, b.amount AS amount PATTERN (a b) "
        "DEFINE a AS amount < 5, b AS amount > 500"
    )
    match = Match(text, name="fraud")
    source = MatchTopic(topic="stolen", kind="pattern", finder=match.finder(match.rule()))
    rows = pa.schema(
        [("payment", pa.int64()), ("card", pa.int64()), ("amount", pa.float64()), ("at", pa.timestamp("us", "UTC"))]
    )
    assert drawn_column(source, rows) == "amount"
