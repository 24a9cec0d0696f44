"""A workload on both engines in turn: first over few events, to warm up, then over all, with the rows compared with DuckDB's.

The rate is that of the micro-batches, without the start of a query; the processor time is that of all processes of an engine.
Each figure is the best of its rounds.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from benchmarks.harness import Bar, Bench, Result, shown
from benchmarks.nexmark.engines import MEMORY, PATHWAY_VERSION, Command, Engine, QueryFailed, Run
from benchmarks.peer_servers import PeerUnavailable
from benchmarks.peer_venv import installed
from benchmarks.peers.answers import ANSWERS, TOPICS, check
from benchmarks.peers.data import Data, fill, written
from benchmarks.peers.workloads import PATTERN, STATELESS
from benchmarks.spark.workbench import CORES

HEADWATER, SPARK, PATHWAY = "Headwater", "Spark", "Pathway"
BATCHES = 10
WARM_EVENTS = 200_000
#: Pathway gets so many events: its rate does not depend on it.
PATHWAY_EVENTS, PATHWAY_FIRST = 200_000, 100
LEAST, LEAST_WITH_STATE = 1.0, 2.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How many events, how often, and whether there is a peer."""

    events: int
    rounds: int
    peers: bool = True


class Engines:
    """The engines of a run: each is started with its first workload, and stopped when the run ends."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def of(self, bench: Bench, name: str) -> Engine:
        if name not in self._engines:
            folder = bench.folder / "engines" / name
            folder.mkdir(parents=True)
            self._engines[name] = Engine(name, _command(bench, name, str(folder)), folder / "errors")
        return self._engines[name]

    def stop(self) -> None:
        for one in self._engines.values():
            one.stop()


def _command(bench: Bench, name: str, folder: str) -> Command:
    if name == PATHWAY:
        python = installed(bench, PATHWAY, PATHWAY_VERSION, f"pathway=={PATHWAY_VERSION}")
        environ = {"PATHWAY_THREADS": str(CORES)}
        return Command(python=str(python), module="benchmarks.peers.pathway_child", environ=environ)
    arguments = [name.lower(), folder, str(CORES), MEMORY]
    return Command(python=sys.executable, module="benchmarks.peers.child", arguments=arguments)


def workload(name: str, bench: Bench, *, settings: Settings, engines: Engines) -> list[Result]:
    """A workload on Headwater and on its peer."""
    few, many = (_data(bench, events) for events in (WARM_EVENTS, bench.size(settings.events, WARM_EVENTS)))
    for data in (few, many):
        written(data, TOPICS[name])
    subjects: dict[str, Callable[[Data], Run]] = {HEADWATER: lambda data: _run(bench, name, HEADWATER, data, engines)}
    peer = PATHWAY if name == PATTERN else SPARK
    if settings.peers:
        subjects[peer] = lambda data: (
            _pathway(bench, data, engines) if peer == PATHWAY else _run(bench, name, SPARK, data, engines)
        )
    runs: dict[str, list[Run]] = {label: [] for label in subjects}
    notes: dict[str, str] = {}
    for number in range(bench.size(settings.rounds, 1) + 1):
        data = many if number else few
        for label in [*subjects] if number % 2 else [*subjects][::-1]:
            if label in notes:
                continue
            try:
                run = subjects[label](data)
            except (QueryFailed, PeerUnavailable) as error:
                notes[label] = str(error)
                bench.say(f"{name} {label}: {error}")
                continue
            if number or bench.quick:
                runs[label].append(run)
                bench.say(f"{name} {number} {label}: {shown(run.events / run.seconds)}/s, {run.cpu_seconds:.1f} CPU-s")
    return [_result(name, peer, runs, notes, many)]


@cache
def _data(bench: Bench, events: int) -> Data:
    return fill(bench.folder / f"events-{events}", events=events, batches=BATCHES)


def _run(bench: Bench, name: str, engine: str, data: Data, engines: Engines) -> Run:
    """A run on Headwater or Spark, whose rows are compared with those of DuckDB."""
    out = bench.folder / "out"
    batch_rows = data.rows(TOPICS[name][0]) // data.batches
    # Any: requests are JSON.
    request: dict[str, Any] = {"query": name, "events": data.events, "batch_rows": batch_rows, "out": str(out)}
    request |= {"log": str(data.log), "parquet": str(data.folder / "parquet"), "items": str(data.items)}
    try:
        run = engines.of(bench, engine).run(request)
        rows = check(name, data, out, whole=engine == HEADWATER)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    bench.say(f"{name} {engine}: {shown(rows)} rows, as DuckDB has them")
    return run


def _pathway(bench: Bench, data: Data, engines: Engines) -> Run:
    """A run of Pathway over some of the events, less one over hardly any, which is its start."""
    engine, found = engines.of(bench, PATHWAY), []
    for events in (PATHWAY_FIRST, min(PATHWAY_EVENTS, data.events)):
        request = {"csv": str(data.csv(events)), "events": events, "out": str(bench.folder / "matches")}
        found.append(engine.run(request))
    start, run = found
    return replace(
        run,
        seconds=max(0.001, run.seconds - start.seconds),
        cpu_seconds=max(0.001, run.cpu_seconds - start.cpu_seconds),
        events=run.events - start.events,
    )


def _result(name: str, peer: str, runs: dict[str, list[Run]], notes: dict[str, str], many: Data) -> Result:
    more: dict[str, Any] = {"events": many.events, "batches": many.batches}
    rates = {label: max(run.events / run.seconds for run in found) for label, found in runs.items() if found}
    costs = {label: min(run.cpu_seconds / run.events for run in found) for label, found in runs.items() if found}
    for label, cost in costs.items():
        more["cpu_seconds_per_million" if label == HEADWATER else "peer_cpu_seconds_per_million"] = round(cost * 1e6, 3)
    if len(costs) == 2:
        more["cpu_ratio"] = round(costs[peer] / costs[HEADWATER], 3)
    least = LEAST if name in STATELESS or peer == PATHWAY else LEAST_WITH_STATE
    return Result(
        name=name,
        value=rates.get(HEADWATER),
        unit="events/s",
        peer=peer,
        peer_value=rates.get(peer),
        more=more,
        bars=[Bar(figure="ratio", least=least)] if peer in rates else [],
        note="; ".join(f"{label}: {text}" for label, text in notes.items()),
    )


PARTS = tuple(ANSWERS)
