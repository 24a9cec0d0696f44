"""Masks are the same, computed by Arrow in the reader of a topic or by Spark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.operators.match.language import parse
from headwater.operators.match.language.rule import Call, Constant, Expression, Reference
from headwater.operators.match.plan.evaluation import is_plain, over_rows, row_text
from headwater.operators.match.run import columns
from headwater.operators.match.run.columns import masks_over, truth
from tests.laws import costly

MOMENT = pa.timestamp("us", "UTC")
KINDS = {
    "whole": pa.int64(),
    "small": pa.int32(),
    "real": pa.float64(),
    "text": pa.string(),
    "truth": pa.bool_(),
    "day": pa.date32(),
    "at": MOMENT,
}
SCHEMA = pa.schema(list(KINDS.items()))
#: Values at which two systems may well differ.
VALUES: dict[str, list[Any]] = {
    "whole": [None, -(2**63), 2**63 - 1, 2**53, 2**53 + 1, -1, 0, 1],
    "small": [None, -(2**31), 2**31 - 1, -1, 0, 1],
    "real": [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, 1.5, float(2**53), 5e-324, float(2**63)],
    "text": [None, "", "a", "A", "b", "a ", "\u00e4", "\u00df", "\U0001f30a", "\ufffd", "z\n", "'", "\\"],
    "truth": [None, True, False],
    "day": [None, -719_162, -1, 0, 1, 20_000],
    "at": [None, -1, 0, 1, 10**15],
}
LIKE = {"whole": ("whole", "small", "real"), "small": ("whole", "small", "real"), "real": ("whole", "small", "real")}
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


@st.composite
def values(draw: st.DrawFn, name: str) -> Expression:
    """A column, or a constant, that compares with one."""
    other = draw(st.sampled_from(LIKE.get(name, (name,))))
    if draw(st.booleans()):
        return Reference(other, here=True)
    return Constant(draw(st.sampled_from([one for one in VALUES[other] if one is not None])), KINDS[other])


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from(list(KINDS)))
    left = Reference(name, here=True)
    match draw(st.sampled_from(["compare", "compare", "between", "in", "is_null"])):
        case "is_null":
            return Call("is_null", (left,))
        case "between" if name != "truth":
            return Call("between", (left, draw(values(name)), draw(values(name))))
        case "in" if name in ("whole", "text", "at", "day"):
            options = draw(st.lists(st.sampled_from(VALUES[name][1:]), min_size=1, max_size=12))
            return Call("in", (left, *(Constant(one, KINDS[name]) for one in options)))
    wanted = COMPARISONS[:2] if name == "truth" else COMPARISONS
    return Call(draw(st.sampled_from(wanted)), (left, draw(values(name))))


def conditions() -> st.SearchStrategy[Expression]:
    def of(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        joined = st.builds(Call, st.sampled_from(["and", "or"]), several)
        return joined | inner.map(lambda one: Call("not", (one,)))

    return st.recursive(comparisons(), of, max_leaves=5)


def table() -> pa.Table:
    """Rows in which all values meet, column by column, in some way."""
    count = 240
    columns = {name: [held[at * (7 + 2 * number) % len(held)] for at in range(count)]
               for number, (name, held) in enumerate(VALUES.items())}  # fmt: skip
    return pa.table({name: pa.array(held, KINDS[name]) for name, held in columns.items()}, schema=SCHEMA)


@costly(90, phases=[Phase.generate])
@given(trees=st.lists(conditions(), min_size=60, max_size=60))
def test_arrow_and_spark_agree_on_plain_conditions(spark: SparkSession, trees: Sequence[Expression]) -> None:
    rows = table()
    assert all(is_plain(tree, SCHEMA) for tree in trees)
    texts = [F.expr(row_text(tree)).alias(f"c{number}") for number, tree in enumerate(trees)]
    found = spark.createDataFrame(rows).select(*texts).toArrow()
    for number, tree in enumerate(trees):
        ours, theirs = over_rows(tree, rows).to_pylist(), found.column(number).to_pylist()
        assert ours == theirs, row_text(tree)
    masks = masks_over(trees, rows)
    for number, tree in enumerate(trees):
        assert ((masks[0] >> number & 1).astype(bool) == truth(over_rows(tree, rows))).all()


def test_many_conditions_are_computed_by_parts_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.concat_tables([table()] * 11).combine_chunks()
    rule = parse("PATTERN (A B) DEFINE A AS whole > 0 AND text = 'a' OR real < 1.5, B AS text = 'a'")
    trees = [one.tree for one in rule.define.values()]
    whole = masks_over(trees, rows)
    monkeypatch.setattr(columns, "TRUTHS_MAX", 1)
    assert (masks_over(trees, rows) == whole).all()
    assert [int((whole[0] >> bit & 1).sum()) for bit in range(2)] == [
        int(truth(over_rows(tree, rows)).sum()) for tree in trees
    ]


@pytest.mark.parametrize(
    "condition",
    [
        "whole + 1 > 0",
        "text LIKE 'a%'",
        "upper(text) = 'A'",
        "whole = NULL",
        "real IN (0.0, 1.0)",
        "coalesce(whole, 0) = 0",
        "text = whole",
    ],
)
def test_what_may_differ_is_left_to_spark(condition: str) -> None:
    rule = parse(f"PATTERN (A B) DEFINE A AS {condition}")
    assert not is_plain(rule.define["A"].tree, SCHEMA)
