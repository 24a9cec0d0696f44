"""Gateways that no sender waits for: StatsD, syslog and numbered datagrams over UDP, with the exact loss; and syslog over TCP, which makes senders wait."""

from __future__ import annotations

import statistics

from benchmarks.gateway.measure import Load, delays_of, rate_of
from benchmarks.harness import Bar, Bench, Result, median_cpu_rate, median_rate

ROUNDS = 3


def _of_bytes(value: object) -> float:
    assert isinstance(value, bytes)
    return float(value)


STATSD = Load(kind="statsd", sender="statsd", topic="metrics", column="value", settings={"port": 0})
SYSLOG = Load(
    kind="syslog", sender="syslog", topic="syslog", column="message", settings={"port": 0, "protocols": "udp"}
)
SYSLOG_TCP = Load(
    kind="syslog", sender="syslog-tcp", topic="syslog", column="message", settings={"port": 0, "protocols": "tcp"}
)
UDP = Load(kind="udp-in", sender="udp", topic="datagrams", column="payload", settings={"port": 0}, stamp=_of_bytes)


def statsd(bench: Bench) -> list[Result]:
    """Packets of one line each, as fast as another process can send them."""
    return [_measured(bench, "statsd", STATSD, bench.size(2_000_000, 20_000), least=100_000)]


def syslog_udp(bench: Bench) -> list[Result]:
    return [_measured(bench, "syslog.udp", SYSLOG, bench.size(200_000, 5_000))]


def syslog_tcp(bench: Bench) -> list[Result]:
    return [_measured(bench, "syslog.tcp", SYSLOG_TCP, bench.size(200_000, 5_000))]


def udp(bench: Bench) -> list[Result]:
    """Numbered datagrams; those that the kernel has dropped are asked for again."""
    return [_measured(bench, "udp", UDP, bench.size(200_000, 5_000))]


def _measured(bench: Bench, name: str, load: Load, count: int, *, least: float | None = None) -> Result:
    rounds = [rate_of(bench, load, count) for _ in range(bench.size(ROUNDS, 1))]
    for one in rounds:
        arrived = one.counters["appended"] + one.counters["lost"]
        if arrived != one.sent:
            raise RuntimeError(f"{one.sent} sent, {arrived} appended or known to be lost: {one.counters}")
    p50, p99 = delays_of(bench, load, bench.size(5_000, 500))
    samples = [one.sample for one in rounds]
    more = {
        "sent_per_second": statistics.median(one.sent_per_second for one in rounds),
        "lost_share": sum(one.counters["lost"] for one in rounds) / sum(one.sent for one in rounds),
        "per_cpu_second": median_cpu_rate(samples),
    }
    bars = [] if least is None or bench.quick else [Bar(figure="value", least=least)]
    note = f"sent {more['sent_per_second']:,.0f}/s, lost {more['lost_share']:.2%}; sent = appended + lost in each round"
    return Result(
        name=name, value=median_rate(samples), unit="events/s", p50=p50, p99=p99, more=more, bars=bars, note=note
    )
