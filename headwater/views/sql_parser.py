"""What a statement says before it is run: which tables it reads, which of their columns, and from which offsets on.

DuckDB parses it; its tree comes as JSON. Whatever cannot be told for sure is read: too much is only slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, kw_only=True)
class TableName:
    """A table as a statement names it: `payments`, `log.payments`."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A condition on one of the log's own columns that every row of the result meets."""

    column: str
    comparison: str
    value: int | str


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The tables of a statement, how often each is read, and what is known of their columns."""

    tables: dict[TableName, int] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    whole_rows: bool = False
    bounds: tuple[Bound, ...] = ()
    #: Whether it reads anything but tables by their names, such as `query_table('spend')`.
    reads_more: bool = True

    def needs(self, column: str) -> bool:
        """Whether a column may be asked for; names are the same in any case, as SQL has it."""
        return self.whole_rows or column.lower() in self.words


def parse(connection: duckdb.DuckDBPyConnection, statement: str) -> Parsed:
    """What a statement that has been checked says.

    >>> import duckdb
    >>> found = parse(duckdb.connect(), "SELECT sum(amount) FROM log.payments WHERE _offset >= 10 AND card = 3")
    >>> [str(table) for table in found.tables], found.needs("card"), found.needs("shop"), found.bounds
    (['log.payments'], True, False, (Bound(column='_offset', comparison='>=', value=10),))
    """
    [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    tree = orjson.loads(text)
    if tree.get("error", True):
        return Parsed(whole_rows=True)
    nodes = list(nodes_of(tree))
    has_ctes = any(_ctes(node) for node in nodes)
    tables: dict[TableName, int] = {}
    aliases: set[str] = set()
    for node in _tables(tree, frozenset()):
        name = TableName(schema=node["schema_name"], name=node["table_name"])
        # A common table expression may be read as often as it is named.
        tables[name] = tables.get(name, 0) + (2 if has_ctes else 1)
        aliases |= {node["table_name"].lower(), str(node.get("alias") or node["table_name"]).lower()}
    words = frozenset(text.lower() for text in _texts(tree))
    return Parsed(
        tables=tables,
        words=words,
        whole_rows=any(_takes_whole_rows(node, aliases) for node in nodes),
        bounds=_bounds(tree) if sum(tables.values()) == 1 else (),
        reads_more=any(node.get("type") in ("TABLE_FUNCTION", "SHOW_REF") for node in nodes),
    )


#: What is never larger than what it is made of, and takes no time to speak of.
_SMALL_CLASSES = ("COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "BETWEEN", "PARAMETER", "CASE", "STAR")
_SMALL_OPERATORS = (
    "OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_COALESCE",
)  # fmt: skip
_SMALL_FUNCTIONS = frozenset(
    [
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "~~",
        "!~~",
        "~~*",
        "!~~*",
        "abs",
        "any_value",
        "arg_max",
        "arg_min",
        "avg",
        "bool_and",
        "bool_or",
        "ceil",
        "count",
        "count_star",
        "date_part",
        "date_trunc",
        "day",
        "epoch",
        "epoch_ms",
        "epoch_us",
        "first",
        "floor",
        "greatest",
        "hour",
        "last",
        "least",
        "length",
        "lower",
        "ltrim",
        "max",
        "min",
        "minute",
        "month",
        "round",
        "rtrim",
        "second",
        "sum",
        "time_bucket",
        "trim",
        "upper",
        "year",
    ]
)
_TABLE_KINDS = ("JOIN", "SUBQUERY", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "COLUMN_DATA", "SHOW_REF", "PIVOT")


def is_plain(connection: duckdb.DuckDBPyConnection, statement: str) -> bool:
    """Whether a statement takes no more than a look at all rows of one table does, whatever stands in it.

    Functions of which one call can take any memory, or joins that can take any time, are not plain.

    >>> import duckdb
    >>> is_plain(duckdb.connect(), "SELECT card, sum(total) FROM spend WHERE total > 3 GROUP BY card")
    True
    >>> is_plain(duckdb.connect(), "SELECT repeat('a', 3000000000) FROM spend")
    False
    """
    [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    tree = orjson.loads(text)
    if tree.get("error", True) or len(tree["statements"]) != 1:
        return False
    nodes = list(nodes_of(tree))
    tables = [node for node in nodes if node.get("type") == "BASE_TABLE"]
    return len(tables) == 1 and not tables[0]["schema_name"] and all(map(_is_small, nodes))


def _is_small(node: dict[str, Any]) -> bool:
    kind, part = str(node.get("type", "")), node.get("class")
    if part == "FUNCTION":
        return str(node.get("function_name", "")).lower() in _SMALL_FUNCTIONS and not node.get("schema")
    if part == "OPERATOR":
        return kind in _SMALL_OPERATORS
    if part is not None:
        return part in _SMALL_CLASSES
    return not _ctes(node) and kind not in _TABLE_KINDS and (not kind.endswith("_NODE") or kind == "SELECT_NODE")


# Any: a parsed tree of JSON.
def nodes_of(tree: Any) -> Iterator[dict[str, Any]]:
    """Every node of a tree."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from nodes_of(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes_of(value)


