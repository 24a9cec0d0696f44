"""Changes per second from a backlog, ours into a synced log, and PostgreSQL's own `pg_recvlogical` to nowhere."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from benchmarks.capture.shop import Shop, postgres_shop
from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate, shown
from benchmarks.peer_servers import PeerUnavailable
from headwater.capture import Capture

PEER_SLOT = "peer"
#: Write so many changes from a number on, and return how many there are.
Write = Callable[[Shop, int], int]


def postgres_insert(bench: Bench) -> list[Result]:
    rows = bench.size(300_000, 5_000)

    def write(shop: Shop, number: int) -> int:
        shop.insert(1 + number * rows, rows, each=1_000)
        return rows

    return [_measured(bench, "postgres.insert", write, rounds=bench.size(3, 1), bar=100_000)]


def postgres_update(bench: Bench) -> list[Result]:
    rows = bench.size(300_000, 5_000)

    def write(shop: Shop, number: int) -> int:
        if number == 0:
            shop.insert(1, rows, each=1_000)
        shop.update(1, rows, each=1_000)
        return rows * 2 if number == 0 else rows

    return [_measured(bench, "postgres.update", write, rounds=bench.size(3, 1), bar=100_000)]


def postgres_small(bench: Bench) -> list[Result]:
    """One row in each transaction."""
    rows = bench.size(60_000, 2_000)

    def write(shop: Shop, number: int) -> int:
        shop.insert(1 + number * rows, rows, each=1)
        return rows

    return [_measured(bench, "postgres.small", write, rounds=bench.size(3, 1), bar=40_000)]


def _measured(bench: Bench, name: str, write: Write, *, rounds: int, bar: float) -> Result:
    """Each round writes a backlog, which both read from slots of their own, in turns; the first warms up."""
    ours: list[Sample] = []
    theirs: list[Sample] = []
    with bench.scratch(name) as folder, postgres_shop(folder) as shop:
        shop.create_capture("shop")
        _ours(shop, 0)
        with shop.connect() as connection:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (PEER_SLOT,))
        for number in range(rounds + 1):
            count = write(shop, number)
            end = shop.wal_end()
            for turn in ("ours", "pg_recvlogical") if number % 2 else ("pg_recvlogical", "ours"):
                os.sync()
                sample = _ours(shop, count) if turn == "ours" else _theirs(shop, count, end)
                if number:
                    (ours if turn == "ours" else theirs).append(sample)
                    bench.say(f"{name} {number}/{rounds} {turn}: {shown(sample.rate)}/s")
    return Result(
        name=name,
        value=median_rate(ours),
        unit="changes/s",
        peer="pg_recvlogical to nowhere",
        peer_value=median_rate(theirs),
        more={"changes_per_cpu_second": median_cpu_rate(ours)},
        bars=[Bar(figure="value", least=bar)],
    )


def _ours(shop: Shop, count: int) -> Sample:
    """Connect and capture the backlog, as a capture does that was down."""
    with Stopwatch() as watch, Capture.open(shop.log, "shop") as capture:
        found = capture.catch_up()
    if found != count:
        raise RuntimeError(f"{count} changes were committed, {found} were captured")
    return watch.sample(count)


def _theirs(shop: Shop, count: int, end: str) -> Sample:
    with shop.connect() as connection:
        publication = connection.execute("SELECT pubname FROM pg_publication").fetchone()[0]
    options = {"proto_version": "2", "streaming": "on", "publication_names": f'"{publication}"'}
    words = [recvlogical(), f"--dbname={shop.address}", f"--slot={PEER_SLOT}", "--start", "--file=/dev/null"]
    words += [f"--endpos={end}", "--no-loop"]
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    with Stopwatch() as watch:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=300)
    return watch.sample(count)


def recvlogical() -> str:
    """Where PostgreSQL's own client of logical replication is."""
    for folder in [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/bin")]:
        if (folder / "pg_recvlogical").exists():
            return str(folder / "pg_recvlogical")
    raise PeerUnavailable("pg_recvlogical is not installed: `apt-get install postgresql-client`")
