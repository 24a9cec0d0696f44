"""`python -m benchmarks.peers`: nine workloads beside bare Spark, and the pattern beside Pathway, over the same events.

make bench NAME=peers ARGS="--only w2,w9 --events 3000000"
make bench NAME=peers ARGS="--only w5 --alone"
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.harness import main
from benchmarks.peers.runs import PARTS, Engines, Settings, workload

EVENTS = 10_000_000
ROUNDS = 2

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--alone", action="store_true", help="without the peers, to profile")
    own, rest = parser.parse_known_args()
    engines = Engines()
    settings = Settings(events=own.events, rounds=own.rounds, peers=not own.alone)
    parts = {name: partial(workload, name, settings=settings, engines=engines) for name in PARTS}
    try:
        main("peers", parts, rest)
    finally:
        engines.stop()