def _tables(tree: Any, known: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The tables that are named, but for common table expressions where these can be seen.

    `WITH spend AS (SELECT * FROM spend)` reads the table: a name is there only behind its own definition, and in the
    part of a recursive one that comes again.
    """
    if isinstance(tree, list):
        for value in tree:
            yield from _tables(value, known)
    if not isinstance(tree, dict):
        return
    if tree.get("type") == "BASE_TABLE" and (tree["schema_name"] or tree["table_name"].lower() not in known):
        yield tree
    for entry in _ctes(tree):
        yield from _tables(entry.get("value"), known)
        known |= {str(entry["key"]).lower()}
    own = str(tree["cte_name"]).lower() if tree.get("type") == "RECURSIVE_CTE_NODE" else None
    for name, value in tree.items():
        if name != "cte_map":
            yield from _tables(value, known | {own} if own is not None and name == "right" else known)


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _texts(value)


def _ctes(node: dict[str, Any]) -> list[dict[str, Any]]:
    found = node.get("cte_map")
    return found.get("map", []) if isinstance(found, dict) else []


def _takes_whole_rows(node: dict[str, Any], aliases: set[str]) -> bool:
    if node.get("class") == "STAR" or node.get("ref_type") in ("NATURAL", "POSITIONAL"):
        return True
    names: list[str] = node.get("column_names", []) if node.get("class") == "COLUMN_REF" else []
    return len(names) == 1 and names[0].lower() in aliases


_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
}
_MIRRORED = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
_MOMENTS = ("timestamp", "timestamptz", "timestamp with time zone")
_OWN = ("_partition", "_offset", "_appended_at")


def _bounds(tree: dict[str, Any]) -> tuple[Bound, ...]:
    """The conditions on the log's own columns that stand alone in the WHERE of a statement over one table."""
    node = tree["statements"][0]["node"]
    if node.get("type") != "SELECT_NODE" or (node.get("from_table") or {}).get("type") != "BASE_TABLE":
        return ()
    return tuple(bound for term in _terms(node.get("where_clause")) if (bound := _bound(term)) is not None)


def _terms(condition: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(condition, dict):
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition.get("children", []):
            yield from _terms(child)
    else:
        yield condition


def _bound(term: dict[str, Any]) -> Bound | None:
    comparison = _COMPARISONS.get(str(term.get("type")))
    if comparison is None:
        return None
    for column, value, sign in (
        (term["left"], term["right"], comparison),
        (term["right"], term["left"], _MIRRORED[comparison]),
    ):
        name = column["column_names"][-1].lower() if column.get("class") == "COLUMN_REF" else ""
        constant = _constant(value)
        if name in _OWN and constant is not None:
            return Bound(column=name, comparison=sign, value=constant)
    return None


def _constant(node: dict[str, Any]) -> int | str | None:
    if node.get("class") == "CAST":
        # Other casts may change the value: a moment as a date is its midnight.
        kind = str((node.get("type_expr") or {}).get("type_name", "")).lower()
        return _constant(node.get("child", {})) if kind in _MOMENTS else None
    literal = node.get("literal") if node.get("class") == "CONSTANT" else None
    if not isinstance(literal, dict):
        return None
    text = str(literal.get("text", ""))
    if literal.get("kind") == "INTEGER":
        return int(text) if text.lstrip("-").isdigit() else None
    return text if literal.get("kind") == "STRING" else None
