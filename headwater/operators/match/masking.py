"""`Match` directly on a topic: the reader computes the masks, and packs them with the columns that go on.

Columns that only conditions look at do not leave the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.operators.keyed.direct import Direct, Pack
from headwater.operators.match.arrays import masks_over
from headwater.operators.match.expression import Expression
from headwater.operators.match.plain import is_plain
from headwater.operators.match.plan import Plan, references_in


@dataclass(frozen=True)
class Masking(Pack):
    """Columns of a topic, with the mask of each row."""

    masks: tuple[Expression, ...]
    names: tuple[str, ...]
    #: The columns that go on.
    kept: tuple[str, ...]

    @property
    def packs(self) -> pa.Schema:
        """The rows that are packed."""
        kinds = dict(zip((name for name, _ in self.columns), self.rows.types, strict=True))
        return pa.schema([*((name, kinds[name]) for name in self.kept), *((name, pa.int64()) for name in self.names)])

    def chosen(self, table: pa.Table) -> pa.Table:
        rows = super().chosen(table)
        words = masks_over(self.masks, rows)
        rows = rows.select(list(self.kept))
        for word, name in enumerate(self.names):
            rows = rows.append_column(name, pa.array(words[word]))
        return rows


def masking(
    direct: Direct,
    plan: Plan,
    *,
    name: str,
    rows: pa.Schema,
    kept: Sequence[str],
    keys: Sequence[str],
    partitions: int,
) -> Masking | None:
    """What the reader does for a plan; None where some of it is for Spark to compute."""
    if plan.derived or not all(is_plain(tree, rows) for tree in plan.masks):
        return None
    asked = [one.column for tree in plan.masks for one in references_in(tree)]
    read = pa.schema([rows.field(one) for one in dict.fromkeys([*kept, *asked])])
    pack = direct.pack(name, rows=read, keys=keys, partitions=partitions)
    if pack is None:
        return None
    return Masking(
        pack.name,
        pack.rows,
        pack.columns,
        pack.keys,
        pack.partitions,
        masks=plan.masks,
        names=plan.mask_columns,
        kept=tuple(kept),
    )
