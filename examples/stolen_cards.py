"""Stolen cards: a card that is tried with small payments and then used for a large one is blocked from then on.

headwater run examples/stolen_cards.py
headwater sql "select * from blocked"
headwater tail tried
"""

from __future__ import annotations

from pyspark.sql import DataFrame

import headwater as hw
from headwater.operators import Enrich, Match

app = hw.App("stolen_cards", log="./data")
app.input(
    "card_payments",
    {"id": "int64", "card": "int64", "amount": "float64", "at": "timestamp"},
    key="card",
    time=hw.EventTime("at", delay="5 seconds"),
    partitions=2,
)

TRIED_OUT = """
    PARTITION BY card
    ORDER BY at
    MEASURES COUNT(small.*) AS tries, big.amount AS loss, big.id AS payment, big.at AS blocked_at
    PATTERN (small{2,} big)
    WITHIN INTERVAL '10' MINUTE
    DEFINE small AS amount < 5, big AS amount > 100 * AVG(small.amount)
"""


@app.view(key="card", side_outputs={"timed_out": "tried"})
def blocked(card_payments: DataFrame) -> DataFrame:
    """Cards that were tried out and then used; those that were only tried go to the topic `tried`."""
    return card_payments.transform(Match(TRIED_OUT))


@app.topic(key="card")
def decided(card_payments: DataFrame, blocked: hw.Table) -> DataFrame:
    """Each payment, accepted unless its card is blocked by now: the view above is the table that it is looked up in."""
    known = card_payments.transform(Enrich(blocked, on="card"))
    return known.selectExpr("id", "card", "amount", "at", "blocked_at IS NULL AS accepted")
