"""A query on all engines in turn: first over few events, with its rows compared with DuckDB's, then over many.

Nothing is written anywhere, but for q10, whose output are files. The rate is taken without the start of a query: that of
Headwater and Spark over the batches, that of the other engines by taking off a run over the first events alone, in the
same process. The processor time is that of all processes of an engine. Each figure is the best of its rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from benchmarks.harness import Bar, Bench, Result, shown
from benchmarks.nexmark.check import AnswerWrong, check, given, wanted
from benchmarks.nexmark.data import USES, Data, fill
from benchmarks.nexmark.engines import HEADWATER, SPARK, Engine, QueryFailed, QueryUnsupported, Run, engine
from benchmarks.peer_servers import PeerUnavailable
from benchmarks.spark.workbench import CORES
from headwater.testing import Nexmark

#: A minute of event time: enough for auctions and sessions to end.
CHECK_EVENTS = 12_000
CHECKED = Nexmark(seed=1, between="5 ms")
MEASURED = Nexmark(seed=1, between="1 ms")
CHECK_BATCHES = 2
BATCH_EVENTS = 500_000
#: What an engine without a start of its own is started with.
FIRST_EVENTS = 100
#: What is asked of ours beside bare Spark: without state at least its rate, with state twice of it.
STATELESS = ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22")
LEAST, LEAST_WITH_STATE = 1.0, 2.0
#: Queries of which Spark says the last results only when a later event has come.
WAITING = ("q5", "q7", "q8", "q11")
MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How many events, and how often."""

    events: int
    rounds: int


class Engines:
    """The engines of a run: started with their first query, and stopped when the run ends."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self._engines: dict[str, Engine] = {}
        self.missing: dict[str, str] = {}

    def of(self, bench: Bench) -> Mapping[str, Engine]:
        for name in self._names:
            if name not in self._engines and name not in self.missing:
                try:
                    self._engines[name] = engine(bench, name)
                except PeerUnavailable as error:
                    self.missing[name] = str(error)
        return self._engines

    def stop(self) -> None:
        for one in self._engines.values():
            one.stop()


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What an engine took for a query."""

    events: int
    events_per_second: float
    cpu_seconds_per_million: float
    memory_mib: float


