"""Conditions in SQL on the rows of one view, or of one batch: one expression that reads nothing but those rows.

A caller that may read one view must not reach others through a condition, so it is parsed by itself before it is put
into a statement. DuckDB parses it, also for stores that are no DuckDB; there only what both read alike may be written.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from headwater.optional import require
from headwater.views.duckdb_types import ingestible
from headwater.views.errors import StatementInvalid
from headwater.views.sql_parser import nodes_of
from headwater.views.statement import Bounds, Ending, Stoppable, hinted, run_duckdb, shortened

if TYPE_CHECKING:
    import duckdb


_FRAME = "SELECT * FROM t WHERE (\n{}\n)"
#: What may stand after FROM in a sub-select, besides the view itself; functions there only where they make rows.
_SOURCES = ("SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "COLUMN_DATA", "BASE_TABLE", "TABLE_FUNCTION")
_ROW_MAKERS = ("unnest", "range", "generate_series")
#: What `equalities` makes, which needs no parsing: columns in quotes, and values that are parameters.
_TERM = r'"(?:[^"\0]|"")+" (?:= \$\d+|IS NULL)'
_EQUALITIES = re.compile(rf"true|{_TERM}(?: AND {_TERM})*")
#: Parsers disagree about where these end. As long as there are none before it, they agree where a literal or a name in
#: quotes does, so that these may stand in it. A backslash may not: a server can be told to take it as an escape.
_DISPUTED = re.compile(r"--|/\*|\\|\$[\w\x80-\U0010ffff]*\$")
_QUOTED = re.compile(r"'(?:[^'\\]|'')*'|\"(?:[^\"\\]|\"\")*\"")
#: PostgreSQL has functions that run any statement, given as text: only those that cannot are let through.
_PLAIN_FUNCTIONS = frozenset(
    [
        "abs",
        "age",
        "array_length",
        "array_lower",
        "array_position",
        "array_upper",
        "ascii",
        "bit_length",
        "btrim",
        "cardinality",
        "cbrt",
        "ceil",
        "ceiling",
        "char_length",
        "character_length",
        "chr",
        "concat",
        "concat_ws",
        "current_date",
        "current_timestamp",
        "date_bin",
        "date_part",
        "date_trunc",
        "degrees",
        "div",
        "exp",
        "extract",
        "floor",
        "get_current_timestamp",
        "greatest",
        "ilike_escape",
        "initcap",
        "isfinite",
        "json_array_length",
        "json_extract_path",
        "json_extract_path_text",
        "json_typeof",
        "jsonb_array_length",
        "jsonb_extract_path",
        "jsonb_extract_path_text",
        "jsonb_typeof",
        "justify_days",
        "justify_hours",
        "justify_interval",
        "least",
        "left",
        "length",
        "like_escape",
        "list_value",
        "ln",
        "log",
        "log10",
        "lower",
        "lpad",
        "ltrim",
        "make_date",
        "make_interval",
        "make_time",
        "make_timestamp",
        "make_timestamptz",
        "md5",
        "mod",
        "not_ilike_escape",
        "not_like_escape",
        "now",
        "nullif",
        "octet_length",
        "overlay",
        "pi",
        "position",
        "pow",
        "power",
        "radians",
        "regexp_count",
        "regexp_full_match",
        "regexp_like",
        "regexp_match",
        "regexp_matches",
        "regexp_replace",
        "regexp_substr",
        "replace",
        "reverse",
        "right",
        "round",
        "row",
        "rpad",
        "rtrim",
        "sign",
        "split_part",
        "sqrt",
        "starts_with",
        "string_to_array",
        "strpos",
        "substr",
        "substring",
        "timezone",
        "to_char",
        "to_date",
        "to_number",
        "to_timestamp",
        "translate",
        "trim",
        "trunc",
        "unnest",
        "upper",
    ]
)


_local = threading.local()


def parser() -> duckdb.DuckDBPyConnection:
    """A DuckDB without data that parses conditions for other stores, for this thread."""
    found: duckdb.DuckDBPyConnection | None = getattr(_local, "parser", None)
    if found is None:
        found = _local.parser = _database().cursor()
    return found


@cache
def _database() -> duckdb.DuckDBPyConnection:
    found: duckdb.DuckDBPyConnection = require("duckdb", extra="views").connect(config={"threads": 1})
    return found


def check_condition(
    view: str, condition: str, *, parsed_by: Callable[[], duckdb.DuckDBPyConnection] = parser, plain: bool = False
) -> str:
    """The condition as it goes behind WHERE, or `StatementInvalid`.

    `plain` is for a store with another parser: no sub-selects, comments or backslashes, and only well-known functions.

    >>> check_condition("spend", "total > $1")
    '(\\ntotal > $1\\n)'
    """
    if "\0" in condition:
        raise _refused(condition, "there is a zero byte in it")
    if _EQUALITIES.fullmatch(condition):
        return f"(\n{condition}\n)"
    if plain and (found := _DISPUTED.search(_QUOTED.sub("''", condition))):
        raise _refused(condition, f"a condition has no {found[0]!r} in it; text may have it that is a parameter")
    tree = _where(parsed_by(), condition)
    for node in nodes_of(tree):
        _check_node(node, view, condition, plain=plain)
    return f"(\n{condition}\n)"


# Any: a parsed tree of JSON, here and below.
def _where(connection: duckdb.DuckDBPyConnection, condition: str) -> Any:
    """The tree of the condition alone: whatever else the text would have changed in the statement is refused."""
    tree = _parsed(connection, _FRAME.format(condition))
    if tree.get("error", True):
        raise _refused(condition, hinted(str(tree.get("error_message", "it cannot be parsed"))))
    found = [dict(one["node"]) for one in tree["statements"]]
    where = found[0].pop("where_clause", None)
    if len(found) != 1 or _without_places(found[0]) != _frame():
        raise _refused(condition, "it is more than one condition")
    return where


@cache
def _frame() -> Any:
    [statement] = _parsed(parser(), _FRAME.format("true"))["statements"]
    return _without_places({name: part for name, part in statement["node"].items() if name != "where_clause"})


def _parsed(connection: duckdb.DuckDBPyConnection, statement: str) -> Any:
    [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    return orjson.loads(text)


def _without_places(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _without_places(part) for name, part in tree.items() if not name.startswith("query_location")}
    return [_without_places(part) for part in tree] if isinstance(tree, list) else tree


def _check_node(node: dict[str, Any], view: str, condition: str, *, plain: bool) -> None:
    kind = str(node.get("type", ""))
    if plain and node.get("class") == "SUBQUERY" and not _is_any_of_list(node):
        raise _refused(condition, "a condition has no SELECT in it")
    if plain and node.get("class") == "FUNCTION" and not node.get("is_operator"):
        name = str(node.get("function_name", "")).lower()
        if name not in _PLAIN_FUNCTIONS or node.get("schema"):
            raise _refused(condition, f"the function {name!r} is not among those that a condition may use")
    if (node.get("cte_map") or {}).get("map"):
        raise _refused(condition, "a condition has no WITH in it")
    if "alias" in node and kind and "class" not in node and kind not in _SOURCES:
        raise _refused(condition, f"it reads more than the view {view!r}")
    if kind == "BASE_TABLE" and (
        node["table_name"].lower() != view.lower() or node["schema_name"] or node["catalog_name"]
    ):
        raise _refused(condition, f"it reads {node['table_name']!r}, and may read only the view {view!r}")
    if kind == "TABLE_FUNCTION" and str(node["function"].get("function_name", "")).lower() not in _ROW_MAKERS:
        raise _refused(condition, f"it reads more than the view {view!r}")


def _is_any_of_list(node: dict[str, Any]) -> bool:
    """Whether a node is `x = ANY(list)`, which DuckDB has as a SELECT that reads no table."""
    select = (node.get("subquery") or {}).get("node") or {}
    made = select.get("select_list") or [{}]
    return (
        node.get("subquery_type") == "ANY"
        and select.get("type") == "SELECT_NODE"
        and (select.get("from_table") or {}).get("type") == "EMPTY"
        and len(made) == 1
        and made[0].get("class") == "FUNCTION"
        and made[0].get("function_name") == "unnest"
    )


def _refused(condition: str, why: str) -> StatementInvalid:
    return StatementInvalid(statement=shortened(condition), why=f"{why} (`where` is one condition on this view's rows)")


def offsets_where(rows: pa.Table, condition: str, *, bounds: Bounds, stoppable: Stoppable | None = None) -> pa.Table:
    """The `_offset` of each row for which a condition is true; `stoppable` is handed what ends it from another thread.

    It may take more than its bounds say, as any SQL may: conditions of visitors run in `headwater.services.statements`.

    >>> rows = pa.table({"_offset": [7, 8, 9], "amount": [1.0, None, 3.0]})
    >>> offsets_where(rows, "amount > 2", bounds=Bounds(threads_max=1)).to_pydict()
    {'_offset': [9]}
    """
    with (
        _bounded_database(bounds).cursor() as connection,
        Ending(connection.interrupt, condition, seconds_max=bounds.seconds_max) as ending,
    ):
        if stoppable is not None:
            stoppable(ending.stoppable())

        def relation() -> duckdb.DuckDBPyRelation:
            # DuckDB parses the condition by itself: text that would end it and begin something else is refused.
            return connection.from_arrow(ingestible(rows)).filter(condition).project('"_offset"')

        return run_duckdb(relation, condition, bounds, ending)


@cache
def _bounded_database(bounds: Bounds) -> duckdb.DuckDBPyConnection:
    """A database without data, kept since opening one takes longer than most conditions."""
    database: duckdb.DuckDBPyConnection = require("duckdb", extra="views").connect(":memory:")
    for setting in (
        "SET GLOBAL TimeZone = 'UTC'",
        "SET GLOBAL python_enable_replacements = false",
        *bounds.settings(),
        "SET enable_external_access = false",
        "SET lock_configuration = true",
    ):
        database.execute(setting)
    return database
