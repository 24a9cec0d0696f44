"""Stored queries find what a naive matcher finds, however they are indexed, written, added, changed and deleted."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.operators.percolate.index import documents as module_of_documents
from headwater.operators.percolate.index import matcher
from headwater.operators.percolate.index.query_index import Index
from headwater.operators.percolate.query import parse_json, parse_string
from headwater.operators.percolate.query.tree import Query
from tests.laws import costly
from tests.operators.percolate.strategies import BUILDER, FIELDS, NAIVE, Written, batch_of, documents, now_us, queries

Rows = list[dict[str, Any]]


def found_by(index: Index, rows: Rows) -> dict[tuple[int, str], float]:
    matches, _ = index.match(batch_of(rows), now_us(len(rows)))
    pairs = zip(matches.documents.tolist(), matches.slots.tolist(), strict=True)
    keys = [(document, index.ids[slot]) for document, slot in pairs]
    assert len(set(keys)) == len(keys), "a match is found once"
    return dict(zip(keys, matches.scores.tolist(), strict=True))


def expected(stored: dict[str, Query], rows: Rows) -> dict[tuple[int, str], float]:
    scores = {
        (number, name): NAIVE.score(query, row) for number, row in enumerate(rows) for name, query in stored.items()
    }
    return {key: score for key, score in scores.items() if score is not None}


@costly(6)
@given(some=st.lists(queries, min_size=1, max_size=8), rows=st.lists(documents, min_size=1, max_size=5))
def test_what_is_found_is_what_a_naive_matcher_finds(some: list[Written], rows: Rows) -> None:
    stored = {str(number): one.tree for number, one in enumerate(some)}
    index = Index(FIELDS)
    index.change(list(stored.items()))
    assert found_by(index, rows) == pytest.approx(expected(stored, rows))


@costly(9)
@given(some=st.lists(queries, min_size=1, max_size=8), rows=st.lists(documents, min_size=1, max_size=5))
def test_it_is_the_same_in_small_portions_and_without_a_table_of_terms(some: list[Written], rows: Rows) -> None:
    stored = {str(number): one.tree for number, one in enumerate(some)}
    index = Index(FIELDS)
    for name, tree in stored.items():
        index.change([(name, tree)])
    with mock.patch.object(matcher, "PAIRS_MAX", 2), mock.patch.object(module_of_documents, "CELLS_MAX", 0):
        assert found_by(index, rows) == pytest.approx(expected(stored, rows))


@costly(2)
@given(one=queries, rows=st.lists(documents, min_size=1, max_size=5))
def test_both_languages_say_the_same(one: Written, rows: Rows) -> None:
    assert parse_json(one.json, BUILDER) == one.tree
    if one.string is not None:
        told = parse_string(one.string, BUILDER)
        assert expected({"": told}, rows) == pytest.approx(expected({"": one.tree}, rows))


@costly(3)
@given(
    changes=st.lists(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), queries, queries)), max_size=5), max_size=6
    ),
    rows=st.lists(documents, min_size=1, max_size=3),
)
def test_queries_come_change_and_go(changes: list[list[tuple[str, Written | None]]], rows: Rows) -> None:
    index = Index(FIELDS)
    stored: dict[str, Query] = {}
    for some in changes:
        told = [(name, None if one is None else one.tree) for name, one in some]
        index.change(told)
        stored |= {name: tree for name, tree in told if tree is not None}
        newest = dict(told)
        stored = {name: tree for name, tree in stored.items() if name not in newest or newest[name] is not None}
        stored |= {name: tree for name, tree in newest.items() if tree is not None}
        assert len(index) == len(stored)
        assert found_by(index, rows) == pytest.approx(expected(stored, rows))


def test_no_queries_and_no_documents_are_no_trouble() -> None:
    index = Index(FIELDS)
    assert found_by(index, [{}]) == {}
    index.change([("a", parse_string("*:* OR title:x", BUILDER))])
    assert found_by(index, []) == {}
    assert found_by(index, [{}]) == {(0, "a"): 1.0}
    assert pa.RecordBatch.from_pylist([], schema=batch_of([]).schema).num_rows == 0


@pytest.mark.parametrize("bounds", ["[1 TO 7]", "[7 TO 9]", "[7 TO 7]", "{6 TO 7]", "{7 TO 9]", "[1 TO 7}"])
def test_the_ends_of_a_range_that_stands_beside_a_term(bounds: str) -> None:
    stored = {"asked": parse_string(f"tags:red AND price:{bounds}", BUILDER)}
    rows: Rows = [{"tags": ["red"], "price": price} for price in (6.0, 7.0, 8.0)]
    index = Index(FIELDS)
    index.change(list(stored.items()))
    assert found_by(index, rows) == pytest.approx(expected(stored, rows))


def tried(stored: list[str], row: dict[str, Any]) -> int:
    index = Index(FIELDS)
    index.change([(str(number), parse_string(one, BUILDER)) for number, one in enumerate(stored)])
    return index.match(batch_of([row]), now_us(1))[0].candidates


@pytest.mark.parametrize(
    ("query", "row", "most"),
    [
        ("tags:t{n} AND price:>0", {"tags": ["t7"], "price": 1.0}, 1),
        ("tags:(t{n} OR u{n}) -title:x", {"tags": ["t7", "u7"]}, 2),
        ("price:[{n} TO {n}.5]", {"price": 7.2}, 3),
        ('body:"common w{n}"', {"body": ["common words"]}, 0),
        ("body:w{n}*", {"body": ["w7"]}, 1),
        ("body:*x{n}abc*", {"body": ["x7abc"]}, 1),
        ("body:word{n}ing~1", {"body": ["word777ing"]}, 28),
        ("notes.stars:{n} AND notes.by:b{n}", {"notes": [{"by": "b7", "stars": 7}]}, 1),
    ],
)
def test_only_queries_that_may_match_are_tried(query: str, row: dict[str, Any], most: int) -> None:
    assert tried([query.replace("{n}", str(number)) for number in range(1000)], row) <= most


def test_what_has_nothing_to_be_found_by_is_tried_with_all() -> None:
    assert tried(["-title:java", "*:*", "title:x OR -title:y"], {"title": "z"}) == 3
