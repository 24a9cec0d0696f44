"""What a command costs with few and with many entities."""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate
from benchmarks.sourcing.clients import Headwater
from benchmarks.sourcing.rates import BATCH

#: So few that nearly all commands load their entity through the index, whatever the number of entities.
CACHED_MAX = 1_000
_CHOSEN = random.Random(7)


def entities(bench: Bench) -> list[Result]:
    """Microseconds for a durable command of a random entity, alone and in batches of 1,000.

    Logs of three sizes take turns, so that what else uses the machine slows all of them down.
    """
    sizes = [bench.size(full, quick) for full, quick in ((10_000, 1_000), (100_000, 2_000), (1_000_000, 5_000))]
    works = {
        "entities": partial(_alone, count=bench.size(200, 10)),
        "entities.many": partial(_in_batches, batches=bench.size(20, 2)),
    }
    with bench.scratch("sourcing") as folder, ExitStack() as opened:
        clients = {size: _filled(folder / str(size), size) for size in sizes}
        for client in clients.values():
            opened.callback(client.close)
        return [
            _result(
                name,
                sizes,
                bench.interleave(
                    name,
                    {f"{size:,} entities": partial(work, client, size) for size, client in clients.items()},
                    rounds=bench.size(7, 1),
                ),
            )
            for name, work in works.items()
        ]


def _filled(folder: Path, size: int) -> Headwater:
    folder.mkdir()
    client = Headwater(folder, partitions=1, cached_max=CACHED_MAX)
    for start in range(0, size, BATCH):
        client.create(range(start, start + BATCH))
    return client


def _alone(client: Headwater, size: int, *, count: int) -> Sample:
    chosen = [_CHOSEN.randrange(size) for _ in range(count)]
    with Stopwatch() as watch:
        for number in chosen:
            client.deposit(number)
    return watch.sample(count)


def _in_batches(client: Headwater, size: int, *, batches: int) -> Sample:
    chosen = [[_CHOSEN.randrange(size) for _ in range(BATCH)] for _ in range(batches)]
    with Stopwatch() as watch:
        for numbers in chosen:
            client.deposit_many(numbers)
    return watch.sample(batches * BATCH)


def _result(name: str, sizes: list[int], samples: dict[str, list[Sample]]) -> Result:
    """The cost with the most entities beside that with the fewest, by the clock and of the processor."""
    wall, cpu = (
        {size: 1e6 / rate(of_size) for size, of_size in zip(sizes, samples.values(), strict=True)}
        for rate in (median_rate, median_cpu_rate)
    )
    more = {f"entities_{size}": cost for size, cost in wall.items()}
    return Result(
        name=name,
        value=wall[sizes[-1]],
        unit="µs",
        peer=f"{sizes[0]:,} entities",
        peer_value=wall[sizes[0]],
        more=more | {f"cpu_us_{size}": cost for size, cost in cpu.items()},
        bars=[Bar(figure="ratio", most=1.3)],
    )
