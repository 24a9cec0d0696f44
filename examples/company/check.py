"""Recompute every output of the company with DuckDB, from the input topics and the record of late rows alone.

What an output should be is said once more here, in SQL and from its definition. This module may import neither the app,
its operators nor Spark: a contract of the import linter and a test check that.

`late_…` has the rows that came too late for a query: those of its record that the input topics allow to be late.
`expected_…` is an output further up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import duckdb
import pyarrow as pa

# -- people: sessions, pages, searches, clicks and timelines -----------------------------------------------------------

#: The latest time that a query can have known when it met a page: that of all pages that were sent before or with it. A
#: query knows less where its batches are larger, so a page may be late by this time and in time for the query; a page
#: that is in time by it is in time for every query.
KNOWN = """
    select *, max("at") over (order by _sent_at range between unbounded preceding and current row) as latest
    from page_views"""

#: A session of its own would have ended, and thirty seconds more have passed.
LATE_FOR_SESSIONS = '"at" + interval 20 seconds + interval 30 seconds <= latest'

#: Its minute has ended, the ten for corrections are over, and thirty seconds more have passed.
LATE_FOR_MINUTES = """
    date_trunc('minute', "at") + interval 1 minute + interval 10 minutes + interval 30 seconds <= latest"""

#: A session is a run of pages with no more than twenty seconds between two of them.
LIVE_SESSIONS = """
    with in_time as (
        select visitor, page, "at" from page_views where visitor is not null
        except all select visitor, page, "at" from late_live_sessions),
    apart as (
        select *, coalesce("at" - lag("at") over one_visitor > interval 20 seconds, true) as begins
        from in_time window one_visitor as (partition by visitor order by "at")),
    numbered as (
        select *, count(*) filter (begins) over (partition by visitor order by "at" rows unbounded preceding) as number
        from apart)
    select visitor, min("at") as window_start, max("at") + interval 20 seconds as window_end, count(*) as pages,
           arg_max(page, "at") as last_page
    from numbered group by visitor, number"""

TOP_PAGES = """
    select row_number() over (order by views desc, page) as rank, page, views
    from (select page, count(*) as views from page_views group by page) qualify rank <= 10"""

VISITORS_PER_MINUTE = """
    select city, date_trunc('minute', "at") as minute, count(distinct visitor) as visitors, count(*) as pages
    from (select city, visitor, "at" from page_views except all select city, visitor, "at" from late_visitors_per_minute)
    group by all"""

#: They belong to no session.
BROKEN_PAGE_VIEWS = 'select _partition as partition, _offset as "offset" from page_views where visitor is null'

CLICKED = """
    select search, visitor, words, url, searches."at" as "at", clicks."at" as clicked_at
    from searches join clicks using (search)
    where clicks."at" between searches."at" and searches."at" + interval 1 hour"""

CLICK_THROUGH = """
    with counts as (
        select url, date_trunc('minute', "at") as minute, 1 as shown, 0 as clicked from searches
        union all select url, date_trunc('minute', "at"), 0, 1 from expected_clicked)
    select url, minute, sum(shown) as shown, sum(clicked) as clicked,
           round(case when sum(shown) > 0 then sum(clicked) / sum(shown) end, 9) as rate
    from counts group by url, minute"""

#: Of each key the last row counts, and none where that is a tombstone.
HOME_TIMELINES = """
    with written as (
        select * from tweets qualify row_number() over (partition by tweet order by _offset desc) = 1),
    followed as (
        select * from follows qualify row_number() over (partition by reader, author order by _offset desc) = 1)
    select reader, tweet, author, text, "at" from written join followed using (author)
    where not coalesce(written._tombstone, false) and not coalesce(followed._tombstone, false)"""


# -- payments, temperatures and news ----------------------------------------------------------------------------------

CHECKED_PAYMENTS = """
    select payment, payments.card as card, holder, amount, spending_limit, amount <= spending_limit as allowed, "at"
    from payments asof left join cards on payments.card = cards.card and payments."at" >= cards.since"""

SPENDING = """
    select holder, count(*) as payments, round(sum(case when allowed then amount else 0 end), 6) as spent,
           count(*) filter (not allowed) as refused
    from expected_checked_payments where holder is not null group by holder"""

#: Small payments and the first that is not small share a number: how many were not small before them.
FRAUD_ALERTS = """
    with numbered as (
        select *, coalesce(count(*) filter (amount >= 5) over (
            partition by card order by "at", _offset rows between unbounded preceding and 1 preceding), 0) as run
        from payments),
    tried as (select * from numbered where amount < 5),
    spent as (select * from numbered where amount > 500)
    select card, count(*) as tries, spent.payment as payment, any_value(spent.shop) as shop,
           any_value(spent.amount) as amount, min(tried."at") as began_at, any_value(spent."at") as "at"
    from tried join spent using (card, run)
    where spent."at" - tried."at" <= interval 10 minutes
    group by card, spent.payment having count(*) >= 2"""

MACHINE_PERCENTILES = """
    select machine, celsius, "at", round(quantile_cont(celsius, 0.5) over past, 9) as median,
           round(quantile_cont(celsius, 0.95) over past, 9) as p95, max(celsius) over past as highest
    from readings where machine <> 'end of day'
    window past as (
        partition by machine order by "at" range between interval 1 minute preceding and current row)
    qualify row_number() over (partition by machine order by "at" desc) = 1"""

#: The sixty values before a reading say what is usual: their median, and the median distance from it.
OVERHEATING = """
    with judged as (
        select *, median(celsius) over past as expected, count(*) over past as known,
               greatest(1.4826 * mad(celsius) over past, 0.5) as deviation
        from readings where machine <> 'end of day'
        window past as (partition by machine order by "at" rows between 60 preceding and 1 preceding))
    select machine, celsius, round(expected, 9) as expected, round(expected + 6 * deviation, 9) as upper,
           round((celsius - expected) / deviation, 9) as score, "at"
    from judged where known >= 20 and (celsius - expected) / deviation > 6"""

COMPARED_TO_AN_HOUR_AGO = """
    with minutes as (
        select machine, date_trunc('minute', "at") as minute, avg(celsius) as celsius
        from readings where machine <> 'end of day' group by all)
    select now.machine as machine, now.minute as minute, round(now.celsius, 9) as celsius,
           round(before.celsius, 9) as an_hour_ago, round(now.celsius - before.celsius, 9) as change
    from minutes as now left join minutes as before
    on now.machine = before.machine and before.minute = now.minute - interval 1 hour"""

#: What the stored searches mean, said in another language than theirs.
NEWS_ALERTS = r"""
    with words as (select *, lower(title || ' | ' || body) as text from articles),
    meant(query_id, reader, pattern, further, unwanted, place) as (values
        ('harbour in a storm', 'Ines', '\bstorm\b', '\bharbour\b', '^$', 'text'),
        ('cost of breakfast', 'Hugo', '\bprices\b', '\b(bread|milk)\b', '^$', 'text'),
        ('sport, but no football', 'Mira', '\bsport\b', '', '\bfootball\b', 'text'),
        ('to the stars', 'Leo', '\brocket launch\b', '', '^$', 'text'),
        ('news from Lisbon', 'Rosa', '\blisbon\b', '', '^$', 'title'))
    select query_id, reader, article, title, published from words join meant
    on regexp_matches(case place when 'title' then lower(title) else text end, pattern)
       and regexp_matches(text, further) and not regexp_matches(text, unwanted)"""

#: A quotation mark that is never closed.
BROKEN_SEARCHES = """
    select _partition as partition, _offset as "offset" from stored_searches
    where (length(query) - length(replace(query, '"', ''))) % 2 = 1"""


# -- the outputs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Output:
    """An output: where it is kept, the columns to compare, and the statement that gives them."""

    kind: Literal["view", "topic", "dead letters"]
    columns: str
    statement: str
    where: str = "true"
    """Which of its rows are compared: rows that only end the day are not."""


#: In the order in which they are computed; each after those that it reads.
EXPECTED: dict[str, Output] = {
    "live_sessions": Output(
        kind="view",
        columns="visitor, window_start, window_end, pages, last_page",
        statement=LIVE_SESSIONS,
    ),
    "top_pages": Output(kind="view", columns="rank, page, views", statement=TOP_PAGES),
    "visitors_per_minute": Output(kind="view", columns="city, minute, visitors, pages", statement=VISITORS_PER_MINUTE),
    "page_views": Output(kind="dead letters", columns='partition, "offset"', statement=BROKEN_PAGE_VIEWS),
    "clicked": Output(kind="topic", columns='search, visitor, words, url, "at", clicked_at', statement=CLICKED),
    "click_through": Output(
        kind="view", columns="url, minute, shown, clicked, round(rate, 9) AS rate", statement=CLICK_THROUGH
    ),
    "checked_payments": Output(
        kind="topic",
        columns='payment, card, holder, amount, spending_limit, allowed, "at"',
        statement=CHECKED_PAYMENTS,
    ),
    "spending": Output(kind="view", columns="holder, payments, round(spent, 6) AS spent, refused", statement=SPENDING),
    "machine_percentiles": Output(
        kind="view",
        columns='machine, celsius, "at", round(median, 9) AS median, round(p95, 9) AS p95, highest',
        statement=MACHINE_PERCENTILES,
        where="machine <> 'end of day'",
    ),
    "overheating": Output(
        kind="topic",
        columns='machine, celsius, round(expected, 9) AS expected, round(upper, 9) AS upper, round(score, 9) AS score, "at"',
        statement=OVERHEATING,
    ),
    "compared_to_an_hour_ago": Output(
        kind="view",
        columns="machine, minute, round(celsius, 9) AS celsius, round(an_hour_ago, 9) AS an_hour_ago, "
        "round(change, 9) AS change",
        statement=COMPARED_TO_AN_HOUR_AGO,
        where="machine <> 'end of day'",
    ),
    "news_alerts": Output(kind="topic", columns="query_id, reader, article, title, published", statement=NEWS_ALERTS),
    "stored_searches": Output(kind="dead letters", columns='partition, "offset"', statement=BROKEN_SEARCHES),
    "home_timelines": Output(kind="view", columns='reader, tweet, author, text, "at"', statement=HOME_TIMELINES),
    "fraud_alerts": Output(
        kind="topic", columns='card, tries, payment, shop, amount, began_at, "at"', statement=FRAUD_ALERTS
    ),
}
#: The queries that keep a record of late rows, in the topic of their name and `.late`; and when a page can be late at all.
LATE = {"live_sessions": LATE_FOR_SESSIONS, "visitors_per_minute": LATE_FOR_MINUTES}


#: All columns of a page view.
PAGE = 'visitor, city, page, "at"'


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One output beside its recomputation. A row that is wrong is lost once, and there once too often."""

    name: str
    kind: str
    expected: int
    got: int
    lost: int
    doubled: int

    @property
    def holds(self) -> bool:
        """Whether it is right; an output without rows proves nothing, and so is not."""
        return self.lost == 0 and self.doubled == 0 and self.got > 0


