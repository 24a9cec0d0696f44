"""The two languages: what is written means what it says, and what cannot be meant is pointed at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.operators.errors import QueryInvalid
from headwater.operators.percolate.index.terms import fits
from headwater.operators.percolate.query import parse, parse_json, parse_string
from headwater.operators.percolate.query.tree import (
    All,
    Bool,
    Exists,
    Fuzzy,
    Moment,
    Phrase,
    Prefix,
    Query,
    Range,
    Regex,
    Term,
    Wildcard,
    micros,
    parse_moment,
)
from tests.operators.percolate.strategies import BUILDER

RED, BLUE, R2 = (Term("tags", value) for value in ("red", "blue", "r2"))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("tags:red AND tags:blue", Bool(must=(RED, BLUE))),
        ("tags:red && !tags:blue", Bool(must=(RED,), must_not=(BLUE,))),
        ("tags:red OR tags:blue AND tags:r2", Bool(should=(RED, Bool(must=(BLUE, R2))))),
        ("tags:red tags:blue OR tags:r2", Bool(should=(RED, Bool(should=(BLUE, R2))))),
        ("tags:red OR NOT tags:blue", Bool(should=(RED, Bool(must_not=(BLUE,))))),
        ("+tags:red tags:blue -tags:r2", Bool(must=(RED,), should=(BLUE,), must_not=(R2,))),
        ("tags:(red blue)", Bool(should=(RED, BLUE))),
        ("tags:dark\\ blue", Term("tags", "dark blue")),
        ('tags:"dark blue"', Term("tags", "dark blue")),
        ("NOT NOT tags:red", RED),
        ('title:"streams of data"~2^3', Phrase("title", ((0, "stream"), (2, "data")), 2, 3.0)),
        ("title:well-known", Phrase("title", ((0, "well"), (1, "known")))),
        ("title:Stre*", Prefix("title", "stre")),
        ("title:S?re*m", Wildcard("title", "s?re*m")),
        ("title:strem~", Fuzzy("title", "strem", 1)),
        ("title:/str(ea)+m/", Regex("title", "str(ea)+m")),
        ("price:[1 TO 2}", Range("price", gte=1.0, lt=2.0)),
        ("price:>=-1.5", Range("price", gte=-1.5)),
        ("price:-3", Range("price", gte=-3.0, lte=-3.0)),
        ("at:[now-1d/d TO *]", Range("at", gte=Moment(((-1, "d"), (0, "d"))))),
        ("price:*", Exists("price")),
        ("_exists_:seller", Exists("seller")),
        ("*:*", All()),
        ("title:the AND title:data", Term("title", "data")),
        ("data", Bool(should=(Term("title", "data"), Term("body", "data")))),
        ("the", Term("body", "the")),
    ],
)
def test_a_query_string_means(text: str, tree: Query) -> None:
    assert parse_string(text, BUILDER) == tree


def test_by_the_default_operator_words_are_all_wanted() -> None:
    told = parse_string("tags:red tags:blue -tags:r2", BUILDER, operator="and")
    assert told == Bool(must=(RED, BLUE), must_not=(R2,))


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("", "column 1", "empty"),
        ("tags:red AND", "column 13", "expected"),
        ("(tags:red", "column 1", "never closed"),
        ("tags:red)", "column 9", "never opened"),
        ("tags:red AND titel:x", "column 20", "did you mean 'title'"),
        ("price:cheap", "column 7", "no number"),
        ("at:yesterday", "column 4", "no date"),
        ("at:2026-13", "column 4", "month must be in"),
        ("price:[1 TO", "column 7", "not understood"),
        ("title:/(a/", "column 7", "missing )"),
        ("title:/(a{1000}){1000}/", "column 7", "invalid"),
        ("price:1*", "column 7", "no words"),
        ("title:stream~7", "column 7", "no distance"),
        ("+tags:red OR tags:blue", "column 1", "contradicts"),
        ("place:52", "column 7", "geo_distance"),
        ("seller:bob", "column 8", "fields of its own"),
        ("(" * 60 + "a" + ")" * 60, "column 51", "deep"),
        (" ".join(["tags:red"] * 1025), "column 1", "1024"),
        ('"open', "column 1", "not understood"),
    ],
)
def test_a_bad_query_string_is_invalid_where_it_is_bad(text: str, position: str, why: str) -> None:
    with pytest.raises(QueryInvalid) as caught:
        parse(text, BUILDER)
    assert caught.value.position == position
    assert why in caught.value.why


@pytest.mark.parametrize(
    ("body", "tree"),
    [
        ({"query": {"match": {"tags": "red"}}}, RED),
        ({"terms": {"tags": ["red", "blue"]}}, Bool(should=(RED, BLUE))),
        (
            {"match": {"title": {"query": "data flow java", "minimum_should_match": "67%"}}},
            Bool(should=(Term("title", "data"), Term("title", "flow"), Term("title", "java")), minimum_should_match=2),
        ),
        ({"match": {"title": {"query": "streem", "fuzziness": "AUTO"}}}, Fuzzy("title", "streem", 2)),
        ({"multi_match": {"query": "data", "fields": ["title^2", "body"]}}, Bool(should=(Term("title", "data", 2.0), Term("body", "data")))),
        ({"term": {"fresh": True}}, Term("fresh", "true")),
        ({"range": {"at": {"gte": 0}}}, Range("at", gte=0)),
        ({"query_string": {"query": "red AND blue", "default_field": "tags"}}, Bool(must=(RED, BLUE))),
        ({"constant_score": {"filter": {"term": {"tags": "red"}}, "boost": 3}}, Bool(must=(All(3.0),), filter=(RED,))),
        ({"bool": {"must": {"term": {"tags": "red"}}}}, Bool(must=(RED,))),
    ],
)  # fmt: skip
def test_json_means(body: dict[str, Any], tree: Query) -> None:
    assert parse_json(body, BUILDER) == tree


@pytest.mark.parametrize(
    ("body", "position", "why"),
    [
        ("{", "line 1 column 2", "no JSON"),
        ("{}", "its beginning", "one name"),
        ({"matches": {}}, "its beginning", "no query 'matches'"),
        ({"bool": {"must": [{"term": {"tags": "a"}}, {"term": {"tag": "a"}}]}}, "bool.must[1].term.tag", "did you mean 'tags'"),
        ({"bool": {"musst": []}}, "bool.musst", "not known here"),
        ({"range": {"price": {"gte": "x"}}}, "range.price", "no number"),
        ({"range": {"price": {"gte": 1, "gt": 1}}}, "range.price", "enough"),
        ({"nested": {"path": "seller", "query": {"match_all": {}}}}, "nested", "no list of structs"),
        ({"nested": {"path": "notes", "query": {"term": {"tags": "a"}}}}, "nested", "does not belong"),
        ({"geo_distance": {"distance": "3 parsecs", "place": "1,2"}}, "geo_distance.distance", "no distance"),
        ({"geo_distance": {"distance": "3km", "place": "100,2"}}, "geo_distance.place", "Earth"),
        ({"query_string": {"query": "tags:("}}, "query_string.query, column 7", "missing"),
        ({"regexp": {"title": "("}}, "regexp.title", "invalid"),
        ({"match": {"title": {"query": "a", "boost": -1}}}, "match.title", "no boost"),
    ],
)  # fmt: skip
def test_bad_json_is_invalid_with_the_path_that_leads_there(body: Any, position: str, why: str) -> None:
    with pytest.raises(QueryInvalid) as caught:
        parse(body, BUILDER)
    assert caught.value.position == position
    assert why in caught.value.why


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026", "2026-01-01T00:00:00", "2026-12-31T23:59:59.999999"),
        ("2026-02", "2026-02-01T00:00:00", "2026-02-28T23:59:59.999999"),
        ("2026-12-31T10+02:00", "2026-12-31T08:00:00", "2026-12-31T08:59:59.999999"),
        ("2026-01-31||+1M", "2026-02-28T00:00:00", "2026-02-28T00:00:00"),
        ("2026-03-04||/w", "2026-03-02T00:00:00", "2026-03-08T23:59:59.999999"),
    ],
)
def test_a_date_stands_for_its_whole_span(text: str, start: str, end: str) -> None:
    found = [parse_moment(text, end=at_end) for at_end in (False, True)]
    assert found == [micros(datetime.fromisoformat(one).replace(tzinfo=UTC)) for one in (start, end)]


def test_a_catastrophic_expression_is_matched_in_linear_time() -> None:
    """`(a+)+$` takes a backtracking engine longer than anybody waits."""
    assert not fits(Regex("title", "(a+)+b"), "a" * 5000)
    assert not fits(Wildcard("title", "*a" * 50 + "*b"), "a" * 2000)
