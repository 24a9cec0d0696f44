"""The 23 queries of Nexmark in DuckDB's SQL, over the tables `person`, `auction` and `bid`: what Headwater is compared with."""

from __future__ import annotations

from collections.abc import Mapping

#: The bids that came while their auction was open.
BIDS_IN_TIME = "auction a JOIN bid b ON a.id = b.auction AND b.at BETWEEN a.at AND a.expires"
#: The price, or the bidder, or the auction, of bids in each range of prices.
RANGES = {"low": "price < 10000", "middle": "price >= 10000 AND price < 1000000", "high": "price >= 1000000"}
DAY = "date_trunc('day', at)::TIMESTAMP AS window_start, window_start + INTERVAL 1 DAY AS window_end"


def statistics() -> str:
    counts = ["count(*) AS bids", "count(DISTINCT bidder) AS bidders", "count(DISTINCT auction) AS auctions"]
    for name, condition in RANGES.items():
        only = f"FILTER ({condition})"
        counts.append(f"count(*) {only} AS bids_{name}, count(DISTINCT bidder) {only} AS bidders_{name}")
        counts.append(f"count(DISTINCT auction) {only} AS auctions_{name}")
    return ", ".join(counts)


ANSWERS: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, at, extra FROM bid",
    "q1": "SELECT auction, bidder, price * 0.908::DOUBLE AS price, at, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT a.id AS auction, name, city, state FROM auction a JOIN person p ON a.seller = p.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, avg(highest) AS price
        FROM (SELECT a.id, category, max(price) AS highest FROM {BIDS_IN_TIME} GROUP BY ALL) GROUP BY ALL""",
    "q5": """WITH counts AS (
            SELECT time_bucket(INTERVAL 2 SECONDS, at) - hop * INTERVAL 2 SECONDS AS window_start,
                window_start + INTERVAL 10 SECONDS AS window_end, auction, count(*) AS bids
            FROM bid, range(5) hops(hop) GROUP BY ALL)
        SELECT *, rank() OVER (PARTITION BY window_start ORDER BY bids DESC) AS rank FROM counts QUALIFY rank = 1""",
    "q6": f"""WITH won AS (SELECT seller, a.id, expires, max(price) AS highest FROM {BIDS_IN_TIME} GROUP BY ALL),
            latest AS (
                SELECT *, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id) AS place FROM won
                QUALIFY place <= 10)
        SELECT seller, avg(highest) AS price FROM latest GROUP BY ALL""",
    "q7": """SELECT auction, bidder, price, at FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECONDS, at))""",
    "q8": """WITH buckets AS (SELECT DISTINCT seller, time_bucket(INTERVAL 10 SECONDS, at) AS window_start FROM auction)
        SELECT id, name, window_start FROM person p JOIN buckets b
        ON p.id = b.seller AND time_bucket(INTERVAL 10 SECONDS, p.at) = b.window_start""",
    "q9": f"""SELECT a.*, bidder, price, channel, url, b.at AS at_bid, b.extra AS extra_bid, 1 AS rank FROM {BIDS_IN_TIME}
        QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY price DESC, b.at) = 1""",
    "q10": """SELECT auction, bidder, price, at, extra, strftime(at, '%Y-%m-%d') AS day, strftime(at, '%H:%M') AS minute
        FROM bid""",
    "q11": """WITH begun AS (
            SELECT *, coalesce(at - lag(at) OVER (PARTITION BY bidder ORDER BY at) > INTERVAL 10 SECONDS, true) AS is_new
            FROM bid),
            numbered AS (SELECT *, sum(is_new::INT) OVER (PARTITION BY bidder ORDER BY at) AS session FROM begun)
        SELECT bidder, min(at) AS window_start, max(at) + INTERVAL 10 SECONDS AS window_end, count(*) AS bids
        FROM numbered GROUP BY bidder, session""",
    # Of windows of the clock only their sum is known before.
    "q12": "SELECT bidder, count(*) AS bids FROM bid GROUP BY ALL",
    "q13": """SELECT auction, bidder, price, at, 'value-' || (auction % 10000) AS value FROM bid""",
    "q14": """SELECT auction, bidder, price * 0.908::DOUBLE AS price, CASE WHEN hour(at) BETWEEN 8 AND 18 THEN 'day'
            WHEN hour(at) <= 6 OR hour(at) >= 20 THEN 'night' ELSE 'other' END AS time_of_day, at, extra,
            length(regexp_replace(extra, '[^c]', '', 'g')) AS letters_c
        FROM bid WHERE price * 0.908::DOUBLE > 1000000 AND price * 0.908::DOUBLE < 50000000""",
    "q15": f"SELECT {DAY}, {statistics()} FROM bid GROUP BY ALL",
    "q16": f"SELECT {DAY}, channel, strftime(max(at), '%H:%M') AS minute, {statistics()} FROM bid GROUP BY ALL",
    "q17": f"""SELECT {DAY}, auction, count(*) AS bids,
            {", ".join(f"count(*) FILTER ({condition}) AS bids_{name}" for name, condition in RANGES.items())},
            min(price) AS least, max(price) AS most, avg(price) AS mean, sum(price) AS sum
        FROM bid GROUP BY ALL""",
    "q18": """SELECT *, 1 AS rank FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY at DESC) = 1""",
    "q19": """SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, at) AS rank FROM bid
        QUALIFY rank <= 10""",
    "q20": """SELECT b.*, item, description, initial_bid, reserve, a.at AS at_auction, expires, seller, category
        FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
            WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
        FROM bid WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
        split_part(url, '/', 6) AS dir3 FROM bid""",
}
