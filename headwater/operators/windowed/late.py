"""Rows that come too late, as they came: without what was added to them on their way."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.agg.computation import ARGUMENT
from headwater.operators.agg.groups import Int64s
from headwater.operators.keyed.engine import KEY, LATE_BY


def put_aside(rows: pa.Table, late: npt.NDArray[np.bool_], late_by_us: Int64s) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The rows that are in time, and the side `late` with the others and how far each was behind."""
    if not late.any():
        return rows, {}
    side = rows.filter(pa.array(late))
    own = [name for name in side.column_names if name == KEY or name.startswith(ARGUMENT)]
    side = side.drop_columns(own).append_column(LATE_BY, pa.array(late_by_us[late], pa.int64()))
    return rows.filter(pa.array(~late)), {"late": side}
