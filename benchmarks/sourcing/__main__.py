"""`python -m benchmarks.sourcing`: entities beside the library `eventsourcing` on SQLite and on PostgreSQL, with up to a
million entities, and a read model of five million events on Spark."""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Part, main
from benchmarks.sourcing.clients import POSTGRES, SQLITE
from benchmarks.sourcing.loads import load
from benchmarks.sourcing.projections import projection
from benchmarks.sourcing.rates import disk, many, processes, single, threads
from benchmarks.sourcing.sizes import entities

PARTS: dict[str, Part] = {
    "disk": disk,
    "commands.sqlite": partial(single, peer=SQLITE),
    "commands.postgres": partial(single, peer=POSTGRES),
    "many.sqlite": partial(many, peer=SQLITE),
    "many.postgres": partial(many, peer=POSTGRES),
    "threads.sqlite": partial(threads, peer=SQLITE),
    "threads.postgres": partial(threads, peer=POSTGRES),
    "processes.sqlite": partial(processes, peer=SQLITE),
    "processes.postgres": partial(processes, peer=POSTGRES),
    "load": load,
    "entities": entities,
    "projection": projection,
}

if __name__ == "__main__":
    main("sourcing", PARTS)
