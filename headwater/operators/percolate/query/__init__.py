"""Stored queries: trees, and the two languages in which people and programs write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.operators.percolate.query.builder import QueryBuilder
from headwater.operators.percolate.query.json_query import parse_json
from headwater.operators.percolate.query.query_string import parse_string
from headwater.operators.percolate.query.tree import Query


# Any: a value of JSON.
def parse(query: str | Mapping[str, Any], builder: QueryBuilder) -> Query:
    """A query in either language: what begins with a brace is JSON.

    >>> from headwater.operators.percolate.query.fields import Fields, Text
    >>> builder = QueryBuilder(Fields({"title": Text()}, default=("title",)))
    >>> parse("streams", builder) == parse('{"match": {"title": "streams"}}', builder)
    True
    """
    if isinstance(query, str) and not query.lstrip().startswith("{"):
        return parse_string(query, builder)
    return parse_json(query, builder)


__all__ = ["Query", "QueryBuilder", "parse", "parse_json", "parse_string"]
