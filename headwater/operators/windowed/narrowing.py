"""Rounds in which each key has one row: state of keys whose rows are used up is set aside, and looked at no more."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.operators.agg.groups import Int64s
from headwater.operators.keyed.engine import KEY


def narrowed(table: pa.Table, keys: Int64s) -> tuple[pa.Table, pa.Table]:
    """The rows of these keys, and those of all others.

    >>> some, others = narrowed(pa.table({"_key": [0, 1, 1, 2]}), np.array([1]))
    >>> some.column("_key").to_pylist(), others.column("_key").to_pylist()
    ([1, 1], [0, 2])
    """
    chosen = np.isin(np.asarray(table.column(KEY).combine_chunks()), keys)
    return table.filter(pa.array(chosen)), table.filter(pa.array(~chosen))
