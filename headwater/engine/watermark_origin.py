"""Where the watermark of a column is recorded: by the source of its rows, or by the operator that made them.

The column of event time carries its origin as metadata, beside its settings. An operator finds the origins of its inputs in
the plan, from its time column down to the source or the operator that the column comes from. In each micro-batch it reads
what they have recorded, whatever projections and filters stand between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.engine.analyzed_plan import analyzed_plan
from headwater.engine.event_time import EVER, NEVER, SourceProgress, WatermarkStrategy
from headwater.engine.micro_batch import MicroBatch, records_named, time_folder
from headwater.engine.state_folder import open_folder
from headwater.engine.state_store import Manifest
from headwater.engine.time_metadata import ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Nodes of a plan that pass rows on, and give no row another time.
PASSING = (
    "Filter",
    "SubqueryAlias",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "EventTimeWatermark",
    "CollectMetrics",
    "ResolvedHint",
    "Generate",
    "View",
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A source, or a column of the output of an operator.

    `future_us` is how far into the future a time may be for the source to record it. What an operator records is behind the
    times of its input by `delay_us` already.

    >>> Origin.of_text(Origin(operator="totals", column="window_start").to_text()).column
    'window_start'
    """

    source: str | None = None
    future_us: int | None = None
    operator: str | None = None
    column: str | None = None
    delay_us: int = 0

    def to_text(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    @staticmethod
    def of_text(text: str) -> Origin:
        return Origin(**json.loads(text))


Origins = tuple[tuple[Origin, ...], ...]
"""For each input of an operator its origins; empty where the rows of one of the inputs decide."""


def source_name(log: str, topics: Sequence[str], column: str) -> str:
    """The name under which a source records the event time of its topics: the same for each read of them."""
    return hashlib.sha256(repr([log, tuple(topics), column]).encode()).hexdigest()[:12]


# -- the plan ---------------------------------------------------------------------------------------------------------


def origins_of(inputs: Iterable[DataFrame], strategy: WatermarkStrategy) -> Origins:
    """The origins of the time column of each input, if all of them have one that goes by the operator's settings."""
    found = []
    for number, rows in enumerate(inputs):
        own = strategy.of_input(str(number))
        origins = () if own.time is None else _origins_of_column(rows, own.time)
        if not origins or any(one.source is not None and one.future_us != own.future_us for one in origins):
            return ()
        found.append(origins)
    return tuple(found)


def _origins_of_column(rows: DataFrame, column: str) -> tuple[Origin, ...]:
    if column not in rows.columns or ORIGIN not in (rows.schema[column].metadata or {}):
        return ()
    plan = analyzed_plan(rows)
    return _origins(plan, plan.output().apply(rows.columns.index(column)).exprId().id())


# Any, here and below: a plan of Spark's, which has no Python face.
def _origins(plan: Any, column: int) -> tuple[Origin, ...]:
    """The origins of a column of a plan, by Spark's number of the column."""
    kind = plan.getClass().getSimpleName()
    if kind == "Project":
        below = _projected(plan, column)
        return () if below is None else _origins(plan.child(), below)
    if kind in PASSING:
        return _origins(plan.child(), column)
    if kind == "Union":
        place = _place(plan, column)
        children = _listed(plan.children())
        found = [_origins(one, one.output().apply(place).exprId().id()) for one in children]
        return tuple(dict.fromkeys(origin for one in found for origin in one)) if all(found) else ()
    if kind == "Join":
        streams = [one for one in (plan.left(), plan.right()) if one.isStreaming()]
        return _origins(streams[0], column) if len(streams) == 1 else ()
    if kind in ("StreamingRelationV2", "DataSourceV2Relation", "PythonMapInArrow", "MapInArrow"):
        place = _place(plan, column)
        text = None if place is None else json.loads(plan.output().apply(place).metadata().json()).get(ORIGIN)
        return () if text is None else (Origin.of_text(text),)
    return ()


def _projected(plan: Any, column: int) -> int | None:
    """The column below a projection that a column is, under whatever name."""
    for one in _listed(plan.projectList()):
        if one.exprId().id() == column:
            of = one.child() if one.getClass().getSimpleName() == "Alias" else one
            return of.exprId().id() if of.getClass().getSimpleName() == "AttributeReference" else None
    return None


def _place(plan: Any, column: int) -> int | None:
    numbers = [one.exprId().id() for one in _listed(plan.output())]
    return numbers.index(column) if column in numbers else None


def _listed(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.length())]


