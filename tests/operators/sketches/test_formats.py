"""Bytes: what is made here Apache DataSketches reads, and what it makes is read here."""

from __future__ import annotations

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.operators import agg, sketches
from headwater.operators.errors import SketchInvalid
from headwater.operators.sketches.murmur3 import hashes_of
from tests.operators.sketches.builders import merged, whole

SIZES = (0, 1, 2, 7, 8, 9, 100, 383, 384, 385, 3_000, 20_000)
VALUES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(min_size=1, max_size=70))


def theirs_of_one(value: float | str) -> int:
    sketch = datasketches.update_theta_sketch(12)
    sketch.update(value)
    return int.from_bytes(sketch.compact().serialize()[8:16], "little")


@given(value=VALUES)
def test_a_value_has_the_hash_that_datasketches_gives_it(value: float | str) -> None:
    low, _ = hashes_of(pa.array([value]))
    assert int(low[0]) >> 1 == theirs_of_one(value)


def test_a_slice_of_a_column_has_the_hashes_of_its_own_values() -> None:
    words = pa.array(["", "a", "longer than sixteen bytes", "b", "12345678"])
    whole_low, whole_high = hashes_of(words)
    low, high = hashes_of(words.slice(1, 3))
    assert low.tolist() == whole_low[1:4].tolist()
    assert high.tolist() == whole_high[1:4].tolist()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([7], pa.int8()), pa.array([7], pa.int64())),
        (pa.array([7], pa.int64()), pa.array([7], pa.uint16())),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([1.5], pa.float32()), pa.array([1.5])),
        (pa.array(["x"]), pa.array([b"x"], pa.binary())),
        (pa.array([1_000], pa.timestamp("ms")), pa.array([1_000_000], pa.timestamp("us"))),
    ],
)
def test_equal_values_of_different_types_hash_alike(left: pa.Array, right: pa.Array) -> None:
    assert [one.tolist() for one in hashes_of(left)] == [one.tolist() for one in hashes_of(right)]


def filled(sketch: object, count: int) -> object:
    for value in range(count):
        sketch.update(value)  # type: ignore[attr-defined] # the package has no types
    return sketch


@pytest.mark.parametrize("count", SIZES)
def test_hll_has_the_same_registers(count: int) -> None:
    (ours,) = whole(agg.sketch.hll("v", lg_k=12), pa.array(np.arange(count)), np.zeros(count, np.int64)) or [None]
    theirs = filled(datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8), count).serialize_compact()  # type: ignore[attr-defined]
    if ours is not None:
        read = datasketches.hll_sketch.deserialize(ours)
        assert read.get_estimate() == pytest.approx(sketches.estimate(ours).estimate, rel=0.005)
        assert sketches.estimate(theirs) == sketches.estimate(ours)
        assert ours[40:] == theirs[40:] or len(ours) < 2_000
        assert len(ours) == len(theirs)


@pytest.mark.parametrize("kind", ["HLL_4", "HLL_6", "HLL_8"])
@pytest.mark.parametrize("updatable", [True, False])
@pytest.mark.parametrize("count", [0, 3, 100, 20_000])
def test_every_kind_of_hll_is_read(kind: str, updatable: bool, count: int) -> None:
    sketch = filled(datasketches.hll_sketch(11, getattr(datasketches.tgt_hll_type, kind)), count)
    data = sketch.serialize_updatable() if updatable else sketch.serialize_compact()  # type: ignore[attr-defined]
    found = sketches.estimate(data)
    assert found.lower <= count <= found.upper


@pytest.mark.parametrize("count", SIZES[1:])
def test_theta_means_the_same_there_and_here(count: int) -> None:
    (ours,) = whole(agg.sketch.theta("v", lg_k=10), pa.array(np.arange(count)))
    read = datasketches.compact_theta_sketch.deserialize(ours)
    assert read.get_estimate() == pytest.approx(sketches.estimate(ours).estimate)
    assert read.get_lower_bound(2) == pytest.approx(sketches.estimate(ours).lower, rel=0.01)
    theirs = filled(datasketches.update_theta_sketch(10), count).compact()  # type: ignore[attr-defined]
    assert sketches.estimate(theirs.serialize()).estimate == pytest.approx(theirs.get_estimate())
    assert sketches.estimate(theirs.serialize(compress=True)).estimate == pytest.approx(theirs.get_estimate())
    unordered = filled(datasketches.update_theta_sketch(10), count).compact(False).serialize()  # type: ignore[attr-defined]
    assert sketches.estimate(sketches.union(unordered, unordered)).estimate == pytest.approx(theirs.get_estimate())


def test_set_operations_are_those_of_datasketches() -> None:
    left, right = (
        whole(agg.sketch.theta("v"), pa.array(np.arange(*span)))[0] for span in ((0, 60_000), (40_000, 100_000))
    )
    one, other = (datasketches.compact_theta_sketch.deserialize(data) for data in (left, right))
    union, both = datasketches.theta_union(12), datasketches.theta_intersection()
    for sketch in (one, other):
        union.update(sketch)
        both.update(sketch)
    without = datasketches.theta_a_not_b().compute(one, other)
    assert sketches.estimate(sketches.union(left, right)).estimate == pytest.approx(union.get_result().get_estimate())
    assert sketches.estimate(sketches.intersection(left, right)).estimate == pytest.approx(
        both.get_result().get_estimate()
    )
    assert sketches.estimate(sketches.difference(left, right)).estimate == pytest.approx(without.get_estimate())