def query(name: str, bench: Bench, *, settings: Settings, engines: Engines) -> list[Result]:
    """A query of Nexmark on all engines that can do it."""
    few = _data(bench, CHECKED, CHECK_EVENTS, CHECK_BATCHES)
    events = bench.size(settings.events, CHECK_EVENTS)
    many = _data(bench, MEASURED, events, max(CHECK_BATCHES, events // BATCH_EVENTS))
    expected = wanted(CHECKED.events(first=0, count=CHECK_EVENTS), name)
    able: dict[str, Engine] = {}
    notes: dict[str, str] = {}
    for label, one in engines.of(bench).items():
        try:
            rows = _checked(bench, name, one, few, expected)
        except (QueryFailed, QueryUnsupported, AnswerWrong) as error:
            notes[label] = f"{type(error).__name__}: {error}"
            bench.say(f"{name} {label}: {error}")
        else:
            able[label] = one
            bench.say(f"{name} {label}: the {rows} rows of DuckDB")
    runs: dict[str, list[Run]] = {label: [] for label in able}
    for number in range(bench.size(settings.rounds, 1)):
        for label in [*runs] if number % 2 else [*runs][::-1]:
            try:
                run = _measured(name, many, able[label])
            except QueryFailed as error:
                notes[label] = str(error)
                bench.say(f"{name} {label}: {error}")
                continue
            runs[label].append(run)
            rate = shown(run.events / run.seconds)
            bench.say(f"{name} {number + 1} {label}: {rate}/s, {run.cpu_seconds:.1f} CPU-s")
    figures = {label: _figures(all_runs) for label, all_runs in runs.items() if all_runs}
    return _results(name, figures, notes | engines.missing, many)


@cache
def _data(bench: Bench, made: Nexmark, events: int, batches: int) -> Data:
    """The events of this run, written once for all queries."""
    bench.say(f"writing {shown(events)} events")
    folder = bench.folder / f"events-{events}-{made.between}".replace(" ", "")
    folder.mkdir()
    return fill(folder, made, events=events, batches=batches)


# Any: requests are JSON.
def _request(query: str, data: Data, one: Engine, *, events: int, files: int = CORES) -> dict[str, Any]:
    """A request for a query over all events, or over the first so many in so many CSV files."""
    uses = USES[query]
    request: dict[str, Any] = {"query": query, "columns": uses, "events": events}
    if one.command.csv_events_max is None:
        batch_rows = {topic: data.batch_rows(topic) for topic in uses}
        return request | {"log": str(data.log), "parquet": str(data.parquet), "batch_rows": batch_rows}
    header = one.command.csv_header
    csv = {
        topic: data.csv(topic, columns, events=events, files=files, header=header) for topic, columns in uses.items()
    }
    request["csv"] = {topic: str(folder) for topic, folder in csv.items()}
    return request | {"side": str(data.side(header=header)), "files": str(data.folder / "files")}


def _checked(bench: Bench, query: str, one: Engine, few: Data, expected: list[dict[str, Any]]) -> int:
    """Raise unless an engine gives the rows of DuckDB; how many they are. It also warms the engine up."""
    path = bench.folder / "changes.json"
    request = _request(query, few, one, events=few.events, files=1) | {"collect": str(path)}
    if "parquet" in request and query in WAITING:
        request["parquet"] = str(few.closed_parquet())
    run = one.run(request)
    return check(query, given(path, run.answer.get("key", ())), expected)


def _measured(query: str, data: Data, one: Engine) -> Run:
    """A run over all events, or as many as the engine comes through; without its start, where it tells that not itself."""
    events_max = one.command.csv_events_max
    if events_max is None:
        return one.run(_request(query, data, one, events=data.events))
    start = one.run(_request(query, data, one, events=FIRST_EVENTS, files=1))
    run = one.run(_request(query, data, one, events=min(events_max, data.events)))
    return replace(
        run,
        seconds=max(0.001, run.seconds - start.seconds),
        cpu_seconds=max(0.0, run.cpu_seconds - start.cpu_seconds),
        events=run.events - start.events,
    )


def _figures(runs: list[Run]) -> Figures:
    return Figures(
        events=runs[0].events,
        events_per_second=max(run.events / run.seconds for run in runs),
        cpu_seconds_per_million=min(run.cpu_seconds / run.events for run in runs) * 1e6,
        memory_mib=max(run.memory_bytes for run in runs) / MIB,
    )


def _results(name: str, figures: Mapping[str, Figures], notes: Mapping[str, str], many: Data) -> list[Result]:
    """A line for each peer; ours alone, where no peer came through."""
    ours = figures.get(HEADWATER)
    found: list[Result] = []
    for peer in [label for label in {**figures, **notes} if label != HEADWATER] or [""]:
        theirs = figures.get(peer)
        more: dict[str, Any] = {"events": many.events, "batches": many.batches}
        for side, taken in (("", ours), ("peer_", theirs)):
            if taken is not None:
                more |= {f"{side}{what}": value for what, value in asdict(taken).items() if what != "events_per_second"}
        least = LEAST_WITH_STATE if peer == SPARK and name not in STATELESS else LEAST
        note = "; ".join(f"{label}: {notes[label]}" for label in (HEADWATER, peer) if label in notes)
        found.append(
            Result(
                name=name if peer in ("", SPARK) else f"{name}.{peer.split()[0].lower()}",
                value=None if ours is None else ours.events_per_second,
                unit="events/s",
                peer=peer or None,
                peer_value=None if theirs is None else theirs.events_per_second,
                more=more,
                bars=[Bar(figure="ratio", least=least)] if theirs is not None else [],
                note=note,
            )
        )
    return found
