"""Appends and reads over HTTP, as Arrow and as JSON, compared with the embedded log in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import httpx

import headwater.log as hwlog
from benchmarks.harness import Bench, Result, Sample, Stopwatch, median_rate, percentile
from benchmarks.log.rows import BATCH_ROWS, SCHEMA, batches
from benchmarks.server.children import server
from headwater.schema.encodings import json as json_lines

LINES = {"Content-Type": "application/x-ndjson"}


def produce(bench: Bench) -> list[Result]:
    """Batches of 1,000 rows, one after the other, to a topic that does not wait for the disk."""
    count = bench.size(200, 10)
    bodies = [b"\n".join(json_lines.encode_rows(one)) for one in batches()]
    with bench.scratch("produce") as folder, hwlog.open(folder / "log") as log, server(folder / "log") as address:
        log.create("rows", SCHEMA, durability="os")
        with hwlog.open(address) as remote, httpx.Client(base_url=address, trust_env=False) as client:

            def embedded(number: int) -> None:
                log.append("rows", batches()[number % 64])

            def arrow(number: int) -> None:
                remote.append("rows", batches()[number % 64])

            def lines(number: int) -> None:
                client.post("/api/v1/topics/rows/rows", content=bodies[number % 64], headers=LINES).raise_for_status()

            def timed(send: Callable[[int], None]) -> Callable[[], Sample]:
                def measure() -> Sample:
                    with Stopwatch() as watch:
                        for number in range(count):
                            send(number)
                    return watch.sample(count * BATCH_ROWS)

                return measure

            subjects = {"embedded": timed(embedded), "Arrow": timed(arrow), "JSON lines": timed(lines)}
            samples = bench.interleave("produce", subjects, rounds=bench.size(5, 1))
    rates = {name: median_rate(found) for name, found in samples.items()}
    return _beside("produce", rates)


def consume(bench: Bench) -> list[Result]:
    """A whole topic, read to its end."""
    count = bench.size(400, 10)
    with bench.scratch("consume") as folder, hwlog.open(folder / "log") as log, server(folder / "log") as address:
        log.create("rows", SCHEMA, durability="os")
        for number in range(count):
            log.append("rows", batches()[number % 64])
        with hwlog.open(address) as remote, httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            subjects = {
                "embedded": lambda: _read(log, count),
                "Arrow": lambda: _read(remote, count),
                "JSON lines": lambda: _read_lines(client, count),
            }
            samples = bench.interleave("consume", subjects, rounds=bench.size(5, 1))
    rates = {name: median_rate(found) for name, found in samples.items()}
    return _beside("consume", rates)


def ask(bench: Bench) -> list[Result]:
    """Small requests one after the other over one connection: the cost of a round trip."""
    count = bench.size(2_000, 50)
    with bench.scratch("ask") as folder, hwlog.open(folder / "log") as log, server(folder / "log") as address:
        log.create("rows", SCHEMA, durability="os")
        log.append("rows", batches()[0])
        with hwlog.open(address) as remote:
            ends = _latencies(lambda: remote.end_offsets("rows"), count)
            one = batches()[0].slice(0, 1)
            appends = _latencies(lambda: remote.append("rows", one), count)
    return [
        Result(
            name=f"ask.{name}",
            value=percentile(found, 0.5),
            unit="ms",
            p50=percentile(found, 0.5),
            p99=percentile(found, 0.99),
        )
        for name, found in (("end_offsets", ends), ("append_one", appends))
    ]


def sql(bench: Bench) -> list[Result]:
    """Small statements one after the other: the cost of running them in another process."""
    count = bench.size(500, 20)
    found: dict[bool, list[float]] = {}
    with bench.scratch("sql") as folder, hwlog.open(folder / "log") as log:
        log.create("rows", SCHEMA, durability="os")
        log.append("rows", batches()[0])
        with server(folder / "log") as confined, server(folder / "log", confined=False) as plain:
            for kind, address in ((False, plain), (True, confined)):
                with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
                    found[kind] = _latencies(partial(_count, client), count)
    return [
        Result(
            name="sql.small",
            value=percentile(found[True], 0.5),
            unit="ms",
            p50=percentile(found[True], 0.5),
            p99=percentile(found[True], 0.99),
            peer="in the server's own process",
            peer_value=percentile(found[False], 0.5),
        )
    ]


def _count(client: httpx.Client) -> None:
    client.post("/api/v1/sql", json={"sql": "SELECT count(*) AS n FROM rows"}).raise_for_status()


def _read(log: hwlog.Log, count: int) -> Sample:
    with Stopwatch() as watch:
        rows = sum(batch.num_rows for batch in log.read("rows"))
    assert rows == count * BATCH_ROWS
    return watch.sample(rows)


def _read_lines(client: httpx.Client, count: int) -> Sample:
    place, rows = "earliest", 0
    with Stopwatch() as watch:
        while True:
            answer = client.get("/api/v1/topics/rows/rows", params={"start": place, "limit": 50_000})
            rows += answer.content.count(b"\n")
            place = answer.headers["headwater-next"]
            if answer.headers["headwater-more"] == "false":
                break
    assert rows == count * BATCH_ROWS
    return watch.sample(rows)


def _latencies(call: Callable[[], object], count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        found.append((time.perf_counter() - began) * 1_000)
    return found[count // 10 :]


def _beside(part: str, rates: dict[str, float]) -> list[Result]:
    embedded = rates.pop("embedded")
    return [
        Result(
            name=f"{part}.{name.split()[0].lower()}",
            value=rate,
            unit="rows/s",
            peer="the embedded log",
            peer_value=embedded,
        )
        for name, rate in rates.items()
    ]
