"""Loading an entity with 1,000 events that is in no cache, with and without a snapshot."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.harness import Bench, Result, Sample, Stopwatch, median_rate
from benchmarks.sourcing.clients import SQLITE, Client, Eventsourcing, Headwater

EVENTS = 1_000


def load(bench: Bench) -> list[Result]:
    """Microseconds to load an account; ours has a cache of one, and two accounts are loaded in turn."""
    results = []
    for name, snapshots in (("load", False), ("load.snapshot", True)):
        with bench.scratch("sourcing") as folder:
            clients = _filled(folder, snapshots=snapshots)
            turns = {subject: partial(_loads, client, bench.size(50, 4)) for subject, client in clients.items()}
            samples = bench.interleave(name, turns, rounds=bench.size(5, 1))
            for client in clients.values():
                client.close()
        ours, peer = (1e6 / median_rate(samples[subject]) for subject in ("ours", SQLITE))
        results.append(Result(name=name, value=ours, unit="µs", peer=SQLITE, peer_value=peer))
    return results


def _filled(folder: Path, *, snapshots: bool) -> dict[str, Client]:
    """Two accounts in each subject, which is closed and opened again."""
    events = 100 if snapshots else None
    ours, theirs = Headwater(folder, partitions=1, snapshot_events=events), Eventsourcing(folder, snapshots=snapshots)
    client: Client
    for client in (ours, theirs):
        client.create([0, 1])
        for number in (0, 1):
            client.deposit_many([number] * (EVENTS - 1))
    if snapshots:
        for number in (0, 1):
            theirs.snapshot(number)
    ours.close()
    theirs.close()
    return {
        "ours": Headwater(folder, cached_max=1, snapshot_events=events),
        SQLITE: Eventsourcing(folder, cached=False, snapshots=snapshots),
    }


def _loads(client: Client, count: int) -> Sample:
    with Stopwatch() as watch:
        balances = [client.balance(number % 2) for number in range(count)]
    if set(balances) != {EVENTS}:
        raise RuntimeError(f"balances of {EVENTS} were expected, not {set(balances)}")
    return watch.sample(count)
