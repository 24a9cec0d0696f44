"""Stored queries: trees, and the two languages in which people and programs write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.operators.percolate.query.json import parse_json
from headwater.operators.percolate.query.making import Making
from headwater.operators.percolate.query.string import parse_string
from headwater.operators.percolate.query.tree import Query


# Any: a value of JSON.
def parse(query: str | Mapping[str, Any], making: Making) -> Query:
    """A query in either language: what begins with a brace is JSON.

    >>> from headwater.operators.percolate.fields import Fields, Text
    >>> making = Making(Fields({"title": Text()}, default=("title",)))
    >>> parse("streams", making) == parse('{"match": {"title": "streams"}}', making)
    True
    """
    if isinstance(query, str) and not query.lstrip().startswith("{"):
        return parse_string(query, making)
    return parse_json(query, making)


__all__ = ["Making", "Query", "parse", "parse_json", "parse_string"]