@pytest.mark.parametrize("count", SIZES[1:])
@pytest.mark.parametrize(
    ("make", "theirs"), [(agg.sketch.kll, "kll_doubles_sketch"), (agg.sketch.tdigest, "tdigest_double")]
)
def test_quantiles_are_the_same_there_and_here(count: int, make: object, theirs: str) -> None:
    values = np.random.default_rng(count).normal(size=count)
    (ours,) = whole(make("v", k=100), pa.array(values))  # type: ignore[operator]
    known = getattr(datasketches, theirs)
    read = known.deserialize(ours)
    assert (read.n if theirs.startswith("kll") else read.get_total_weight()) == count
    for share in (0.1, 0.5, 0.9):
        found = sketches.quantile(ours, share)
        # Between two neighbours each has its own rule; so the ranks are compared.
        assert read.get_rank(found.estimate) == pytest.approx(share, abs=0.02 + 1 / count)
        assert found.lower <= found.estimate <= found.upper
    made = known(100)
    for value in values.tolist():
        made.update(value)
    for share in (0.0, 0.5, 1.0):
        assert made.get_rank(sketches.quantile(made.serialize(), share).estimate) == pytest.approx(
            share, abs=0.02 + 1 / count
        )


def test_frequent_texts_are_the_same_there_and_here() -> None:
    words = pa.array([f"w{number % 50}" for number in range(2_000)] + ["often"] * 500 + ["", "ünï"])
    (ours,) = whole(agg.sketch.frequent("v", tracked=64), words)
    read = datasketches.frequent_strings_sketch.deserialize(ours)
    assert read.total_weight == len(words)
    assert read.get_estimate("often") == 500
    made = datasketches.frequent_strings_sketch(7)
    for word in words.to_pylist():
        made.update(word)
    assert sketches.top(made.serialize(), 1) == [{"value": "often", "estimate": 500, "lower": 500, "upper": 500}]
    assert sketches.top(ours, 3) == sketches.top(made.serialize(), 3)


@pytest.mark.parametrize("data", [b"", b"short", b"no sketch at all, only text", bytes(40)])
def test_bytes_that_are_no_sketch_are_refused(data: bytes) -> None:
    for ask in (sketches.estimate, sketches.quantile, sketches.top, lambda one: sketches.count_of(one, 1)):
        with pytest.raises(SketchInvalid, match="no"):
            ask(data)
    with pytest.raises(SketchInvalid):
        merged(agg.merge_sketches("v"), [data, data], np.zeros(2, np.int64))


def test_sketches_of_different_kinds_are_not_mixed() -> None:
    values = pa.array(np.arange(10))
    hll, kll = (whole(make("v"), values)[0] for make in (agg.sketch.hll, agg.sketch.kll))
    with pytest.raises(SketchInvalid, match="'hll' and 'kll'"):
        merged(agg.merge_sketches("v"), [hll, kll], np.zeros(2, np.int64))
    with pytest.raises(SketchInvalid, match="they are 'kll'"):
        sketches.estimate(kll)
    with pytest.raises(SketchInvalid, match="they are 'hll'"):
        sketches.quantile(hll, 0.5)
    narrow, wide = (whole(agg.sketch.count_min("v", error=error), values)[0] for error in (0.1, 0.01))
    with pytest.raises(SketchInvalid, match="different sizes"):
        merged(agg.merge_sketches("v"), [narrow, wide], np.zeros(2, np.int64))


def test_hll_sketches_of_different_sizes_fold_to_the_smaller() -> None:
    values = pa.array(np.arange(30_000))
    small, large = (whole(agg.sketch.hll("v", lg_k=lg_k), values)[0] for lg_k in (9, 13))
    assert merged(agg.merge_sketches("v"), [large, small, large], np.zeros(3, np.int64)) == [small]


MADE = {
    "hll": whole(agg.sketch.hll("v", lg_k=5), pa.array(np.arange(200)))[0],
    "hll, a few": whole(agg.sketch.hll("v"), pa.array(np.arange(20)))[0],
    "hll, in four bits": filled(datasketches.hll_sketch(5), 200).serialize_compact(),  # type: ignore[attr-defined]
    "theta": whole(agg.sketch.theta("v", lg_k=4), pa.array(np.arange(100)))[0],
    "theta, compressed": filled(datasketches.update_theta_sketch(5), 100).compact().serialize(compress=True),  # type: ignore[attr-defined]
    "kll": whole(agg.sketch.kll("v", k=8), pa.array(np.arange(100)))[0],
    "tdigest": whole(agg.sketch.tdigest("v", k=10), pa.array(np.arange(100)))[0],
    "frequent": whole(agg.sketch.frequent("v"), pa.array(["a", "bc", "", "bc"]))[0],
    "count_min": whole(agg.sketch.count_min("v", error=0.5), pa.array([1, 2, 2]))[0],
}


def test_a_register_that_no_value_sets_is_refused() -> None:
    changed = bytearray(MADE["hll"])
    changed[40] = 64
    with pytest.raises(SketchInvalid, match="a register of one is above 63"):
        sketches.estimate(bytes(changed))
    with pytest.raises(SketchInvalid, match="a register of one is above 63"):
        merged(agg.merge_sketches("v"), [bytes(changed), MADE["hll"]], np.zeros(2, np.int64))


@given(data=st.data())
@pytest.mark.parametrize("name", MADE)
def test_a_damaged_sketch_is_read_or_refused_and_nothing_else(name: str, data: st.DataObject) -> None:
    sound = MADE[name]
    changed = bytearray(sound[: data.draw(st.integers(0, len(sound)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for ask in (sketches.estimate, sketches.quantile, sketches.top, lambda one: sketches.count_of(one, 1)):
        try:
            ask(bytes(changed))
        except SketchInvalid as error:
            assert str(error)  # noqa: PT017 - whether there is one does not matter
    try:
        merged(agg.merge_sketches("v"), [bytes(changed), bytes(changed)], np.zeros(2, np.int64))
    except SketchInvalid as error:
        assert str(error)  # noqa: PT017
