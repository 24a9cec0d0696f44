"""`Match` over the engine without Spark, beside the naive matcher: the same rows in any order, batches and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.columns import HASH, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import EVER, NEVER, BatchTime
from headwater.engine.rows import KeyedRows
from headwater.engine.state_folder import LocalFolder
from headwater.engine.step import PartitionEngine, finished_output, run_step
from headwater.operators.match.language.rule import Rule
from headwater.operators.match.plan.rule_plan import planned
from headwater.operators.match.run.columns import with_columns
from headwater.operators.match.run.match import Match
from tests.operators.batches import _placed, bounded, state_folder
from tests.operators.match import naive

Row = dict[str, Any]
SCHEMA = pa.schema([pa.field("key", pa.string()), *(pa.field(name, kind) for name, kind in naive.COLUMNS.items())])


class Laws:
    """One rule, run by the engine."""

    def __init__(self, rule: Rule, *, late_by_us: int = 0, **settings: Any) -> None:
        self.match = Match(
            rule,
            by="key",
            time=EventTime("at", delay=late_by_us / 1e6, future_max=None),
            timed_out="side_output",
            **settings,
        )
        self.plan = planned(self.match.rule())

    def table(self, rows: Sequence[Row]) -> pa.Table:
        return with_columns(self.plan, pa.Table.from_pylist(list(rows), SCHEMA))

    def make(self, rows: pa.Schema) -> Contract:
        return self.match.contract(rows, plan=self.plan)

    def bounded(self, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """What comes out of rows that are all there, and what timed out."""
        output, sides = bounded(self.make, self.table(rows))
        return output.to_pylist(), sides["timed_out"].to_pylist() if "timed_out" in sides else []

    def streamed(
        self, batches: Sequence[Sequence[Row]], *, partitions: int = 2, replay: int | None = None, end: bool = True
    ) -> tuple[list[Row], dict[str, list[Row]]]:
        """What comes out batch by batch, and with `end` at the end of all time; and the sides."""
        tables = [self.table(batch) for batch in batches]
        contract = replace(self.make(tables[0].schema), partitions=partitions)
        outputs: list[pa.Table] = []
        with state_folder() as folder:
            for number, rows in enumerate(tables):
                for _ in range(2 if number == replay else 1):
                    done = [
                        PartitionEngine(contract, LocalFolder(Path(folder)), slot=slot).run(
                            part, batch=number, processing_us=None, broadcast={}
                        )
                        for slot, part in enumerate(_placed(rows, contract))
                    ]
                outputs += done
            told: dict[str, list[Row]] = {}
            for path in sorted(Path(folder).glob("sides/*/*.arrow")):
                with pa.memory_map(str(path)) as source:
                    told.setdefault(path.parent.name, []).extend(pa.ipc.open_file(source).read_all().to_pylist())
            for slot in range(partitions if end else 0):
                output, sides = ended(contract, Path(folder), slot, batch=len(tables))
                outputs.append(output)
                for name, table in sides.items():
                    told.setdefault(name, []).extend(table.to_pylist())
        return [row for table in outputs for row in table.to_pylist()], told

    def by_watermark(
        self, rows: Sequence[Row], watermarks: Sequence[int]
    ) -> Iterator[tuple[list[Row], dict[str, list[Row]]]]:
        """What comes out of the rows of one key in each batch: its rows are those up to its watermark, and the last
        batch is the end of the input."""
        made = self.make(self.table(rows).schema)
        empty = pa.schema([*made.state, *made.key_schema, pa.field(KEY, pa.int64())]).empty_table()
        state, before = empty, NEVER
        for watermark in [*watermarks, EVER]:
            batch = self.table([row for row in rows if before <= row["at"] < watermark])
            batch = batch.append_column(KEY, pa.array(np.zeros(len(batch), np.int64)))
            time = BatchTime(
                watermark_us=watermark,
                local_watermark_us=watermark,
                local_watermark_before_us=before,
                final=watermark == EVER,
            )
            done = made.step(state, batch, time)
            assert isinstance(done, StepResult)
            kept = done.state.append_column("key", pa.array(["k0"] * len(done.state), pa.string()))
            state, before = pa.concat_tables([empty, kept.select(empty.column_names)]), watermark
            output = [] if done.output is None else done.output.to_pylist()
            yield output, {name: table.to_pylist() for name, table in done.side_outputs.items()}


def ended(
    contract: Contract, folder: Path, slot: int, *, batch: int, broadcast: Mapping[str, pa.Table] | None = None
) -> tuple[pa.Table, Mapping[str, pa.Table]]:
    """What the state of a partition gives when no more rows will come."""
    store = PartitionEngine(contract, LocalFolder(folder), slot=slot)._store
    manifest = store.load(batch)
    held = store.everything(manifest)
    keys = held.select([HASH, *contract.key]).group_by([HASH, *contract.key]).aggregate([]).sort_by(HASH)
    hashes = np.asarray(keys.column(HASH)).astype(np.uint64)
    names = keys.select(list(contract.key)).cast(contract.key_schema)
    nothing = pa.schema([*contract.rows, pa.field(KEY, pa.int64())]).empty_table()
    state = store.look_up(manifest, hashes, names)
    touched = KeyedRows(hashes, names, nothing)
    time = BatchTime(watermark_us=EVER, local_watermark_us=EVER, final=True, broadcast=broadcast or {})
    stepped = run_step(contract, state, touched, time)
    return finished_output(contract, touched, stepped.output), stepped.side_outputs


def keyed(events: Sequence[Sequence[Row]]) -> list[Row]:
    """The events of several keys as rows."""
    return [{"key": f"k{number}", **row} for number, rows in enumerate(events) for row in rows]


def expected(rule: Rule, rows: Sequence[Row], **settings: Any) -> tuple[list[Row], list[Row]]:
    """What the naive matcher finds, key by key: what comes out, and what timed out."""
    out: list[Row] = []
    over: list[Row] = []
    for key in dict.fromkeys(row["key"] for row in rows):
        own = [row for row in rows if row["key"] == key]
        out += [{"key": key, **row} for row in naive.output(rule, own, **settings)]
        over += [{"key": key, **row} for row in naive.partials(rule, own, **settings)]
    return out, over


def starts_dropped(rule: Rule, rows: Sequence[Row], **settings: Any) -> list[Row]:
    """The starts that the naive matcher drops, as the side output tells them."""
    found: list[Row] = []
    for key in dict.fromkeys(row["key"] for row in rows):
        own = [row for row in rows if row["key"] == key]
        starts = naive.search(rule, own, **settings).dropped
        found += [{"key": key, "started_at": own[start]["at"], "reason": "rows"} for start in starts]
    return found


def comparable(rows: Sequence[Row]) -> list[str]:
    """Rows in an order of their own; real numbers as exact as a sum in another order can be."""
    return sorted(repr([(name, _rounded(value)) for name, value in sorted(row.items())]) for row in rows)


def _rounded(value: Any) -> Any:
    return round(value, 9) + 0.0 if isinstance(value, float) else value


@st.composite
def arrivals(draw: st.DrawFn, rows: Sequence[Row], *, late_by_us: int) -> list[list[Row]]:
    """The rows in any order within the lateness, in any batches; none is late."""
    delayed = [(row["at"] + draw(st.integers(0, late_by_us)), number) for number, row in enumerate(rows)]
    order = [rows[number] for _, number in sorted(delayed)]
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=4)))
    return [list(order[begin:end]) for begin, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]
