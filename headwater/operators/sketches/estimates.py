"""An answer that is nearly right says how nearly: an estimate between two bounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]
#: The type of an estimate in results.
ESTIMATE = pa.struct([("estimate", pa.float64()), ("lower", pa.float64()), ("upper", pa.float64())])


class Estimates(NamedTuple):
    """Estimates, each with what the truth is not below and not above, at the confidence that the sketch states."""

    estimate: Floats
    lower: Floats
    upper: Floats

    def column(self) -> pa.Array:
        return pa.StructArray.from_arrays([pa.array(one) for one in self], fields=list(ESTIMATE))
