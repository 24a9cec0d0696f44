"""`python -m benchmarks.sourcing`: entities beside the library `eventsourcing` on SQLite, and with up to a million of them."""

from __future__ import annotations

from benchmarks.harness import Part, main
from benchmarks.sourcing.loads import load
from benchmarks.sourcing.rates import many, processes, single, threads
from benchmarks.sourcing.sizes import entities

PARTS: dict[str, Part] = {
    "commands.sqlite": single,
    "commands.many": many,
    "commands.threads": threads,
    "commands.processes": processes,
    "load": load,
    "entities": entities,
}

if __name__ == "__main__":
    main("sourcing", PARTS)
