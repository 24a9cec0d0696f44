"""The nine workloads in DuckDB's SQL, and whether what an engine wrote is what DuckDB answers. Times are whole microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from benchmarks.peers.data import BID, OFFER, VIEW, Data

WINDOW_US, HOP_US, GAP_US = 10_000_000, 2_000_000, 10_000_000
#: The workload whose answer is an estimate, and how far off it may be: five standard errors.
ESTIMATED, ERROR_MAX = "w9", 0.25
START = f"epoch_us(at) // {WINDOW_US} * {WINDOW_US} AS start_us"

#: The topics that a workload reads.
TOPICS: Mapping[str, tuple[str, ...]] = {
    **{f"w{number}": (BID,) for number in (1, 2, 3, 4, 6, 7, 8, 9)},
    "w5": (OFFER, VIEW),
}
ANSWERS: Mapping[str, str] = {
    "w1": "SELECT auction, bidder, price * 0.908::DOUBLE AS euros, epoch_us(at) AS at_us FROM bid WHERE price > 5000",
    "w2": f"SELECT auction, {START}, count(*) AS bids, sum(price)::BIGINT AS total FROM bid GROUP BY ALL",
    "w3": f"""WITH counts AS (
            SELECT (epoch_us(at) // {HOP_US} - hop) * {HOP_US} AS start_us, auction, count(*) AS bids
            FROM bid, range({WINDOW_US // HOP_US}) hops(hop) GROUP BY ALL)
        SELECT start_us, bids, auction FROM counts
        QUALIFY row_number() OVER (PARTITION BY start_us ORDER BY bids DESC, auction DESC) = 1""",
    "w4": f"""WITH begun AS (
            SELECT *, coalesce(epoch_us(at) - lag(epoch_us(at)) OVER bids_of > {GAP_US}, true) AS is_new
            FROM bid WINDOW bids_of AS (PARTITION BY bidder ORDER BY at)),
            numbered AS (SELECT *, sum(is_new::INT) OVER (PARTITION BY bidder ORDER BY at) AS number FROM begun)
        SELECT bidder, min(epoch_us(at)) AS start_us, count(*) AS bids, sum(price)::BIGINT AS total
        FROM numbered GROUP BY bidder, number""",
    "w5": f"""SELECT o.bidder, epoch_us(o.at) // {WINDOW_US} * {WINDOW_US} AS start_us, o.price, v.auction
        FROM offer o JOIN view v
        ON o.bidder = v.bidder AND epoch_us(o.at) // {WINDOW_US} = epoch_us(v.at) // {WINDOW_US}""",
    "w6": "SELECT auction, bidder, price, seller, reserve FROM bid JOIN items USING (auction)",
    "w7": """SELECT bidder, first, second, third, at_us FROM (
            SELECT bidder, epoch_us(at) AS at_us, price AS third, lag(price) OVER bids_of AS second,
                lag(price, 2) OVER bids_of AS first
            FROM bid WINDOW bids_of AS (PARTITION BY bidder ORDER BY at))
        WHERE second >= 2 * first AND third >= 2 * second""",
    "w8": f"SELECT auction % 100 AS category, {START}, max(price, 10) AS prices FROM bid GROUP BY ALL",
    "w9": f"SELECT auction % 100 AS category, {START}, count(DISTINCT bidder) AS bidders FROM bid GROUP BY ALL",
}


class AnswerWrong(Exception):
    """An engine wrote other rows than DuckDB answers."""


def check(workload: str, data: Data, out: Path, *, whole: bool) -> int:
    """Raise unless the Parquet files have the rows of the answer; how many they are.

    Not `whole`: the last windows may be missing, since Spark ends a query while they are open.
    """
    with duckdb.connect() as duck:
        for topic in TOPICS[workload]:
            files = str(data.parquet(topic) / "*.parquet")
            duck.sql(f"""CREATE VIEW {topic} AS SELECT * REPLACE ("at"::TIMESTAMP AS "at") FROM '{files}'""")
        duck.sql(f"CREATE VIEW items AS SELECT * FROM '{data.items / '*.parquet'}'")
        answer = ANSWERS[workload].replace("(at)", '("at")').replace("BY at", 'BY "at"').replace(".at)", '."at")')
        duck.sql("SET TimeZone = 'UTC'")
        duck.sql(f"CREATE TEMP TABLE expected AS {answer}")
        columns = ", ".join(name for name in duck.table("expected").columns)
        duck.sql(f"CREATE TEMP TABLE given AS SELECT {columns} FROM '{out / '*.parquet'}'")
        rows, wanted = (_number(duck, f"SELECT count(*) FROM {one}") for one in ("given", "expected"))
        if workload == ESTIMATED:
            _check_estimates(duck, rows)
        else:
            more = _number(duck, "SELECT count(*) FROM (FROM given EXCEPT ALL FROM expected)")
            if more:
                raise AnswerWrong(f"{more} rows of {rows} are not in DuckDB")
        if not rows or (whole and rows != wanted):
            raise AnswerWrong(f"{rows} rows, and {wanted} in DuckDB")
    return rows


def _number(duck: duckdb.DuckDBPyConnection, query: str) -> int:
    found = duck.execute(query).fetchone()
    return 0 if found is None or found[0] is None else int(found[0])


def _check_estimates(duck: duckdb.DuckDBPyConnection, rows: int) -> None:
    off = f"abs(g.bidders - e.bidders) <= {ERROR_MAX} * e.bidders"
    near = _number(duck, f"SELECT count(*) FROM given g JOIN expected e USING (category, start_us) WHERE {off}")
    if near < rows:
        raise AnswerWrong(f"{rows - near} of {rows} estimates are off by more than {ERROR_MAX:.0%}")
