"""`python -m benchmarks.growth`: whether a query costs more the longer it runs and the more it holds.

make bench NAME=growth ARGS="--only week --docs"              draw the picture of the documentation, too; also for `events`
make bench NAME=growth ARGS="--only week --batches 10000"     a shorter time than a week
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.growth.events import events, keys
from benchmarks.growth.held import held
from benchmarks.growth.stream import stream
from benchmarks.growth.week import BATCHES, week
from benchmarks.harness import main

PARTS = {"events": events, "keys": keys, "held": held, "week": week, "stream": stream}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--batches", type=int, default=BATCHES)
    own, rest = parser.parse_known_args()
    main(
        "growth",
        PARTS | {"events": partial(events, docs=own.docs), "week": partial(week, docs=own.docs, batches=own.batches)},
        rest,
    )
