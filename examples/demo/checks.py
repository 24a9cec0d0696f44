"""Every output of the three apps, recomputed by DuckDB from the input topics alone, and compared row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

INPUTS = ("payments", "impressions", "clicks", "readings", "limits")
TOPICS = ("paid", "stolen", "clicked", "alarms")
VIEWS = ("spend", "big_spenders", "click_through", "per_minute", "climate")

#: What the outputs should be. An hour late is too late for every query; nothing else is more than a minute late.
EXPECTED = {
    "paid": """
        select id, card, country, amount, "at" from payments where "at" > _appended_at - interval 30 minutes
        qualify row_number() over (partition by id order by "at", _offset) = 1""",
    "stolen": """
        select card, id, amount, "at" from expected_paid window one_card as (partition by card order by "at")
        qualify amount > 500 and lag(amount, 1) over one_card < 5 and lag(amount, 2) over one_card < 5""",
    "spend": "select card, count(*) as payments, round(sum(amount), 4) as total from expected_paid group by card",
    "big_spenders": "select * from expected_spend where total > 1000",
    "clicked": """
        select impression, ad, "at" from clicks where "at" > _appended_at - interval 30 minutes
        qualify row_number() over (partition by impression order by "at", _offset) = 1""",
    "click_through": """
        select ad, coalesce(shown, 0) as shown, coalesce(clicks, 0) as clicks,
               round(coalesce(clicks, 0) / shown, 6) as rate
        from (select ad, count(*) as shown from impressions group by ad)
        full join (select ad, count(*) as clicks from expected_clicked group by ad) using (ad)""",
    "per_minute": """
        select ad, time_bucket(interval 1 minute, "at") as minute, count(*) as clicks
        from expected_clicked group by all""",
    "climate": """
        select sensor, time_bucket(interval 1 minute, "at") as minute, round(avg(celsius), 6) as mean,
               max(celsius) as highest
        from readings where "at" > _appended_at - interval 30 minutes group by all""",
    "lake": 'select sensor, celsius, "at", cast("at" as date) as day from readings',
}
#: The columns of the outputs, as they are compared.
FOUND = {
    "paid": 'id, card, country, amount, "at"',
    "stolen": 'card, id, amount, "at"',
    "spend": "card, payments, round(total, 4) as total",
    "big_spenders": "card, payments, round(total, 4) as total",
    "clicked": 'impression, ad, "at"',
    "click_through": "ad, shown, clicks, round(rate, 6) as rate",
    "per_minute": "ad, minute, clicks",
    "climate": "sensor, minute, round(mean, 6) as mean, highest",
    "lake": 'sensor, celsius, "at", day',
}
#: A batch looks limits up as it begins, which is after its readings were appended: a reading meets the limit that was
#: in force then, or a later one; one whose batch was done before the limit changed has met the first. Above all that
#: it can have met, a reading must have raised an alarm; above one of them, it may have.
_MET = """
    create table met as
    select any_value(reading.sensor) as sensor, any_value(celsius) as celsius, any_value("at") as "at",
           min(celsius_max) as lowest, max(celsius_max) as highest
    from readings as reading
    join (select *, lead(_appended_at) over (partition by sensor order by _offset) as ended from limits) as term
    on term.sensor = reading.sensor and (ended is null or ended >= reading._appended_at)
    left join settled on settled._partition = reading._partition
    where reading._offset >= coalesce(settled.offset_next, 0) or term._appended_at <= reading._appended_at
    group by reading._partition, reading._offset"""
_ALARMS = """
    (select sensor, celsius, "at" from found_alarms except all select sensor, celsius, "at" from met where celsius > lowest)
    union all
    (select sensor, celsius, "at" from met where celsius > highest except all select sensor, celsius, "at" from found_alarms)
    union all
    (select sensor, celsius, "at" from found_alarms where celsius <= celsius_max
     or (sensor, celsius_max) not in (select (sensor, celsius_max) from limits))"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One output beside its recomputation."""

    name: str
    kind: str
    rows: int
    expected: str
    differing: int
    note: str = ""

    @property
    def is_equal(self) -> bool:
        return self.differing == 0


def compare(tables: Mapping[str, pa.Table], *, settled: Mapping[int, int]) -> list[Outcome]:
    """Recompute outputs. `tables` has the input topics, and the outputs to compare, by name.

    `settled` says how far `alarms` had read, partition by partition, just before the limit changed.
    """
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        for name, rows in tables.items():
            database.register(name if name in INPUTS else f"found_{name}", rows)
        ends = {
            "_partition": pa.array(settled.keys(), pa.int64()),
            "offset_next": pa.array(settled.values(), pa.int64()),
        }
        database.register("settled", pa.table(ends))
        outcomes = []
        for name, statement in EXPECTED.items():
            database.execute(f"create table expected_{name} as {statement}")
            outcomes += [_compared(database, name)] if name in tables else []
        database.execute(_MET)
        outcomes.append(_alarms(database))
    return outcomes


def _compared(database: duckdb.DuckDBPyConnection, name: str) -> Outcome:
    expected, found = f"select * from expected_{name}", f"select {FOUND[name]} from found_{name}"
    return Outcome(
        name=name,
        kind="view" if name in VIEWS else "topic" if name in TOPICS else "Parquet",
        rows=_count(database, found),
        expected=f"{_count(database, expected):,}",
        differing=_count(database, f"({found} except all {expected}) union all ({expected} except all {found})"),
    )


def _alarms(database: duckdb.DuckDBPyConnection) -> Outcome:
    sure = _count(database, "select 1 from met where celsius > highest")
    possible = _count(database, "select 1 from met where celsius > lowest")
    return Outcome(
        name="alarms",
        kind="topic",
        rows=_count(database, "select 1 from found_alarms"),
        expected=f"{sure:,}" if sure == possible else f"{sure:,} to {possible:,}",
        differing=_count(database, _ALARMS),
        note="" if sure == possible else "as the limit changed, either may hold",
    )


def _count(database: duckdb.DuckDBPyConnection, statement: str) -> int:
    ((number,),) = database.execute(f"select count(*) from ({statement})").fetchall()
    return int(number)
