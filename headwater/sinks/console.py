"""The console sink: the rows of each batch as a table in the terminal, or in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid
from headwater.sinks.changes import Changes
from headwater.sinks.driver import DriverSink, Progress, Refusals
from headwater.sinks.port import Guarantee
from headwater.spark.changelog import OPERATION

#: What each sink has shown last, for `show`; and how far each query is, so that a replay in this process shows nothing.
_last: dict[str, tuple[str, pa.Table]] = {}
_progress: dict[tuple[str, str], Progress] = {}


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(DriverSink):
    """Print the rows of each batch as a table: to see what a query does while you write it.

    It shows the first `rows_max` rows and says how many there are. In a notebook, where output of a running query has
    no cell of its own, call `show()` to see the last batch.

    >>> sink = ConsoleSink(title="spend")
    >>> sink.commit([pa.record_batch({"card": ["a", "b"], "total": [1, 2]})], MicroBatch(query="docs", number=0))
    spend, batch 0, 2 rows
    ┏━━━━━━┳━━━━━━━┓
    ┃ card ┃ total ┃
    ┡━━━━━━╇━━━━━━━┩
    │ a    │ 1     │
    │ b    │ 2     │
    └──────┴───────┘
    """

    title: str = ""
    rows_max: int = 20

    guarantee: ClassVar[Guarantee] = "at least once"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys:
            raise ArgumentInvalid(name="key", value=self.key, expected="none: all rows are shown")

    @property
    def name(self) -> str:
        return f"console:{self.title}" if self.title else "console"

    def begin(self, batch: MicroBatch) -> bool:
        progress = _progress.get((self.name, batch.query), Progress()).admit(self.name, batch)
        _progress[self.name, batch.query] = progress
        return progress.has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        refusals.post()
        count = changes.rows.num_rows
        if count:
            name = self.title or "rows"
            _last[self.name] = (f"{name}, batch {batch.number}, {count:,} row{'s' * (count != 1)}", changes.rows)
            self.show()
        _progress[self.name, batch.query] = _progress[self.name, batch.query].after(batch)

    def show(self) -> None:
        """Print the last batch that had rows, once more."""
        from rich.console import Console
        from rich.table import Table

        if self.name not in _last:
            Console().print("No batch has had rows yet.")
            return
        title, rows = _last[self.name]
        names = rows.column_names
        table = Table(caption=self._rest(rows.num_rows))
        for name in names:
            table.add_column(name)
        for row in rows.slice(0, self.rows_max).to_pylist():
            table.add_row(*(_shown(row[name]) for name in names), style="red" if _is_old(row.get(OPERATION)) else None)
        console = Console()
        console.print(title, markup=False, highlight=False)
        console.print(table)

    def _rest(self, count: int) -> str | None:
        return f"and {count - self.rows_max:,} more" if count > self.rows_max else None


def _is_old(operation: object) -> bool:
    return operation in ("-D", "-U")


def _shown(value: object) -> str:
    from rich.markup import escape

    return "-" if value is None else escape(str(value))