# -- the records of a batch -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """What a source has recorded with a batch: by topic and partition the latest event time, when it was seen, and what
    was promised by a punctuation."""

    name: str | None
    at_us: int
    times: Mapping[str, tuple[int, int, int]]

    # Any: JSON.
    def to_json(self) -> dict[str, Any]:
        return {"at_us": self.at_us, "name": self.name, "times": self.times}

    @staticmethod
    def of_json(body: Mapping[str, Any]) -> SourceRecord:
        times = {place: (latest, at, promised) for place, (latest, at, promised) in body.get("times", {}).items()}
        return SourceRecord(name=body.get("name"), at_us=body["at_us"], times=times)

    @property
    def is_final(self) -> bool:
        """Whether nothing follows from any partition."""
        return bool(self.times) and all(promised >= EVER for _, _, promised in self.times.values())


def source_records(state: str | Path, batch: MicroBatch) -> list[SourceRecord]:
    """What the sources of a batch have recorded; a source without anything new has no record."""
    found = records_named(time_folder(state, batch.query), f"time-{batch.number}-")
    return [SourceRecord.of_json(body) for body in found]


def recorded_progress(
    records: Sequence[SourceRecord],
    origins: Origins,
    strategy: WatermarkStrategy,
    *,
    state: str | Path,
    batch: MicroBatch,
    now_us: int | None,
) -> SourceProgress:
    """What the origins of an operator's inputs have recorded with a batch, as the progress that its watermark follows."""
    progress: SourceProgress = {}
    for number, of_input in enumerate(origins):
        name = str(number) if len(origins) > 1 else ""
        delay_us = strategy.of_input(str(number)).delay_us
        places = progress.setdefault(name, {})
        for origin in of_input:
            if origin.operator is not None:
                places |= _of_operator(origin, delay_us, state=state, batch=batch, now_us=now_us)
            else:
                places |= _of_sources([one for one in records if one.name == origin.source], delay_us)
    return progress


def _of_sources(records: Sequence[SourceRecord], delay_us: int) -> dict[str, tuple[int, int]]:
    """The progress of a source; of several reads of the same topics that of the slower one."""
    places: dict[str, tuple[int, int]] = {}
    for record in records:
        for place, (latest_us, at_us, promised_us) in record.times.items():
            # A promise that nothing earlier than t follows is as good as a row with the time t + delay.
            reached_us = latest_us if promised_us <= NEVER else max(latest_us, promised_us + delay_us)
            known = places.get(place, (reached_us, at_us))
            places[place] = (min(known[0], reached_us), max(known[1], at_us))
    return {place: (reached_us, at_us) for place, (reached_us, at_us) in places.items() if reached_us > NEVER}


def _of_operator(
    origin: Origin, delay_us: int, *, state: str | Path, batch: MicroBatch, now_us: int | None
) -> dict[str, tuple[int, int]]:
    """The time before which an operator has no more results, as its newest manifest says."""
    folder = open_folder(state).within(batch.query).within(str(origin.operator)).within("0")
    versions = [int(name.removesuffix(".json")) for name in folder.names() if name.endswith(".json")]
    number = max((one for one in versions if one <= batch.number), default=None)
    text = None if number is None else folder.read_text(f"{number:012d}.json")
    manifest = None if text is None else Manifest.loads(text)
    output_us = NEVER if manifest is None else manifest.output_us.get(str(origin.column), NEVER)
    if manifest is None or output_us <= NEVER:
        return {}
    reached_us = output_us + (delay_us if output_us >= EVER else min(delay_us, origin.delay_us))
    at_us = max((at for places in manifest.progress.values() for _, at in places.values()), default=NEVER)
    return {f"{origin.operator}/{origin.column}": (reached_us, now_us if at_us <= NEVER and now_us else at_us)}
