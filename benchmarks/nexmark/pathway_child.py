"""Pathway in its own virtual environment: `python -m benchmarks.nexmark.pathway_child`.

Pathway reads all files as one static batch, which is what it is fastest with. It has no windows of the clock (q12). q6, q15,
q16 and q19 are left out: it has no last ten, no distinct counts under a condition and no first ten in words of its own.
It must not import anything of Headwater's.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pathway as pw

from benchmarks.nexmark.child import Changes, Request, serve
from benchmarks.nexmark.flink_child import TEXTS

# Any: tables of Pathway's, which are not known here.
Topics = Callable[[str], Any]
WINDOW_MS, HOP_MS = 10_000, 2_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NUMBER = re.compile(r"(&|^)channel_id=([^&]*)")
KNOWN = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def q0(topics: Topics) -> Any:
    bid = topics("bid")
    return bid.select(bid.auction, bid.bidder, bid.price, bid.at, bid.extra)


def q1(topics: Topics) -> Any:
    bid = topics("bid")
    return bid.select(bid.auction, bid.bidder, bid.at, bid.extra, price=bid.price * 0.908)


def q2(topics: Topics) -> Any:
    bid = topics("bid")
    return bid.filter(bid.auction % 123 == 0)


def q3(topics: Topics) -> Any:
    auction, person = topics("auction"), topics("person")
    local = person.filter((person.state == "OR") | (person.state == "ID") | (person.state == "CA"))
    items = auction.filter(auction.category == 10)
    return items.join(local, items.seller == local.id).select(local.name, local.city, local.state, auction=items["id"])


def _in_time(topics: Topics) -> Any:
    auction, bid = topics("auction"), topics("bid")
    met = auction.join(bid, pw.left["id"] == pw.right.auction)
    columns = {name: pw.left[name] for name in auction.column_names()}
    columns |= {f"{name}_bid" if name in columns else name: pw.right[name] for name in bid.column_names()}
    columns.pop("auction", None)
    rows = met.select(**columns)
    return rows.filter((rows.at_bid >= rows.at) & (rows.at_bid <= rows.expires))


def q4(topics: Topics) -> Any:
    rows = _in_time(topics)
    highest = rows.groupby(rows["id"], rows.category).reduce(rows.category, price=pw.reducers.max(rows.price))
    return highest.groupby(highest.category).reduce(highest.category, price=pw.reducers.avg(highest.price))


def q5(topics: Topics) -> Any:
    bid = topics("bid")
    window = pw.temporal.sliding(hop=HOP_MS, duration=WINDOW_MS)
    counts = bid.windowby(bid.at, window=window, instance=bid.auction).reduce(
        auction=pw.this._pw_instance,
        window_start=pw.this._pw_window_start,
        window_end=pw.this._pw_window_end,
        bids=pw.reducers.count(),
    )
    most = counts.groupby(counts.window_start).reduce(counts.window_start, most=pw.reducers.max(counts.bids))
    met = counts.join(most, pw.left.window_start == pw.right.window_start, pw.left.bids == pw.right.most)
    return met.select(pw.left.auction, pw.left.window_start, pw.left.window_end, pw.left.bids)


def q7(topics: Topics) -> Any:
    bid = topics("bid")
    bids = bid.with_columns(window=bid.at // WINDOW_MS)
    most = bids.groupby(bids.window).reduce(bids.window, most=pw.reducers.max(bids.price))
    met = bids.join(most, pw.left.window == pw.right.window, pw.left.price == pw.right.most)
    return met.select(pw.left.auction, pw.left.bidder, pw.left.price, pw.left.at)


def q8(topics: Topics) -> Any:
    person, auction = topics("person"), topics("auction")
    people = person.with_columns(window_start=person.at // WINDOW_MS * WINDOW_MS)
    items = auction.with_columns(window_start=auction.at // WINDOW_MS * WINDOW_MS)
    sellers = items.groupby(items.seller, items.window_start).reduce(items.seller, items.window_start)
    met = people.join(sellers, pw.left["id"] == pw.right.seller, pw.left.window_start == pw.right.window_start)
    return met.select(pw.left["id"], pw.left.name, pw.left.window_start)


def q9(topics: Topics) -> Any:
    rows = _in_time(topics)
    # The highest price, and of equal ones the earliest.
    ranked = rows.with_columns(order=rows.price * 2**34 - (rows.at_bid - rows.at))
    best = ranked.groupby(ranked["id"]).reduce(row=pw.reducers.argmax(ranked.order))
    return rows.ix(best.row)


def q11(topics: Topics) -> Any:
    bid = topics("bid")
    window = pw.temporal.session(predicate=lambda before, after: after - before <= WINDOW_MS)
    return bid.windowby(bid.at, window=window, instance=bid.bidder).reduce(
        bidder=pw.this._pw_instance, window_start=pw.this._pw_window_start, bids=pw.reducers.count()
    )


def q13(topics: Topics) -> Any:
    bid, side = topics("bid"), topics("side")
    bids = bid.with_columns(number=bid.auction % 10_000)
    met = bids.join(side, pw.left.number == pw.right.number)
    return met.select(pw.left.auction, pw.left.bidder, pw.left.price, pw.left.at, pw.right.value)


def q14(topics: Topics) -> Any:
    bid = topics("bid")
    hour = bid.at // HOUR_MS % 24
    night = pw.if_else((hour <= 6) | (hour >= 20), "night", "other")
    rows = bid.select(
        bid.auction,
        bid.bidder,
        bid.at,
        bid.extra,
        price=bid.price * 0.908,
        time_of_day=pw.if_else((hour >= 8) & (hour <= 18), "day", night),
        letters_c=bid.extra.str.count("c"),
    )
    return rows.filter((rows.price > 1_000_000) & (rows.price < 50_000_000))


def q17(topics: Topics) -> Any:
    bid = topics("bid")
    rows = bid.with_columns(
        window_start=bid.at // DAY_MS * DAY_MS,
        low=pw.if_else(bid.price < 10_000, 1, 0),
        middle=pw.if_else((bid.price >= 10_000) & (bid.price < 1_000_000), 1, 0),
        high=pw.if_else(bid.price >= 1_000_000, 1, 0),
    )
    return rows.groupby(rows.auction, rows.window_start).reduce(
        rows.auction,
        rows.window_start,
        bids=pw.reducers.count(),
        bids_low=pw.reducers.sum(rows.low),
        bids_middle=pw.reducers.sum(rows.middle),
        bids_high=pw.reducers.sum(rows.high),
        least=pw.reducers.min(rows.price),
        most=pw.reducers.max(rows.price),
        mean=pw.reducers.avg(rows.price),
        sum=pw.reducers.sum(rows.price),
    )


def q18(topics: Topics) -> Any:
    bid = topics("bid")
    last = bid.groupby(bid.bidder, bid.auction).reduce(row=pw.reducers.argmax(bid.at))
    return bid.ix(last.row)


def q20(topics: Topics) -> Any:
    auction, bid = topics("auction"), topics("bid")
    items = auction.filter(auction.category == 10)
    columns = {name: pw.left[name] for name in bid.column_names()}
    columns |= {"at_auction" if name == "at" else name: pw.right[name] for name in items.column_names() if name != "id"}
    return bid.join(items, pw.left.auction == pw.right["id"]).select(**columns)


def q21(topics: Topics) -> Any:
    bid = topics("bid")
    rows = bid.select(
        bid.auction, bid.bidder, bid.price, bid.channel, channel_id=pw.apply(channel_number, bid.channel, bid.url)
    )
    return rows.filter(rows.channel_id != "")


def channel_number(channel: str, url: str) -> str:
    """The number of a channel, from its name or from the address."""
    known = KNOWN.get(channel.lower())
    if known is not None:
        return known
    found = NUMBER.search(url)
    return found.group(2) if found else ""


def q22(topics: Topics) -> Any:
    bid = topics("bid")
    parts = {f"dir{n}": pw.apply(lambda url, n=n: url.split("/")[n + 2], bid.url) for n in (1, 2, 3)}
    typed = {name: pw.declare_type(str, part) for name, part in parts.items()}
    return bid.select(bid.auction, bid.bidder, bid.price, bid.channel, **typed)


QUERIES: Mapping[str, Callable[[Topics], Any]] = {
    one.__name__: one
    for one in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q13, q14, q17, q18, q20, q21, q22)
} | {"q10": q0}  # fmt: skip


def run(request: Request) -> Mapping[str, Any]:
    """Run a query over files; returns how long that took, with its planning."""
    query = QUERIES.get(request["query"])
    if query is None:
        return {"unsupported": "it has no words for it"}
    began = time.perf_counter()
    pw.internals.parse_graph.G.clear()
    rows = query(lambda topic: source(request, topic))
    folder = Path(request["files"])
    folder.mkdir(exist_ok=True)
    if request.get("collect"):
        pw.io.jsonlines.write(rows, str(folder / "rows"))
    elif request["query"] == "q10":
        pw.io.csv.write(rows, str(folder / "rows"))
    else:
        pw.io.null.write(rows)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - began
    if request.get("collect"):
        changes = Changes(request["collect"])
        for line in (folder / "rows").open(encoding="utf-8"):
            row = json.loads(line)
            row.pop("time")
            changes.add("+I" if row.pop("diff") > 0 else "-D", row)
        changes.close()
    shutil.rmtree(folder)
    return {"seconds": seconds}


def source(request: Request, topic: str) -> Any:
    """A topic as a table over its CSV files."""
    columns = ["number", "value"] if topic == "side" else request["columns"][topic]
    kinds = {column: str if column in (*TEXTS, "value") else int for column in columns}
    path = request["side"] if topic == "side" else request["csv"][topic]
    return pw.io.csv.read(path, schema=pw.schema_from_types(**kinds), mode="static")


if __name__ == "__main__":
    serve(run)
