"""The 23 queries of Nexmark, as a stream and over bounded rows, give what DuckDB gives."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import nexmark
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

from benchmarks.nexmark.answers import ANSWERS
from headwater.testing import Nexmark
from headwater.testing.nexmark import SCHEMAS
from tests.operators.batches import duck
from tests.operators.stream_runs import Stream

EVENTS = Nexmark(seed=2, between="20 ms")
#: Forty seconds: enough for people to sell, auctions to end and sessions to close.
COUNT = 2_000
Answers = dict[str, Counter[str]]
#: Queries in one stream have operators of different settings: three of the queries begin with the same join.
STREAMS = [[name for name in nexmark.QUERIES if name not in ("q6", "q9")], ["q6"], ["q9"]]


def test_each_query_has_an_answer() -> None:
    assert list(nexmark.QUERIES) == list(ANSWERS) == [f"q{number}" for number in range(23)]
    with duck() as connection:
        for name, found in wanted(ANSWERS, connection).items():
            assert found, f"{name} gives nothing, which proves nothing"


@pytest.mark.parametrize("names", STREAMS, ids=["most", "q6", "q9"])
def test_a_stream_and_bounded_rows_give_what_duckdb_gives(
    spark: SparkSession, tmp_path: Path, names: list[str]
) -> None:
    topics = {name: {"schema": dict(schema), "time": "at"} for name, schema in SCHEMAS.items()}
    stream = Stream(spark, tmp_path, lambda *frames: together(names, dict(zip(SCHEMAS, frames, strict=True))), topics)
    with stream.log() as log:
        for first in range(0, COUNT, COUNT // 2):
            EVENTS.append(log, first=first, count=COUNT // 2)
            stream.run()
    stream.stop()
    stream.options["end_of_input"] = "true"
    stream.run()
    with duck() as connection:
        theirs = wanted(names, connection)
    ours = answers(stream.rows())
    for name in names:
        assert ours[name] == theirs[name], name
    # Bounded rows have no processing time.
    stream.build = lambda *frames: together(
        [name for name in names if name != "q12"], dict(zip(SCHEMAS, frames, strict=True))
    )
    ours = answers(stream.bounded())
    for name in names:
        assert name == "q12" or ours[name] == theirs[name], name


def together(names: Iterable[str], topics: Mapping[str, DataFrame]) -> DataFrame:
    """The results of several queries as one: the name of the query, what a row does, and the row as JSON."""
    found = []
    for name in names:
        query = nexmark.QUERIES[name]
        rows = query(*(topics[one] for one in inspect.signature(query).parameters))
        columns = [
            F.unix_micros(column.name).alias(column.name) if column.dataType.typeName() == "timestamp" else column.name
            for column in rows.schema
            if not column.name.startswith("_")
        ]
        op = F.col("_op") if "_op" in rows.columns else F.lit("+I")
        found.append(
            rows.select(F.lit(name).alias("query"), op.alias("op"), F.to_json(F.struct(*columns)).alias("row"))
        )
    return reduce(DataFrame.unionAll, found)


def answers(rows: Iterable[Mapping[str, Any]]) -> Answers:
    """What the changes of each query come to."""
    found: Answers = {}
    for change in rows:
        row = json.loads(change["row"])
        count = found.setdefault(change["query"], Counter())
        if change["query"] == "q12":  # its windows are those of the clock
            sign, bids = (-1 if change["op"] in ("-U", "-D") else 1), row["bids"]
            count[str(row["bidder"])] += sign * bids
        else:
            count[text(row)] += -1 if change["op"] in ("-U", "-D") else 1
    return {name: +count for name, count in found.items()} | {
        name: Counter() for name in nexmark.QUERIES if name not in found
    }


def wanted(names: Iterable[str], connection: Any) -> Answers:
    events = EVENTS.events(first=0, count=COUNT)
    for name, table in events._asdict().items():
        plain = [
            column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
            for column in table.columns
        ]
        connection.register(name, pa.table(plain, names=table.column_names))
    found: Answers = {}
    for name in names:
        quoted = re.sub(r"\bat\b", '"at"', ANSWERS[name])  # a word of DuckDB's own
        rows = connection.sql(quoted).to_arrow_table()
        plain = [
            column.cast(pa.timestamp("us")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in rows.columns
        ]
        given = pa.table(plain, names=rows.column_names).to_pylist()
        if name == "q12":
            found[name] = Counter({str(row["bidder"]): row["bids"] for row in given})
        else:
            found[name] = Counter(text(row) for row in given)
    return found


def text(row: Mapping[str, Any]) -> str:
    """A row such that two that are equal are the same text, from Spark or from DuckDB."""
    plain = {
        name: round(float(value), 4) if not isinstance(value, str) else value
        for name, value in row.items()
        if value is not None
    }
    return json.dumps(plain, sort_keys=True)
