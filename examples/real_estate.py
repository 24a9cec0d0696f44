"""Homes: people store what they look for, and get a mail the moment such a home is offered.

headwater run examples/real_estate.py
echo '{"id": "ann-1", "query": "kind:flat AND price:<=300000 AND garden", "metadata": {"email": "ann@example.org"}}' |
    headwater produce searches
headwater dlq show searches            # searches that could not be used, and where they are wrong
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import Percolate, percolate
from headwater.sinks import MailSink

app = hw.App("homes", log="./data")
app.input(
    "offers",
    {
        "offer": "int64",
        "kind": "string",
        "city": "string",
        "text": "string",
        "price": "float64",
        "rooms": "int64",
        "place": "struct<lat: float64, lon: float64>",
    },
)
app.input("searches", {"id": "string", "query": "string", "metadata": "map<string, string>"}, key="id", compact=True)


@app.topic(key="query_id")
def found(offers: DataFrame, searches: hw.Table) -> DataFrame:
    """Each offer with each search that it satisfies. A search that is added, changed or deleted counts at once."""
    return offers.transform(
        Percolate(
            queries=searches,
            fields={"kind": percolate.Keyword(), "city": percolate.Keyword(), "text": percolate.Text("english")},
            columns=("offer", "kind", "city", "price"),
            marking=percolate.Marking("*", "*"),
            name="searches",
        )
    )


@app.sink(
    MailSink(
        host="localhost",
        port=int(os.environ.get("SMTP_PORT", "1025")),
        sender="homes@example.org",
        to="{email}",
        subject="A {kind} in {city} for {price:.0f}",
        body="Your search {query_id!r} has found offer {offer}:\n\n{why}\n",
    )
)
def mails(found: DataFrame) -> DataFrame:
    """One mail for each match, with the words that were looked for between stars."""
    why = F.concat_ws(" … ", F.col("highlights.fragment"))
    return found.where("metadata['email'] is not null").select(
        "query_id", "offer", "kind", "city", "price", F.col("metadata")["email"].alias("email"), why.alias("why")
    )
