"""What a command costs with few and with many entities."""

from __future__ import annotations

import os
import random
import statistics

from benchmarks.harness import Bar, Bench, Result, Stopwatch
from benchmarks.sourcing.clients import Headwater
from benchmarks.sourcing.rates import BATCH

#: So few that nearly all commands load their entity through the index, whatever the number of entities.
CACHED_MAX = 1_000


def entities(bench: Bench) -> list[Result]:
    """Microseconds for a durable command of a random entity, alone and in batches of 1,000."""
    sizes = [bench.size(full, quick) for full, quick in ((10_000, 1_000), (100_000, 2_000), (1_000_000, 5_000))]
    alone: dict[int, float] = {}
    in_batches: dict[int, float] = {}
    chosen = random.Random(7)
    with bench.scratch("sourcing") as folder:
        client = Headwater(folder, partitions=1, cached_max=CACHED_MAX)
        made = 0
        for size in sizes:
            for start in range(made, size, BATCH):
                client.create(range(start, start + BATCH))
            made = size
            os.sync()
            batches = bench.size(50, 2)
            with Stopwatch() as watch:
                for _ in range(batches):
                    client.deposit_many([chosen.randrange(size) for _ in range(BATCH)])
            os.sync()
            in_batches[size] = watch.seconds / batches / BATCH * 1e6
            alone[size] = statistics.median(
                _seconds(client, chosen.randrange(size)) for _ in range(bench.size(300, 10))
            )
            alone[size] *= 1e6
            bench.say(f"{size:,} entities: {alone[size]:.0f} µs alone, {in_batches[size]:.1f} µs in batches")
        client.close()
    return [
        Result(
            name=name,
            value=costs[sizes[-1]],
            unit="µs",
            peer=f"{sizes[0]:,} entities",
            peer_value=costs[sizes[0]],
            more={f"entities_{size}": cost for size, cost in costs.items()},
            bars=[Bar(figure="ratio", most=1.3)],
        )
        for name, costs in (("entities", alone), ("entities.many", in_batches))
    ]


def _seconds(client: Headwater, number: int) -> float:
    with Stopwatch() as watch:
        client.deposit(number)
    return watch.seconds
