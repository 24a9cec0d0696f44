"""`python -m benchmarks.nexmark`: the queries of Nexmark on several engines, over the same events.

make bench NAME=nexmark ARGS="--only q1,q5 --engines Headwater,Spark"
make bench NAME=nexmark ARGS="--events 4000000 --rounds 3"
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.harness import main
from benchmarks.nexmark.answers import ANSWERS
from benchmarks.nexmark.engines import ENGINES
from benchmarks.nexmark.runs import Engines, Settings, query

EVENTS = 2_000_000
ROUNDS = 2
PARTS = {name: partial(query, name) for name in ANSWERS}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--engines", default=",".join(ENGINES))
    own, rest = parser.parse_known_args()
    engines = Engines(own.engines.split(","))
    settings = Settings(events=own.events, rounds=own.rounds)
    try:
        main("nexmark", {name: partial(part, settings=settings, engines=engines) for name, part in PARTS.items()}, rest)
    finally:
        engines.stop()
