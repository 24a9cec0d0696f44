"""The pattern in Pathway, in its own virtual environment: three bids of a bidder in a row, each at least twice the one before.

It must not import anything of Headwater's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pathway as pw

from benchmarks.nexmark.child import Request, serve

#: More than any price.
NONE = 10**15


def run(request: Request) -> Mapping[str, Any]:
    """Find the pattern in the CSV files of a folder; returns the seconds, with the planning, and the number of matches."""
    began = time.perf_counter()
    pw.internals.parse_graph.G.clear()
    schema = pw.schema_from_types(auction=int, bidder=int, price=int, at=int)
    bids = pw.io.csv.read(request["csv"], schema=schema, mode="static")
    bids += bids.sort(key=bids.at, instance=bids.bidder)
    before = bids.ix(bids.prev, optional=True)
    pairs = bids.select(bids.bidder, bids.at, third=bids.price, second=before.price, earlier=before.prev)
    first = bids.ix(pairs.earlier, optional=True)
    rows = pairs.select(pairs.bidder, pairs.at, pairs.third, pairs.second, first=first.price)
    found = rows.filter(
        (pw.coalesce(rows.second, NONE) * 2 <= rows.third)
        & (pw.coalesce(rows.first, NONE) * 2 <= pw.coalesce(rows.second, 0))
    )
    path = Path(request["out"])
    pw.io.jsonlines.write(found, str(path))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - began
    changes = [json.loads(line)["diff"] for line in path.open(encoding="utf-8")]
    path.unlink()
    return {"seconds": seconds, "matches": sum(changes)}


if __name__ == "__main__":
    serve(run)
