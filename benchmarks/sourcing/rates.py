"""Durable commands a second: one by one, many at once, and of eight writers."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate
from benchmarks.sourcing.clients import ACCOUNTS, POSTGRES, SQLITE, Client, beside
from benchmarks.together import run_together

BATCH = 1_000
BARS = [Bar(figure="ratio", least=3)]
_NAMES = {SQLITE: "sqlite", POSTGRES: "postgres"}
_WRITES = ("append", "overwrite")
#: About what a command of ours writes.
_ROW_BYTES = 1_000


def single(bench: Bench, peer: str) -> list[Result]:
    """One writer that waits for the disk after each command."""
    count = bench.size(1_000, 50)
    return _beside(bench, f"commands.{_NAMES[peer]}", peer, partial(deposits, first=0, count=count), count)


def many(bench: Bench, peer: str) -> list[Result]:
    """One writer that waits for the disk after 1,000 commands."""
    batches = bench.size(20, 1)

    def work(client: Client) -> None:
        for _ in range(batches):
            client.deposit_many([number % ACCOUNTS for number in range(BATCH)])

    return _beside(bench, f"many.{_NAMES[peer]}", peer, work, batches * BATCH)


def threads(bench: Bench, peer: str) -> list[Result]:
    """Eight threads of a process, each with accounts of its own."""
    writers, each = bench.size(8, 2), bench.size(250, 10)

    def work(client: Client) -> None:
        with ThreadPoolExecutor(writers) as pool:
            calls = [pool.submit(deposits, client, first=ACCOUNTS * place, count=each) for place in range(writers)]
            for call in calls:
                call.result()

    return _beside(bench, f"threads.{_NAMES[peer]}", peer, work, each * writers, writers=writers)


def processes(bench: Bench, peer: str) -> list[Result]:
    """Eight processes, each with accounts of its own."""
    writers, each = bench.size(8, 2), bench.size(250, 10)
    name = f"processes.{_NAMES[peer]}"
    with bench.scratch("sourcing") as folder, beside(folder, peer, writers=writers) as clients:

        def measure(subject: str) -> Sample:
            programs = [(subject, folder, ACCOUNTS * place, each) for place in range(writers)]
            seconds, _ = run_together("benchmarks.sourcing.processes", programs)
            return Sample(each * writers, seconds, 0.0)

        turns = {subject: partial(measure, subject) for subject in clients}
        samples = bench.interleave(name, turns, rounds=bench.size(3, 1))
    return _results(name, peer, samples, {})


def disk(bench: Bench) -> list[Result]:
    """Waits for the disk a second, behind an append as ours and behind an overwrite as SQLite's: no writer has more."""
    count = bench.size(1_000, 50)
    with bench.scratch("sourcing") as folder:
        turns = {name: partial(_syncs, folder / name, count, is_filled=name == "overwrite") for name in _WRITES}
        samples = bench.interleave("disk", turns, rounds=bench.size(5, 1))
    rates = {name: median_rate(samples[name]) for name in _WRITES}
    return [Result(name="disk", value=rates["append"], unit="syncs/s", peer="overwrite", peer_value=rates["overwrite"])]


def _syncs(path: Path, count: int, *, is_filled: bool) -> Sample:
    with path.open("wb", buffering=0) as file:
        if is_filled:
            file.write(bytes(count * _ROW_BYTES))
            os.fsync(file.fileno())
        row = b"x" * _ROW_BYTES
        with Stopwatch() as watch:
            for place in range(count):
                os.pwrite(file.fileno(), row, place * _ROW_BYTES)
                os.fdatasync(file.fileno())
    path.unlink()
    return watch.sample(count)


def deposits(client: Client, *, first: int, count: int) -> None:
    """Send commands one by one to the accounts from `first` on, in turn."""
    for number in range(count):
        client.deposit(first + number % ACCOUNTS)


def _beside(
    bench: Bench, name: str, peer: str, work: Callable[[Client], None], count: int, *, writers: int = 1
) -> list[Result]:
    def measure(client: Client) -> Sample:
        with Stopwatch() as watch:
            work(client)
        return watch.sample(count)

    with bench.scratch("sourcing") as folder, beside(folder, peer, writers=writers) as clients:
        turns = {subject: partial(measure, client) for subject, client in clients.items()}
        samples = bench.interleave(name, turns, rounds=bench.size(5, 1))
    cpu = {subject: 1e6 / median_cpu_rate(of_subject) for subject, of_subject in samples.items()}
    return _results(name, peer, samples, {"cpu_us": cpu["ours"], "peer_cpu_us": cpu[peer]})


def _results(name: str, peer: str, samples: dict[str, list[Sample]], more: dict[str, float]) -> list[Result]:
    ours, theirs = median_rate(samples["ours"]), median_rate(samples[peer])
    return [Result(name=name, value=ours, unit="commands/s", peer=peer, peer_value=theirs, more=more, bars=BARS)]
