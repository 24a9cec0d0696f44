"""The outputs of the company, the plain way: one row after the other, in Python, from what each output is said to be."""

from __future__ import annotations

import statistics
from collections import defaultdict
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import Any

from company.world import Row, Rows

Found = dict[str, list[Row]]


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def modelled(rows: Rows, late: dict[str, list[Row]]) -> Found:
    found: Found = {}
    found["live_sessions"] = sessions(without(rows["page_views"], late["live_sessions"]))
    found["top_pages"] = top_pages(rows["page_views"])
    found["visitors_per_minute"] = visitors(without(rows["page_views"], late["visitors_per_minute"]))
    found["page_views"] = letters([row for row in rows["page_views"] if row["visitor"] is None])
    found["clicked"] = clicked(rows)
    found["click_through"] = click_through(rows["searches"], found["clicked"])
    found["checked_payments"] = checked(rows)
    found["spending"] = spending(found["checked_payments"])
    readings = sorted(rows["readings"], key=lambda row: row["at"])
    by_machine: dict[str, list[Row]] = defaultdict(list)
    for row in readings:
        by_machine[row["machine"]].append(row)
    found["machine_percentiles"] = [percentiles(some) for some in by_machine.values()]
    found["overheating"] = [row for some in by_machine.values() for row in overheating(some)]
    found["compared_to_an_hour_ago"] = [row for some in by_machine.values() for row in compared(some)]
    found["news_alerts"] = news(rows["articles"])
    found["stored_searches"] = letters([row for row in rows["stored_searches"] if row["query"].count('"') % 2])
    found["home_timelines"] = timelines(rows)
    found["fraud_alerts"] = fraud(rows["payments"])
    return found


def without(rows: list[Row], late: list[Row]) -> list[Row]:
    """The rows that are not among the late ones: a row is known by its place."""
    places = {(row["_partition"], row["_offset"]) for row in late}
    return [row for row in rows if (row["_partition"], row["_offset"]) not in places]


def letters(rows: list[Row]) -> list[Row]:
    return [{"partition": row["_partition"], "offset": row["_offset"]} for row in rows]


def sessions(rows: list[Row]) -> list[Row]:
    gap = timedelta(seconds=20)
    open_: dict[str, Row] = {}
    done = []
    for row in sorted((row for row in rows if row["visitor"] is not None), key=lambda row: row["at"]):
        one = open_.get(row["visitor"])
        if one is None or row["at"] > one["window_end"]:
            one = open_[row["visitor"]] = {"visitor": row["visitor"], "window_start": row["at"], "pages": 0}
            done.append(one)
        one |= {"window_end": row["at"] + gap, "pages": one["pages"] + 1, "last_page": row["page"]}
    return done


def top_pages(rows: list[Row]) -> list[Row]:
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row["page"]] += 1
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
    return [{"rank": place + 1, "page": page, "views": views} for place, (page, views) in enumerate(best)]


def visitors(rows: list[Row]) -> list[Row]:
    groups: dict[tuple[str, datetime], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["city"], minute_of(row["at"])].append(row)
    return [
        {"city": city, "minute": minute, "visitors": len({one["visitor"] for one in some} - {None}), "pages": len(some)}
        for (city, minute), some in groups.items()
    ]


def clicked(rows: Rows) -> list[Row]:
    searches = {row["search"]: row for row in rows["searches"]}
    found = []
    for click in rows["clicks"]:
        search = searches[click["search"]]
        if timedelta() <= click["at"] - search["at"] <= timedelta(hours=1):
            found.append({**search, "clicked_at": click["at"]})
    return found


def click_through(searches: list[Row], chosen: list[Row]) -> list[Row]:
    counts: dict[tuple[str, datetime], list[int]] = defaultdict(lambda: [0, 0])
    for place, rows in enumerate((searches, chosen)):
        for row in rows:
            counts[row["url"], minute_of(row["at"])][place] += 1
    return [
        {"url": url, "minute": minute, "shown": shown, "clicked": hits, "rate": hits / shown}
        for (url, minute), (shown, hits) in counts.items()
    ]


