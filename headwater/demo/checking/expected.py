"""What each output should be, as one statement over the input topics, over late rows, and over outputs before it.

`late_…` has the rows that came too late for a query: those of its record that the input topics allow to be late.
`expected_…` is an output that stands further up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.demo.checking import finding, people


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
        statement=people.LIVE_SESSIONS,
    ),
    "top_pages": Output(kind="view", columns="rank, page, views", statement=people.TOP_PAGES),
    "visitors_per_minute": Output(
        kind="view", columns="city, minute, visitors, pages", statement=people.VISITORS_PER_MINUTE
    ),
    "page_views": Output(kind="dead letters", columns='partition, "offset"', statement=people.BROKEN_PAGE_VIEWS),
    "clicked": Output(kind="topic", columns='search, visitor, words, url, "at", clicked_at', statement=people.CLICKED),
    "click_through": Output(
        kind="view", columns="url, minute, shown, clicked, round(rate, 9) AS rate", statement=people.CLICK_THROUGH
    ),
    "checked_payments": Output(
        kind="topic",
        columns='payment, card, holder, amount, spending_limit, allowed, "at"',
        statement=finding.CHECKED_PAYMENTS,
    ),
    "spending": Output(
        kind="view", columns="holder, payments, round(spent, 6) AS spent, refused", statement=finding.SPENDING
    ),
    "machine_percentiles": Output(
        kind="view",
        columns='machine, celsius, "at", round(median, 9) AS median, round(p95, 9) AS p95, highest',
        statement=finding.MACHINE_PERCENTILES,
        where="machine <> 'end of day'",
    ),
    "overheating": Output(
        kind="topic",
        columns='machine, celsius, round(expected, 9) AS expected, round(upper, 9) AS upper, round(score, 9) AS score, "at"',
        statement=finding.OVERHEATING,
    ),
    "compared_to_an_hour_ago": Output(
        kind="view",
        columns="machine, minute, round(celsius, 9) AS celsius, round(an_hour_ago, 9) AS an_hour_ago, "
        "round(change, 9) AS change",
        statement=finding.COMPARED_TO_AN_HOUR_AGO,
        where="machine <> 'end of day'",
    ),
    "news_alerts": Output(
        kind="topic", columns="query_id, reader, article, title, published", statement=finding.NEWS_ALERTS
    ),
    "stored_searches": Output(kind="dead letters", columns='partition, "offset"', statement=finding.BROKEN_SEARCHES),
    "home_timelines": Output(kind="view", columns='reader, tweet, author, text, "at"', statement=people.HOME_TIMELINES),
    "fraud_alerts": Output(
        kind="topic", columns='card, tries, payment, shop, amount, began_at, "at"', statement=finding.FRAUD_ALERTS
    ),
}
#: The queries that keep a record of late rows, in the topic of their name and `.late`; and when a page can be late at all.
LATE = {"live_sessions": people.LATE_FOR_SESSIONS, "visitors_per_minute": people.LATE_FOR_MINUTES}
