"""Throughput and latency of durable messages, beside RabbitMQ and Redis Streams."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import headwater as hw
from benchmarks.harness import Bar, Bench, Result, Sample, median_rate, percentile
from benchmarks.peer_servers import PeerUnavailable, redis_server
from benchmarks.queue.clients import CLIENTS
from benchmarks.queue.processes import PER_SECOND, put_take_ack, run_clients
from benchmarks.queue.rabbitmq import rabbitmq_server

BARS = {"rabbitmq quorum": [Bar(figure="ratio", least=2)], "redis everysec": [Bar(figure="ratio", least=1)]}


@contextmanager
def subjects(folder: Path) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The addresses of ours and of the peers that this machine has, and why others are left out."""
    addresses, missing = {"ours": str(folder / "ours")}, []
    with ExitStack() as stack:
        hw.open(folder / "ours").close()
        try:
            port = str(stack.enter_context(rabbitmq_server(folder / "rabbitmq")))
            addresses |= dict.fromkeys(("rabbitmq quorum", "rabbitmq classic", "rabbitmq quorum, aio-pika"), port)
        except PeerUnavailable as error:
            missing.append(str(error))
        try:
            for sync in ("everysec", "always"):
                server = stack.enter_context(redis_server(folder / f"redis-{sync}", appendfsync=sync))
                addresses[f"redis {sync}"] = str(server.port)
        except PeerUnavailable as error:
            missing.append(str(error))
        yield addresses, missing


def rates(bench: Bench, *, clients: int) -> list[Result]:
    """Messages a second from the first put to the last acknowledgement."""
    name = "put_take_ack" if clients == 1 else f"put_take_ack_{clients}"
    count = bench.size(30_000, 2_000)
    with bench.scratch("queue") as folder, subjects(folder) as (addresses, missing):
        turns = {
            subject: partial(put_take_ack, subject, address, count, clients=clients)
            for subject, address in addresses.items()
        }
        samples = bench.interleave(name, turns, rounds=bench.size(3, 1))
    return _beside(name, samples, missing)


def _beside(name: str, samples: dict[str, list[Sample]], missing: list[str]) -> list[Result]:
    ours = median_rate(samples["ours"])
    note = "; ".join(missing)
    results = [Result(name=name, value=ours, unit="messages/s", note=note)]
    for peer, found in samples.items():
        if peer != "ours":
            rate = median_rate(found)
            place = f"{name}.{peer.replace(', ', '_').replace(' ', '_').replace('-', '_')}"
            results.append(
                Result(name=place, value=ours, unit="messages/s", peer=peer, peer_value=rate, bars=BARS.get(peer, []))
            )
    return results


def latency(bench: Bench) -> list[Result]:
    """Milliseconds from the call of put to the message in the consumer, at 1,000 single messages a second."""
    count = bench.size(5_000, 300)
    found: dict[str, list[list[float]]] = {}
    with bench.scratch("queue") as folder, subjects(folder) as (addresses, missing):
        addresses.pop("rabbitmq quorum, aio-pika", None)
        for number in range(bench.size(3, 1)):
            for subject, address in addresses.items():
                client = CLIENTS[subject](address)
                client.create()
                client.close()
                _, printed = run_clients(subject, address, [("take_at", count), ("put_at", count)])
                found.setdefault(subject, []).append(printed[0])
                bench.say(f"latency {number + 1} {subject}: {percentile(printed[0], 0.5):.2f} ms")
    results = []
    for subject, rounds in found.items():
        p50 = statistics.median(percentile(latencies, 0.5) for latencies in rounds)
        p99 = statistics.median(percentile(latencies, 0.99) for latencies in rounds)
        name = "latency" if subject == "ours" else f"latency.{subject.replace(' ', '_')}"
        more = {"messages_per_second": PER_SECOND}
        note = "; ".join(missing) if subject == "ours" else ""
        results.append(Result(name=name, value=p50, unit="ms", p50=p50, p99=p99, more=more, note=note))
    return results
