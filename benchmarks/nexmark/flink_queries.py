"""The queries of Nexmark in Flink SQL. `event_time` is the time of an event, `at_ms` the same as a number.

q12 counts by ten seconds of the clock as they grow, as ours does: a window of Flink's own would keep what it has counted
last, since the end of the input closes no window of the clock. The side input of q13 is a table that is joined without a
bound, for Flink has no lookup in a file.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.nexmark.answers import RANGES

ALL_BID = "auction, bidder, price, channel, url, at_ms AS `at`, extra"
IN_TIME = "auction a JOIN bid b ON a.id = b.auction AND b.at_ms BETWEEN a.at_ms AND a.expires"
TUMBLE = "TABLE(TUMBLE(TABLE {topic}, DESCRIPTOR(event_time), INTERVAL '10' SECOND))"
HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(event_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
SESSION = "TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(event_time), INTERVAL '10' SECOND))"
DAY = "DATE_FORMAT(event_time, 'yyyy-MM-dd')"


def _statistics() -> str:
    found = "COUNT(*) AS bids, COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT auction) AS auctions"
    for name, condition in RANGES.items():
        only = f"FILTER (WHERE {condition})"
        found += f", COUNT(*) {only} AS bids_{name}, COUNT(DISTINCT bidder) {only} AS bidders_{name}"
        found += f", COUNT(DISTINCT auction) {only} AS auctions_{name}"
    return found


def _counts(over: str, by: str) -> str:
    return (
        f"SELECT {by}, window_start, window_end, COUNT(*) AS bids FROM {over} GROUP BY {by}, window_start, window_end"
    )


QUERIES: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, at_ms AS `at`, extra FROM bid",
    "q1": "SELECT auction, bidder, price * CAST(0.908 AS DOUBLE) AS price, at_ms AS `at`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT a.id AS auction, name, city, state FROM auction a JOIN person p ON a.seller = p.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, AVG(CAST(highest AS DOUBLE)) AS price
        FROM (SELECT a.id, category, MAX(price) AS highest FROM {IN_TIME} GROUP BY a.id, category) GROUP BY category""",
    "q5": f"""SELECT c.auction, c.bids, c.window_start, c.window_end FROM ({_counts(HOP, "auction")}) c
        JOIN (SELECT window_start, window_end, MAX(bids) AS most FROM ({_counts(HOP, "auction")})
            GROUP BY window_start, window_end) m
        ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.most""",
    "q6": f"""SELECT seller, AVG(CAST(highest AS DOUBLE)) AS price FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id) AS place
            FROM (SELECT seller, a.id, expires, MAX(price) AS highest FROM {IN_TIME} GROUP BY seller, a.id, expires))
        WHERE place <= 10 GROUP BY seller""",
    "q7": f"""SELECT b.auction, b.bidder, b.price, b.at_ms AS `at` FROM (SELECT * FROM {TUMBLE.format(topic="bid")}) b
        JOIN (SELECT window_start, window_end, MAX(price) AS highest FROM {TUMBLE.format(topic="bid")}
            GROUP BY window_start, window_end) m
        ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.highest""",
    "q8": f"""SELECT p.id, p.name, p.window_start FROM (SELECT * FROM {TUMBLE.format(topic="person")}) p
        JOIN (SELECT seller, window_start, window_end FROM {TUMBLE.format(topic="auction")}
            GROUP BY seller, window_start, window_end) s
        ON p.id = s.seller AND p.window_start = s.window_start AND p.window_end = s.window_end""",
    "q9": f"""SELECT id, item, description, initial_bid, reserve, `at`, expires, seller, category, extra, bidder, price,
            channel, url, at_bid, extra_bid FROM (
            SELECT a.id, item, description, initial_bid, reserve, a.at_ms AS `at`, expires, seller, category, a.extra,
                bidder, price, channel, url, b.at_ms AS at_bid, b.extra AS extra_bid,
                ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY price DESC, b.at_ms ASC) AS place FROM {IN_TIME})
        WHERE place <= 1""",
    "q10": f"""SELECT auction, bidder, price, at_ms AS `at`, extra, {DAY} AS `day`,
        DATE_FORMAT(event_time, 'HH:mm') AS `minute` FROM bid""",
    "q11": _counts(SESSION, "bidder"),
    "q12": """SELECT bidder, bucket, COUNT(*) AS bids FROM (SELECT bidder, UNIX_TIMESTAMP() / 10 AS bucket FROM bid)
        GROUP BY bidder, bucket""",
    "q13": """SELECT auction, bidder, price, at_ms AS `at`, side.`value` FROM (SELECT *, MOD(auction, 10000) AS number FROM bid) b
        JOIN side ON b.number = side.number""",
    "q14": """SELECT * FROM (SELECT auction, bidder, price * CAST(0.908 AS DOUBLE) AS price, CASE
                WHEN HOUR(event_time) BETWEEN 8 AND 18 THEN 'day'
                WHEN HOUR(event_time) <= 6 OR HOUR(event_time) >= 20 THEN 'night' ELSE 'other' END AS time_of_day,
            at_ms AS `at`, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS letters_c FROM bid)
        WHERE price > 1000000 AND price < 50000000""",
    "q15": f"SELECT {DAY} AS `day`, {_statistics()} FROM bid GROUP BY {DAY}",
    "q16": f"""SELECT channel, {DAY} AS `day`, MAX(DATE_FORMAT(event_time, 'HH:mm')) AS `minute`, {_statistics()}
        FROM bid GROUP BY channel, {DAY}""",
    "q17": f"""SELECT auction, {DAY} AS `day`, COUNT(*) AS bids,
        {", ".join(f"COUNT(*) FILTER (WHERE {condition}) AS bids_{name}" for name, condition in RANGES.items())},
        MIN(price) AS least, MAX(price) AS most, AVG(CAST(price AS DOUBLE)) AS mean, SUM(price) AS `sum`
        FROM bid GROUP BY auction, {DAY}""",
    "q18": f"""SELECT {ALL_BID} FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY event_time DESC) AS place FROM bid)
        WHERE place <= 1""",
    "q19": f"""SELECT {ALL_BID}, place AS `rank` FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, at_ms ASC) AS place FROM bid)
        WHERE place <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, b.at_ms AS `at`, extra, item, description, initial_bid, reserve,
        a.at_ms AS at_auction, expires, seller, category FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10""",
    "q21": """SELECT * FROM (SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple' THEN '0'
            WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE NULLIF(REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id FROM bid)
        WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
        SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid""",
}
