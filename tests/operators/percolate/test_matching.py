"""Stored queries find what a naive matcher finds, however they are indexed, written, added, changed and deleted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.operators.percolate.index import Index
from headwater.operators.percolate.query import parse_json, parse_string
from headwater.operators.percolate.query.tree import Query
from tests.operators.percolate.strategies import FIELDS, MAKING, NAIVE, Written, batch_of, documents, now_us, queries

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


@settings(max_examples=150)
@given(some=st.lists(queries, min_size=1, max_size=8), rows=st.lists(documents, min_size=1, max_size=5))
def test_what_is_found_is_what_a_naive_matcher_finds(some: list[Written], rows: Rows) -> None:
    stored = {str(number): one.tree for number, one in enumerate(some)}
    index = Index(FIELDS)
    index.change(list(stored.items()))
    assert found_by(index, rows) == pytest.approx(expected(stored, rows))


@settings(max_examples=150)
@given(one=queries, rows=st.lists(documents, min_size=1, max_size=5))
def test_both_languages_say_the_same(one: Written, rows: Rows) -> None:
    assert parse_json(one.json, MAKING) == one.tree
    if one.string is not None:
        told = parse_string(one.string, MAKING)
        assert expected({"": told}, rows) == pytest.approx(expected({"": one.tree}, rows))


@settings(max_examples=80)
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
    index.change([("a", parse_string("*:* OR title:x", MAKING))])
    assert found_by(index, []) == {}
    assert found_by(index, [{}]) == {(0, "a"): 1.0}
    assert pa.RecordBatch.from_pylist([], schema=batch_of([]).schema).num_rows == 0
