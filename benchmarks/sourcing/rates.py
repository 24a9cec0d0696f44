"""Durable commands a second: one by one, many at once, and of eight writers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate
from benchmarks.sourcing.clients import ACCOUNTS, PEER, Client, both
from benchmarks.together import run_together

BATCH = 1_000
BARS = [Bar(figure="ratio", least=3)]


def single(bench: Bench) -> list[Result]:
    """One writer that waits for the disk after each command."""
    count = bench.size(1_000, 50)
    return _beside(bench, "commands.sqlite", partial(deposits, first=0, count=count), count)


def many(bench: Bench) -> list[Result]:
    """One writer that waits for the disk after 1,000 commands."""
    batches = bench.size(20, 1)

    def work(client: Client) -> None:
        for _ in range(batches):
            client.deposit_many([number % ACCOUNTS for number in range(BATCH)])

    return _beside(bench, "commands.many", work, batches * BATCH)


def threads(bench: Bench) -> list[Result]:
    """Eight threads of a process, each with accounts of its own."""
    writers, each = bench.size(8, 2), bench.size(250, 10)

    def work(client: Client) -> None:
        with ThreadPoolExecutor(writers) as pool:
            calls = [pool.submit(deposits, client, first=ACCOUNTS * place, count=each) for place in range(writers)]
            for call in calls:
                call.result()

    return _beside(bench, "commands.threads", work, each * writers, writers=writers)


def processes(bench: Bench) -> list[Result]:
    """Eight processes, each with accounts of its own."""
    writers, each = bench.size(8, 2), bench.size(250, 10)
    with bench.scratch("sourcing") as folder, both(folder, writers=writers, partitions=writers) as clients:

        def measure(subject: str) -> Sample:
            programs = [(subject, folder, ACCOUNTS * place, each) for place in range(writers)]
            seconds, _ = run_together("benchmarks.sourcing.processes", programs)
            return Sample(each * writers, seconds, 0.0)

        samples = bench.interleave(
            "commands.processes", {subject: partial(measure, subject) for subject in clients}, rounds=bench.size(3, 1)
        )
    return _results("commands.processes", samples, {})


def deposits(client: Client, *, first: int, count: int) -> None:
    """Send commands one by one to the accounts from `first` on, in turn."""
    for number in range(count):
        client.deposit(first + number % ACCOUNTS)


def _beside(bench: Bench, name: str, work: Callable[[Client], None], count: int, *, writers: int = 1) -> list[Result]:
    def measure(client: Client) -> Sample:
        with Stopwatch() as watch:
            work(client)
        return watch.sample(count)

    with bench.scratch("sourcing") as folder, both(folder, writers=writers) as clients:
        turns = {subject: partial(measure, client) for subject, client in clients.items()}
        samples = bench.interleave(name, turns, rounds=bench.size(5, 1))
    cpu = {subject: 1e6 / median_cpu_rate(of_subject) for subject, of_subject in samples.items()}
    return _results(name, samples, {"cpu_us": cpu["ours"], "peer_cpu_us": cpu[PEER]})


def _results(name: str, samples: dict[str, list[Sample]], more: dict[str, float]) -> list[Result]:
    ours, peer = median_rate(samples["ours"]), median_rate(samples[PEER])
    return [Result(name=name, value=ours, unit="commands/s", peer=PEER, peer_value=peer, more=more, bars=BARS)]
