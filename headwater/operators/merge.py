"""`Merge`: several streams as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headwater.engine.changelog import INSERT, OP
from headwater.engine.spark_plan import union_by_name
from headwater.errors import ArgumentInvalid, ColumnMisfit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The partitions of each stream are counted on from here, so that no two rows have one place.
PARTITIONS_EACH = 4096
STREAMS_MAX = 16


@dataclass(frozen=True)
class Merge:
    """Put the rows of several streams into one, by the names of their columns.

    All must have the same columns of the same types; with `missing="null"` a column that one lacks is null there. `source`
    names a column that says, by its number from 0, which stream a row came from. A stream without `_op` beside one that has it is
    taken for insertions. Rows keep their places in their topics as far as all streams have them; `_partition` is counted
    on from stream to stream, so that operators behind can still tell any two rows apart.

    >>> Merge(None, None, missing="null").missing
    'null'
    """

    others: tuple[Any, ...] = field(repr=False)
    _: KW_ONLY
    missing: Literal["error", "null"] = "error"
    source: str | None = None

    def __init__(
        self, *others: DataFrame | None, missing: Literal["error", "null"] = "error", source: str | None = None
    ) -> None:
        object.__setattr__(self, "others", others)
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "source", source)
        if missing not in ("error", "null"):
            raise ArgumentInvalid(name="missing", value=missing, expected='"error" or "null"')
        if not 0 < len(others) < STREAMS_MAX:
            expected = f"at least one stream to merge with, and at most {STREAMS_MAX - 1}"
            raise ArgumentInvalid(name="others", value=f"{len(others)} streams", expected=expected)

    def __call__(self, rows: DataFrame) -> DataFrame:
        frames = [rows, *self.others]
        own = self._columns(frames)
        if self.source is not None and self.source in own:
            raise ArgumentInvalid(name="source", value=self.source, expected="a name that no column has yet")
        system = [name for name in rows.columns if name.startswith("_") and all(name in one.columns for one in frames)]
        is_changelog = any(OP in one.columns for one in frames)
        kept = [*own, *(name for name in system if name != OP)]
        made = [self._aligned(number, one, kept, is_changelog) for number, one in enumerate(frames)]
        return union_by_name(made)

    def _columns(self, frames: Sequence[DataFrame]) -> list[str]:
        """The columns of the result, once it is clear that they fit together."""
        kinds: dict[str, tuple[int, Any]] = {}
        for number, frame in enumerate(frames):
            for one in frame.schema:
                first, kind = kinds.setdefault(one.name, (number, one.dataType))
                if kind != one.dataType and not one.name.startswith("_"):
                    why = f"is {one.dataType.simpleString()}, but {kind.simpleString()} in stream {first}"
                    raise ColumnMisfit(target=f"topic {f'stream {number} of Merge'!r}", column=one.name, why=why)
        own = [name for name in kinds if not name.startswith("_")]
        for number, frame in enumerate(frames):
            for name in own:
                if name not in frame.columns and self.missing == "error":
                    why = 'is missing there, while another stream has it (missing="null" would fill it)'
                    raise ColumnMisfit(target=f"topic {f'stream {number} of Merge'!r}", column=name, why=why)
        return own

    def _aligned(self, number: int, rows: DataFrame, kept: Sequence[str], is_changelog: bool) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        columns: list[Column] = []
        for name in kept:
            if name == "_partition":
                columns.append((F.col(name) + F.lit(number * PARTITIONS_EACH)).cast("int").alias(name))
            elif name in rows.columns:
                columns.append(F.col(f"`{name}`"))
        if is_changelog:
            columns.append((F.coalesce(F.col(OP), F.lit(INSERT)) if OP in rows.columns else F.lit(INSERT)).alias(OP))
        if self.source is not None:
            columns.append(F.lit(number).alias(self.source))
        return rows.select(*columns)
