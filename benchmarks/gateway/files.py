"""Lines of a file that is there already, beside a plain program that reads them and keeps nothing; and the delay of lines that come."""

from __future__ import annotations

import time

import headwater as hw
from benchmarks.gateway.children import gateway
from benchmarks.gateway.measure import RATE
from benchmarks.harness import Bench, Result, Sample, median_cpu_rate, median_rate, percentile

ROUNDS = 3
_LINE = "2026-01-31T12:00:00Z shop order %09d was paid by a customer, and its parcel has left the house\n"


def tail(bench: Bench) -> list[Result]:
    count = bench.size(2_000_000, 20_000)
    with bench.scratch("tail") as folder:
        path = folder / "app.txt"
        path.write_text("".join(_LINE % number for number in range(count)))

        def ours() -> Sample:
            with (
                bench.scratch("tail-log") as own,
                gateway(own / "log", "tail", paths=path) as receiver,
            ):
                began, cpu = time.perf_counter(), receiver.cpu_seconds
                receiver.ask("start")
                counters = receiver.ask(f"until {count}")
                return Sample(counters["appended"], time.perf_counter() - began, receiver.cpu_seconds - cpu)

        def plain() -> Sample:
            began, cpu, lines = time.perf_counter(), time.process_time(), 0
            with path.open() as file:
                for line in file:
                    lines += bool(line)
            return Sample(lines, time.perf_counter() - began, time.process_time() - cpu)

        samples = bench.interleave("tail", {"ours": ours, "plain": plain}, rounds=bench.size(ROUNDS, 1))
    p50, p99 = _delays(bench, bench.size(5_000, 500))
    return [
        Result(
            name="tail",
            value=median_rate(samples["ours"]),
            unit="lines/s",
            peer="a loop of Python over the lines",
            peer_value=median_rate(samples["plain"]),
            p50=p50,
            p99=p99,
            more={"per_cpu_second": median_cpu_rate(samples["ours"])},
        )
    ]


def _delays(bench: Bench, count: int) -> tuple[float, float]:
    delays: list[float] = []
    with bench.scratch("tail-delay") as folder, hw.open(folder / "log") as log:
        path = folder / "app.txt"
        path.touch()
        with gateway(folder / "log", "tail", paths=path) as receiver, path.open("a", buffering=1) as file:
            receiver.ask("start")
            with log.consumer("lines", start="earliest", columns=["line"]) as consumer:
                began = time.monotonic()
                written = 0
                while len(delays) < count:
                    due = min(count, int((time.monotonic() - began) * RATE))
                    for _ in range(due - written):
                        file.write(f"{time.monotonic_ns()}\n")
                    written = due
                    for batch in consumer.poll(seconds=0.001):
                        now = time.monotonic_ns()
                        delays += [(now - int(line)) / 1e6 for line in batch.data.column("line").to_pylist()]
    return percentile(delays, 0.5), percentile(delays, 0.99)
