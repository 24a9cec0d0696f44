"""Tables whose columns are declared: a source without a database, for tests and checks of apps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from headwater.capture.capture import Capture
from headwater.capture.config import CaptureConfig
from headwater.capture.port import Piece, Position, SnapshotProgress, SourceHealth, Table
from headwater.log.port import Log


class DeclaredSource:
    """A source that has tables, and never a row."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = list(tables)

    def tables(self) -> list[Table]:
        return self._tables

    def prepare(self) -> list[Table]:
        return self._tables

    def first_position(self) -> Position:
        return {}

    def read(self, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:  # noqa: ARG002 - of the port
        return Piece(position=position)

    def rows(self, table: Table) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - of the port
        return iter(())

    def acknowledge(self, position: Position) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def health(self, position: Position) -> SourceHealth:  # noqa: ARG002 - of the port
        return SourceHealth(pending=0, delay_seconds=0.0)

    def drop(self) -> None: ...

    def close(self) -> None: ...


def create_topics(log: Log, config: CaptureConfig, tables: Sequence[Table]) -> list[str]:
    """Create the topics that a capture of these tables would have, without its database; return their names.

    >>> import tempfile, headwater
    >>> import pyarrow as pa
    >>> log = headwater.open(tempfile.mkdtemp() + "/log")
    >>> orders = Table(name="orders", columns=pa.schema({"id": pa.int64()}), key=("id",))
    >>> create_topics(log, CaptureConfig(name="shop", url="sqlite:///shop.db"), [orders])
    ['shop.orders']
    """
    with Capture.of(log, config, DeclaredSource(tables)):
        return [config.topic_of(table.name) for table in tables]
