"""Throughput of appends without sync, compared with Redis and NATS."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate
from benchmarks.log.rows import BATCH_ROWS, ROW_BYTES, SCHEMA, batches, blobs, dicts
from benchmarks.peer_servers import NatsWire, PeerUnavailable, RedisWire, Server, nats_server, redis_server

Measure = Callable[[], Sample]
BLOBS_IN_FLIGHT_MAX = 256
EVENTS_IN_FLIGHT_MAX = 16_000
#: Memory to have ready per batch: a peer keeps it in its memory as well as in a file.
WARM_BLOBS = 5 * BATCH_ROWS * ROW_BYTES // 2


def append_os(bench: Bench) -> list[Result]:
    """Arrow batches of 1,000 rows; the peers get the same batches as one message each."""
    count = bench.size(8_000, 100)
    subjects: dict[str, Measure] = {}
    with bench.scratch("append.os") as folder, ExitStack() as stack:
        log = stack.enter_context(hwlog.open(folder / "ours"))
        subjects["ours"] = lambda: ours(log, batches(), count)
        subjects["two processes"] = lambda: _two_processes(log, count)
        notes = _add_peers(
            stack,
            folder,
            subjects,
            redis=lambda server: lambda: _redis_blobs(server, count),
            nats=lambda server: lambda: _nats_blobs(server, count),
        )
        samples = bench.interleave("append.os", subjects, rounds=bench.size(5, 1), warm_bytes=WARM_BLOBS * count)
    return [
        _result(
            "append.os", samples, "redis", notes, bars=[Bar(figure="value", least=10e6), Bar(figure="ratio", least=3)]
        ),
        _result("append.os.nats", samples, "nats", notes, bars=[Bar(figure="ratio", least=2)]),
        _result("append.os.processes", samples, "redis", notes, subject="two processes"),
        _result("append.os.processes.nats", samples, "nats", notes, subject="two processes"),
    ]


def append_dicts(bench: Bench) -> list[Result]:
    """Lists of 1,000 dicts, beside redis-py's pipelined XADD of the same dicts."""
    count = bench.size(400, 20)
    subjects: dict[str, Measure] = {}
    with bench.scratch("append.dicts") as folder, ExitStack() as stack:
        log = stack.enter_context(hwlog.open(folder / "ours"))
        subjects["ours"] = lambda: ours(log, dicts(), count)
        notes = _add_peers(
            stack, folder, subjects, redis=lambda server: lambda: _redis_py_dicts(server, max(1, count // 20))
        )
        samples = bench.interleave("append.dicts", subjects, rounds=bench.size(7, 1), warm_bytes=WARM_BLOBS * count)
    bars = [Bar(figure="value", least=1.5e6), Bar(figure="ratio", least=20)]
    return [_result("append.dicts", samples, "redis", notes, bars=bars, peer="redis (redis-py)")]


def append_events(bench: Bench) -> list[Result]:
    """One message per event for the peers; one dict per event for ours."""
    count = bench.size(200, 5)
    subjects: dict[str, Measure] = {}
    with bench.scratch("append.events") as folder, ExitStack() as stack:
        log = stack.enter_context(hwlog.open(folder / "ours"))
        subjects["ours"] = lambda: _ours_events(log, count)
        notes = _add_peers(
            stack,
            folder,
            subjects,
            redis=lambda server: lambda: _redis_events(server, count),
            nats=lambda server: lambda: _nats_events(server, count),
        )
        if "nats" in subjects:
            server = notes["nats server"]
            subjects["nats-py"] = lambda: asyncio.run(_nats_py_events(server, max(1, count // 20)))
        samples = bench.interleave("append.events", subjects, rounds=bench.size(5, 1), warm_bytes=WARM_BLOBS * count)
    return [
        _result("append.events.redis", samples, "redis", notes, peer="redis (prepared bytes)"),
        _result("append.events.nats", samples, "nats", notes, peer="nats (prepared bytes)"),
        _result("append.events.nats-py", samples, "nats-py", notes, peer="nats (nats-py)"),
    ]


@contextmanager
def fresh_topic(log: hwlog.Log, name: str, **settings: Any) -> Iterator[str]:
    """A topic that is deleted afterwards, so that rounds neither fill the disk nor differ."""
    log.create(name, SCHEMA, **settings)
    try:
        yield name
    finally:
        log.delete(name)


def ours(log: hwlog.Log, source: list[Any], count: int) -> Sample:
    with fresh_topic(log, "rows", durability="os") as topic:
        with Stopwatch() as watch:
            for number in range(count):
                log.append(topic, source[number % len(source)])
        return watch.sample(count * BATCH_ROWS)


def _two_processes(log: hwlog.Log, count: int) -> Sample:
    """As many cores as a peer and its client have: two processes, each with half the batches and its own partition."""
    with fresh_topic(log, "rows", durability="os", partitions=2):
        words = [sys.executable, "-m", "benchmarks.log.children", "append", log.address]
        writers = [
            subprocess.Popen(
                [*words, str(partition), str(count // 2)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for partition in range(2)
        ]
        for writer in writers:
            if writer.stdout is None or writer.stdout.readline() != "ready\n":
                raise RuntimeError("A writing process did not start.")
        found = [json.loads(output.splitlines()[-1]) for output in _let_go(writers)]
    seconds = max(one["ended"] for one in found) - min(one["began"] for one in found)
    return Sample(count // 2 * 2 * BATCH_ROWS, seconds, sum(one["cpu_seconds"] for one in found))


def _let_go(writers: list[subprocess.Popen[str]]) -> list[str]:
    """Start all processes at once, and return their output."""
    for writer in writers:
        if writer.stdin is not None:
            writer.stdin.write("go\n")
            writer.stdin.flush()
    return [writer.communicate(timeout=300)[0] for writer in writers]


def _ours_events(log: hwlog.Log, count: int) -> Sample:
    """Row by row through the producer that lingers, where the log has one; else as lists of 1,000."""
    if not hasattr(log, "producer"):
        return ours(log, dicts(), count)
    with fresh_topic(log, "rows", durability="os") as topic:
        with Stopwatch() as watch, log.producer(topic) as producer:
            for number in range(count):
                for row in dicts()[number % len(dicts())]:
                    producer.send(row)
        return watch.sample(count * BATCH_ROWS)


def _add_peers(
    stack: ExitStack,
    folder: Path,
    subjects: dict[str, Measure],
    *,
    redis: Callable[[Server], Measure] | None = None,
    nats: Callable[[Server], Measure] | None = None,
) -> dict[str, Any]:
    """Start the peers; one that is not available adds a note instead."""
    notes: dict[str, Any] = {}
    for name, measure in (("redis", redis), ("nats", nats)):
        if measure is None:
            continue
        try:
            if name == "redis":
                server = stack.enter_context(redis_server(folder / name, appendfsync="everysec"))
            else:
                server = stack.enter_context(nats_server(folder / name))
        except PeerUnavailable as why:
            notes[name] = f"skipped: {why}"
            continue
        notes[f"{name} server"] = server
        subjects[name] = measure(server)
    return notes


def _result(
    name: str,
    samples: dict[str, list[Sample]],
    other: str,
    notes: dict[str, Any],
    *,
    bars: list[Bar] | None = None,
    peer: str | None = None,
    subject: str = "ours",
) -> Result:
    own, theirs = samples[subject], samples.get(other)
    more: dict[str, Any] = {"per_cpu_second": median_cpu_rate(own)}
    if theirs:
        more["peer_per_cpu_second"] = median_cpu_rate(theirs)
    return Result(
        name=name,
        value=median_rate(own),
        unit="rows/s",
        peer=peer or other,
        peer_value=median_rate(theirs) if theirs else None,
        more=more,
        bars=bars or [],
        note=notes.get(other.removesuffix("-py"), ""),
    )


def _redis_blobs(server: Server, count: int) -> Sample:
    wire = RedisWire(server)
    commands = [RedisWire.xadd("rows", [(b"b", blob)]) for blob in blobs()]
    chunks = [commands[number % len(commands)] for number in range(count)]
    with Stopwatch(server.process) as watch:
        wire.send(chunks, each=1, in_flight_max=BLOBS_IN_FLIGHT_MAX)
    wire.delete("rows")
    wire.close()
    return watch.sample(count * BATCH_ROWS)


def _redis_events(server: Server, count: int) -> Sample:
    wire = RedisWire(server)
    chunks = [b"".join(RedisWire.xadd("rows", _fields(row)) for row in rows) for rows in dicts()]
    with Stopwatch(server.process) as watch:
        wire.send(
            [chunks[number % len(chunks)] for number in range(count)],
            each=BATCH_ROWS,
            in_flight_max=EVENTS_IN_FLIGHT_MAX,
        )
    wire.delete("rows")
    wire.close()
    return watch.sample(count * BATCH_ROWS)


def _fields(row: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), str(value).encode()) for name, value in row.items()]


def _redis_py_dicts(server: Server, count: int) -> Sample:
    import redis

    client = redis.Redis(port=server.port)
    with Stopwatch(server.process) as watch:
        for number in range(count):
            pipeline = client.pipeline(transaction=False)
            for row in dicts()[number % len(dicts())]:
                pipeline.xadd("rows", cast(Any, row))  # its stub wants keys of a union
            pipeline.execute()
    client.delete("rows")
    client.close()
    return watch.sample(count * BATCH_ROWS)


def _nats_blobs(server: Server, count: int) -> Sample:
    messages = [NatsWire.publish("rows", blob) for blob in blobs()]
    return _nats_send(server, messages, count, each=1, in_flight_max=BLOBS_IN_FLIGHT_MAX)


def _nats_events(server: Server, count: int) -> Sample:
    chunks = [b"".join(NatsWire.publish("rows", _event(row)) for row in rows) for rows in dicts()]
    return _nats_send(server, chunks, count, each=BATCH_ROWS, in_flight_max=4_000)


def _event(row: dict[str, Any]) -> bytes:
    return f"{row['id']},{row['value']},{row['payload']}".encode()


def _nats_send(server: Server, chunks: list[bytes], count: int, *, each: int, in_flight_max: int) -> Sample:
    wire = NatsWire(server)
    wire.create("rows")
    with Stopwatch(server.process) as watch:
        wire.send(
            [chunks[number % len(chunks)] for number in range(count)],
            each=each,
            in_flight_max=in_flight_max,
        )
    wire.delete("rows")
    wire.close()
    return watch.sample(count * BATCH_ROWS)


async def _nats_py_events(server: Server, count: int) -> Sample:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{server.port}")
    stream = client.jetstream(publish_async_max_pending=4_000)
    await stream.add_stream(name="events", subjects=["events"])
    with Stopwatch(server.process) as watch:
        for number in range(count):
            for row in dicts()[number % len(dicts())]:
                await stream.publish_async("events", _event(row), wait_stall=30)
        await stream.publish_async_completed()
    await stream.delete_stream("events")
    await client.close()
    return watch.sample(count * BATCH_ROWS)
