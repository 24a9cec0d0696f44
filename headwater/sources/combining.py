"""What an operator has done to rows before they leave the reader: fewer of them cross into the JVM.

The operator packs it into the option `combine`, as `<name>:<pickled value>`; people have no use for it.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from headwater.sources.options import Options


class Combine(Protocol):
    """Maps the rows of a partition to other rows."""

    @property
    def rows(self) -> pa.Schema:
        """The columns that it needs of the topic."""

    @property
    def output(self) -> pa.Schema:
        """The columns that it makes of them."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The other rows."""


def combine_of(options: Options) -> Combine | None:
    """What the read is to do to its rows."""
    return None if options.combine is None else _unpacked(options.combine.partition(":")[2])


@lru_cache(maxsize=16)
def _unpacked(packed: str) -> Combine:
    # As trusted as the code that runs: it comes from an operator in the same program, and never from a log.
    found: Combine = pickle.loads(base64.b64decode(packed))
    return found