def checked(rows: Rows) -> list[Row]:
    found = []
    for row in rows["payments"]:
        known = [card for card in rows["cards"] if card["card"] == row["card"] and card["since"] <= row["at"]]
        card = max(known, key=lambda one: one["since"])
        about = {name: card[name] for name in ("holder", "spending_limit")}
        found.append({**row, **about, "allowed": row["amount"] <= card["spending_limit"]})
    return found


def spending(rows: list[Row]) -> list[Row]:
    sums: dict[str, Row] = {}
    for row in rows:
        one = sums.setdefault(row["holder"], {"holder": row["holder"], "payments": 0, "spent": 0.0, "refused": 0})
        one["payments"] += 1
        one["spent"] += row["amount"] if row["allowed"] else 0.0
        one["refused"] += 0 if row["allowed"] else 1
    return list(sums.values())


def quantile(values: list[float], share: float) -> float:
    """Between the two nearest ranks, in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def percentiles(readings: list[Row]) -> Row:
    last = readings[-1]
    past = [row["celsius"] for row in readings if row["at"] >= last["at"] - timedelta(minutes=1)]
    return {**last, "median": quantile(past, 0.5), "p95": quantile(past, 0.95), "highest": max(past)}


def overheating(readings: list[Row]) -> list[Row]:
    found = []
    for place, row in enumerate(readings):
        past = [one["celsius"] for one in readings[max(0, place - 60) : place]]
        if len(past) < 20:
            continue
        usual = statistics.median(past)
        deviation = max(1.4826 * statistics.median(abs(value - usual) for value in past), 0.5)
        score = (row["celsius"] - usual) / deviation
        if score > 6:
            found.append({**row, "expected": usual, "upper": usual + 6 * deviation, "score": score})
    return found


def compared(readings: list[Row]) -> list[Row]:
    means = {
        minute: statistics.fmean(row["celsius"] for row in some)
        for minute, some in (
            (minute, list(some)) for minute, some in groupby(readings, lambda row: minute_of(row["at"]))
        )
    }
    machine = readings[0]["machine"]
    found: list[Row] = []
    for minute, mean in means.items():
        before: Any = means.get(minute - timedelta(hours=1))
        change = None if before is None else mean - before
        found.append({"machine": machine, "minute": minute, "celsius": mean, "an_hour_ago": before, "change": change})
    return found


def news(articles: list[Row]) -> list[Row]:
    found = []
    for row in articles:
        title = [word.strip(".:,").lower() for word in row["title"].split()]
        body = [word.strip(".:,").lower() for word in row["body"].split()]
        words = {*title, *body}
        phrases = {*pairwise(title), *pairwise(body)}
        about = {
            ("harbour in a storm", "Ines"): {"storm", "harbour"} <= words,
            ("cost of breakfast", "Hugo"): "prices" in words and bool({"bread", "milk"} & words),
            ("sport, but no football", "Mira"): "sport" in words and "football" not in words,
            ("to the stars", "Leo"): ("rocket", "launch") in phrases,
            ("news from Lisbon", "Rosa"): "lisbon" in title,
        }
        found += [{**row, "query_id": search, "reader": reader} for (search, reader), is_so in about.items() if is_so]
    return found


def timelines(rows: Rows) -> list[Row]:
    tweets = {row["tweet"]: row for row in rows["tweets"]}
    follows = {(row["reader"], row["author"]): row for row in rows["follows"]}
    return [
        {**tweet, "reader": reader}
        for tweet in tweets.values()
        for (reader, author), follow in follows.items()
        if not tweet["_tombstone"] and not follow["_tombstone"] and tweet["author"] == author
    ]


def fraud(payments: list[Row]) -> list[Row]:
    tried: dict[int, list[Row]] = defaultdict(list)
    found = []
    for row in sorted(payments, key=lambda row: row["at"]):
        small = [one for one in tried[row["card"]] if row["at"] - one["at"] <= timedelta(minutes=10)]
        if row["amount"] < 5:
            tried[row["card"]].append(row)
            continue
        tried[row["card"]] = []
        if row["amount"] > 500 and len(small) >= 2:
            found.append({**row, "tries": len(small), "began_at": small[0]["at"]})
    return found
