"""Queries that differ only in their values are read together, and mean what each means alone."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.operators.errors import QueryInvalid
from headwater.operators.percolate import Keyword, Text
from headwater.operators.percolate.index.query_index import Index
from headwater.operators.percolate.index.shapes import shape_of, without_values
from headwater.operators.percolate.index.terms import Terms
from headwater.operators.percolate.query import QueryBuilder, parse
from headwater.operators.percolate.query.fields import fields_of
from headwater.operators.percolate.run.stored_queries import StoredQueries

SCHEMA = pa.schema(
    {"title": pa.string(), "tag": pa.string(), "price": pa.float64(), "at": pa.timestamp("us", "UTC")},
)
FIELDS = fields_of(SCHEMA, {"title": Text("english", stop_words=True), "tag": Keyword()}, ("title", "tag"))
TEMPLATES = (
    "_",
    "+_ +price:[_ TO _]",
    "_ _ -title:_",
    "title:(_ OR _) AND tag:_ AND price:<_",
    "price:>=_ AND -tag:_",
    "price:_ OR at:_",
    "at:{_ TO *} AND NOT (_ AND _)",
    "title:_^2 tag:_",
    'title:"_ _ _" OR _',
    "_* AND _~ AND price:-_",
    "(_ AND _) OR _",
    "_-_ +_",
    "title:[_ TO _]",
    "at:>now-_ AND _",
    "_:_",
)
VALUES = ("run", "running", "the", "Zürich", "東京", "x_1", "7", "12.5", "1e2", "2026-01-02", "now", "AND", "TO", "nan")
WHEN = datetime(2026, 1, 2, 12, tzinfo=UTC)
rows = st.fixed_dictionaries(
    {
        "title": st.none() | st.lists(st.sampled_from(VALUES), max_size=4).map(" ".join),
        "tag": st.none() | st.sampled_from(VALUES),
        "price": st.none() | st.sampled_from([6.0, 7.0, 12.5, 100.0]),
        "at": st.none() | st.just(WHEN),
    }
)


@st.composite
def alike(draw: st.DrawFn) -> list[str]:
    """Queries of a few shapes, ten of each."""
    found = []
    for template in draw(st.lists(st.sampled_from(TEMPLATES), min_size=1, max_size=3)):
        for _ in range(10):
            parts = template.split("_")
            values = draw(st.lists(st.sampled_from(VALUES), min_size=len(parts), max_size=len(parts)))
            found.append("".join(part + value for part, value in zip(parts, [*values[1:], ""], strict=True)))
    return found


def found_by(index: Index, documents: pa.RecordBatch) -> dict[tuple[int, str], float]:
    matches, _ = index.match(documents, np.full(documents.num_rows, WHEN.timestamp() * 1e6))
    pairs = zip(matches.documents.tolist(), matches.slots.tolist(), matches.scores.tolist(), strict=True)
    return {(document, index.ids[slot]): round(score, 9) for document, slot, score in pairs}


@given(queries=alike(), documents=st.lists(rows, min_size=1, max_size=6))
def test_read_together_or_alone_a_query_means_the_same(queries: list[str], documents: list[dict[str, object]]) -> None:
    together, alone, refused = StoredQueries(FIELDS), Index(FIELDS), set()
    together.store(pa.table({"id": [str(number) for number in range(len(queries))], "query": queries}))
    for number, query in enumerate(queries):
        try:
            alone.change([(str(number), parse(query, QueryBuilder(FIELDS)))])
        except QueryInvalid:
            refused.add(str(number))
    assert {one.id for one in together.invalid} == refused
    batch = pa.RecordBatch.from_pylist(documents, schema=SCHEMA)
    assert found_by(together.index, batch) == found_by(alone, batch)


@pytest.mark.parametrize(("query", "has_shape"), [("+run -stop +price:[1 TO 2]", True), ('"one two three"', False)])
def test_a_shape_is_read_once_for_all_that_have_it(query: str, *, has_shape: bool) -> None:
    found = without_values(query)
    assert found is not None
    assert (shape_of(found[0], QueryBuilder(FIELDS), Terms(FIELDS)) is not None) == has_shape


def test_the_newest_of_several_queries_of_one_id_counts_also_among_queries_of_one_shape() -> None:
    held = StoredQueries(FIELDS)
    held.store(pa.table({"id": ["a", "b"] * 10, "query": [f"word{number}" for number in range(20)]}))
    batch = pa.RecordBatch.from_pylist([{"title": "word16 word17 word18 word19"}], schema=SCHEMA)
    assert sorted(query for _, query in found_by(held.index, batch)) == ["a", "b"]
    held.store(pa.table({"id": ["a"], "query": [None]}, schema=pa.schema({"id": pa.string(), "query": pa.string()})))
    assert sorted(query for _, query in found_by(held.index, batch)) == ["b"]
