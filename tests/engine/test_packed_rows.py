"""Rows that are packed for the partition of their key: hashed as Spark hashes, and all there when they are unpacked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.columns import HASH, SLOT
from headwater.engine.packed_rows import can_hash, hashes_of, packed, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = {
    "tiny": (pa.int8(), [0, 1, -1, 127, -128, None]),
    "small": (pa.int16(), [0, 1, -1, 2**15 - 1, -(2**15), None]),
    "plain": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), None]),
    "wide": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), None]),
    "day": (pa.date32(), [0, 1, -1, 20_000, -20_000, None]),
    "moment": (pa.timestamp("us", "UTC"), [0, 1, -1, 1_700_000_000_000_000, -1, None]),
    "text": (pa.string(), ["", "a", "größer", "x" * 31, "y" * 100, None]),
    "bytes": (pa.binary(), [b"", b"\x00", b"12345678", b"z" * 32, b"z" * 33, None]),
}


@pytest.mark.parametrize("names", [*((name,) for name in KINDS), tuple(KINDS), ("text", "wide"), ("wide", "text")])
def test_keys_are_hashed_as_spark_hashes_them(spark: SparkSession, names: tuple[str, ...]) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    table = pa.table({name: pa.array(KINDS[name][1], KINDS[name][0]) for name in names})
    rows = spark.createDataFrame(table).select(F.xxhash64(*names)).collect()
    assert all(can_hash(table.column(name).type) for name in names)
    assert hashes_of(table.columns).view(np.int64).tolist() == [row[0] for row in rows]


@given(
    keys=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.none(), st.text(max_size=40) | st.none())),
    partitions=st.integers(1, 5),
)
def test_what_is_packed_is_unpacked(keys: list[tuple[int | None, str | None]], partitions: int) -> None:
    numbers, texts = ([one[index] for one in keys] for index in (0, 1))
    table = pa.table({"n": pa.array(numbers, pa.int64()), "t": pa.array(texts), "row": pa.array(range(len(keys)))})
    batches = list(packed(table, ["n", "t"], partitions))
    assert len(batches) <= partitions
    if not batches:
        assert not keys
        return
    found = unpacked(batches)
    assert all(len(set(unpacked([one]).column(SLOT).to_pylist())) == 1 for one in batches)
    assert found.column(SLOT).to_pylist() == [one % partitions for one in found.column(HASH).to_pylist()]
    assert found.sort_by("row").select(table.column_names).to_pylist() == table.to_pylist()


@pytest.mark.parametrize("kind", [pa.float64(), pa.decimal128(10, 2), pa.list_(pa.int64()), pa.timestamp("ns")])
def test_keys_that_spark_hashes_in_its_own_way_are_left_to_it(kind: pa.DataType) -> None:
    assert not can_hash(kind)
