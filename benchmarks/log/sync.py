"""Throughput of appends that wait for the disk, compared with a loop that only writes and syncs."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate, percentile
from benchmarks.log.appends import fresh_topic
from benchmarks.log.rows import SCHEMA, batch
from benchmarks.peer_servers import PeerUnavailable, RedisWire, Server, redis_server

SYNC_ROWS = 80_000
SYNC_BYTES = 8_000_000


def append_fsync(bench: Bench) -> list[Result]:
    """Appends of 8 MB, each on disk before the next begins."""
    sources = [batch(SYNC_ROWS, seed) for seed in range(bench.size(8, 2))]
    written = [source.serialize() for source in sources]
    count = bench.size(32, 3)
    note = ""
    with bench.scratch("append.fsync") as folder, ExitStack() as stack:
        log = stack.enter_context(hwlog.open(folder / "ours"))
        subjects = {
            "ours": lambda: _ours(log, sources, count),
            "bare": lambda: _bare(folder / "bare", written, count),
        }
        try:
            server = stack.enter_context(redis_server(folder / "redis", appendfsync="always"))
            subjects["redis"] = lambda: _redis(server, written, count)
        except PeerUnavailable as why:
            note = f"skipped: {why}"
        samples = bench.interleave("append.fsync", subjects, rounds=bench.size(7, 1), warm_bytes=3 * count * SYNC_BYTES)
    redis = samples.get("redis")
    own = median_rate(samples["ours"])
    more = {"per_cpu_second": median_cpu_rate(samples["ours"])}
    return [
        Result(
            name="append.fsync",
            value=own,
            unit="rows/s",
            peer="bare write + fdatasync",
            peer_value=median_rate(samples["bare"]),
            more=more,
            bars=[Bar(figure="ratio", least=0.6)],
        ),
        Result(
            name="append.fsync.redis",
            value=own,
            unit="rows/s",
            peer="redis (AOF always)",
            peer_value=median_rate(redis) if redis else None,
            note=note,
        ),
    ]


def ack_single(bench: Bench) -> list[Result]:
    """One row, durable when the call returns, in turn with a bare write of 4 KB and its fdatasync."""
    row = batch(1, 0)
    block = os.urandom(4096)
    own: list[float] = []
    bare: list[float] = []
    with bench.scratch("ack.single") as folder, hwlog.open(folder / "ours") as log:
        log.create("rows", SCHEMA, durability="fsync")
        log.append("rows", row)
        descriptor = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for _ in range(bench.size(3_000, 50)):
            own.append(_milliseconds(lambda: log.append("rows", row)))
            bare.append(_milliseconds(lambda: _write_synced(descriptor, block)))
        os.close(descriptor)
    ours_p50, bare_p50 = percentile(own, 0.5), percentile(bare, 0.5)
    return [
        Result(
            name="ack.single",
            value=ours_p50,
            unit="ms",
            peer="bare 4 KB write + fdatasync",
            peer_value=bare_p50,
            p50=ours_p50,
            p99=percentile(own, 0.99),
            more={"peer_p50": bare_p50, "peer_p99": percentile(bare, 0.99)},
            bars=[Bar(figure="ratio", most=2)],
        )
    ]


def _milliseconds(act: object) -> float:
    began = time.perf_counter()
    act()  # type: ignore[operator]
    return (time.perf_counter() - began) * 1000


def _write_synced(descriptor: int, block: bytes) -> None:
    os.write(descriptor, block)
    os.fdatasync(descriptor)


def _ours(log: hwlog.Log, sources: list[pa.RecordBatch], count: int) -> Sample:
    with fresh_topic(log, "rows", durability="fsync") as topic:
        with Stopwatch() as watch:
            for number in range(count):
                log.append(topic, sources[number % len(sources)])
        return watch.sample(count * SYNC_ROWS)


def _bare(path: Path, written: list[pa.Buffer], count: int) -> Sample:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with Stopwatch() as watch:
            for number in range(count):
                os.write(descriptor, written[number % len(written)])
                os.fdatasync(descriptor)
        return watch.sample(count * SYNC_ROWS)
    finally:
        os.close(descriptor)
        path.unlink()


def _redis(server: Server, written: list[pa.Buffer], count: int) -> Sample:
    wire = RedisWire(server)
    commands = [RedisWire.xadd("rows", [(b"b", blob.to_pybytes())]) for blob in written]
    with Stopwatch(server.process) as watch:
        wire.send([commands[number % len(commands)] for number in range(count)], each=1, in_flight_max=1)
    wire.delete("rows")
    wire.close()
    return watch.sample(count * SYNC_ROWS)