def compare(
    inputs: Mapping[str, pa.Table], outputs: Mapping[str, pa.Table], *, late: Mapping[str, pa.Table]
) -> list[Outcome]:
    """Recompute the outputs that are given, by name. `late` has the record of late rows by the name of the query."""
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        for name, rows in inputs.items():
            database.register(name, rows)
        for name in LATE:
            database.register(f"recorded_{name}", late[name])
            database.execute(f"create table late_{name} as {_allowed(name)}")
        for name, output in EXPECTED.items():
            database.execute(f"create table expected_{name} as {output.statement}")
        # Only now: no statement can look at what it is to be compared with.
        for name, rows in outputs.items():
            database.register(f"found_{name}", rows)
        outcomes = [_compared(database, name) for name in EXPECTED if name in outputs]
        return outcomes + [_recorded(database, name) for name in LATE]


def _allowed(name: str) -> str:
    """The rows of a record that were appended, as often as they were, and that can have been late."""
    can_be_late = f"select {PAGE} from ({KNOWN}) where {LATE[name]}"
    return f"select {PAGE} from recorded_{name} intersect all {can_be_late}"


def _compared(database: duckdb.DuckDBPyConnection, name: str) -> Outcome:
    output = EXPECTED[name]
    expected = f"select * from expected_{name}"
    found = f"select {output.columns} from found_{name} where {output.where}"
    return Outcome(name=name, kind=output.kind, **_counts(database, expected, found))


def _recorded(database: duckdb.DuckDBPyConnection, name: str) -> Outcome:
    """The record of late rows itself: a row that was never appended, or that was in time, is there once too often."""
    found = f"select {PAGE} from recorded_{name}"
    expected = f"select * from late_{name}"
    return Outcome(name=f"{name}.late", kind="late rows", **_counts(database, expected, found))


def _counts(database: duckdb.DuckDBPyConnection, expected: str, found: str) -> dict[str, int]:
    statements = {
        "expected": expected,
        "got": found,
        "lost": f"({expected}) except all ({found})",
        "doubled": f"({found}) except all ({expected})",
    }
    return {name: _count(database, statement) for name, statement in statements.items()}


def _count(database: duckdb.DuckDBPyConnection, statement: str) -> int:
    ((number,),) = database.execute(f"select count(*) from ({statement})").fetchall()
    return int(number)
