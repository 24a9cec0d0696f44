"""A topic read as a table: what holds now for each key, or every change that led there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPERATION = "_op"
_OWN = ("_appended_at", "_sent_at", "_headers", "_tombstone")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A keyed topic, as an argument of a query: `def query(payments: DataFrame, cards: hw.Table) -> DataFrame`.

    `changes` is the table as it moves: a stream in which `_op` says of each row whether it replaces the row of its key
    (`+U`) or deletes it (`-D`). `current()` is the table as it stands when a batch begins: an ordinary bounded
    DataFrame, to join a stream with. `history()` has every row ever written, with `_appended_at`. `Enrich` takes the
    table itself, and finds what held at a time: `time` is the column that says from when a row holds, where the topic
    has declared one, and a topic that is `compact` does not know.
    """

    name: str
    key: tuple[str, ...]
    log: str
    state: str = field(repr=False)
    changes: DataFrame = field(repr=False)
    dated: DataFrame = field(repr=False)
    """The changes with `_appended_at`, when the log took them."""
    time: str | None = None
    compact: bool = False

    def current(self) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        newest = Window.partitionBy(*self.key).orderBy(F.col("_offset").desc())
        rows = self._bounded().withColumn("_place", F.row_number().over(newest))
        kept = rows.where((F.col("_place") == 1) & ~F.coalesce(F.col("_tombstone"), F.lit(False)))
        return kept.drop("_place", "_partition", "_offset", *_OWN)

    def history(self) -> DataFrame:
        return as_changes(self._bounded(), keep=("_appended_at",))

    def _bounded(self) -> DataFrame:
        reader = self.changes.sparkSession.read.format("headwater").option("log", self.log)
        reader = reader.option("metadata", "all").option("stop", "now").option("state", self.state)
        return with_tombstone(reader.load(self.name))


def changes_of(
    spark: SparkSession, *, log: str, topic: str, options: dict[str, str], keep: tuple[str, ...] = ()
) -> DataFrame:
    """A keyed topic as a stream of changes."""
    reader = spark.readStream.format("headwater").option("log", log).options(**options).option("metadata", "all")
    return as_changes(with_tombstone(reader.load(topic)), keep=keep)


def with_tombstone(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return rows if "_tombstone" in rows.columns else rows.withColumn("_tombstone", F.lit(False))


def as_changes(rows: DataFrame, *, keep: tuple[str, ...] = ()) -> DataFrame:
    """Rows of a keyed topic with `_op` in place of the system's columns; those of their place stay."""
    from pyspark.sql import functions as F  # noqa: N812

    gone = F.coalesce(F.col("_tombstone"), F.lit(False))
    told = rows.withColumn(OPERATION, F.when(gone, F.lit("-D")).otherwise(F.lit("+U")))
    return told.drop(*[name for name in _OWN if name not in keep])
