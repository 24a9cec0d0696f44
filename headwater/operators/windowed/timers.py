"""When to look at a key again: one timer for all of its rows, as a key is always looked at whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.operators.agg.groups import Groups, Int64s


def earliest(keys: Int64s, wake_us: Int64s) -> pa.Array:
    """Of rows sorted by key, the earliest time of each key at its first row; nothing at the others.

    >>> earliest(np.array([0, 0, 1]), np.array([9, 7, 8])).to_pylist()
    [7, None, 8]
    """
    groups = Groups.of(keys)
    found = np.zeros(len(keys), np.int64)
    if groups.count:
        found[groups.starts] = np.minimum.reduceat(wake_us, groups.starts)
    silent = np.ones(len(keys), bool)
    silent[groups.starts] = False
    return pa.array(found, pa.int64(), mask=silent)
