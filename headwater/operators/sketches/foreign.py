"""Sketches that Apache DataSketches wrote in another of its formats: its own package turns them into those read here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import PackageMissing, SketchInvalid


def package() -> Any:
    """The package `datasketches`. Any: it has no types."""
    try:
        return importlib.import_module("datasketches")
    except ImportError as error:
        raise PackageMissing(package="datasketches", extra="sketches") from error


def hll_in_bytes(sketches: pa.Array, which: npt.NDArray[np.bool_]) -> pa.Array:
    """HLL sketches of four or six bits a register, or with gaps, as those of eight without."""
    known = package()

    def turned(data: bytes) -> bytes:
        sketch = known.hll_sketch.deserialize(data)
        union = known.hll_union(sketch.lg_config_k)
        union.update(sketch)
        return bytes(union.get_result(known.tgt_hll_type.HLL_8).serialize_compact())

    return _replaced(sketches, which, turned, "hll")


def theta_plain(sketches: pa.Array, which: npt.NDArray[np.bool_]) -> pa.Array:
    """Theta sketches that are compressed, or of an old format, as plain ones."""
    known = package()

    def turned(data: bytes) -> bytes:
        return bytes(known.compact_theta_sketch.deserialize(data).serialize())

    return _replaced(sketches, which, turned, "theta")


def _replaced(
    sketches: pa.Array, which: npt.NDArray[np.bool_], turned: Callable[[bytes], bytes], expected: str
) -> pa.Array:
    values = sketches.to_pylist()
    for row in np.flatnonzero(which).tolist():
        try:
            values[row] = turned(values[row])
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise SketchInvalid(expected=expected, why=str(error)) from error
    return pa.array(values, sketches.type)
