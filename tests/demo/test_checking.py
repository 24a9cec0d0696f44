"""The check says what the outputs should be: it agrees with a plain model, and sees every mistake."""

from __future__ import annotations

import functools
import subprocess
import sys

import pyarrow as pa
import pytest

from headwater.demo.checking import EXPECTED, LATE, Outcome, compare
from tests.demo.made import happened, late_ones, late_tables, placed, tables
from tests.demo.model import modelled


@functools.cache
def made(seed: int = 7) -> tuple[dict[str, pa.Table], dict[str, pa.Table], dict[str, pa.Table]]:
    """Inputs, outputs and the record of late rows, of a minute and a half."""
    rows = placed(happened(90, seed=seed))
    late = late_ones(rows)
    return tables(rows), as_tables(modelled(rows, late)), late_tables(late)


def as_tables(found: dict[str, list[dict[str, object]]]) -> dict[str, pa.Table]:
    return {name: pa.Table.from_pylist(rows) for name, rows in found.items()}


def checked(seed: int = 7, **changed: pa.Table) -> dict[str, Outcome]:
    inputs, outputs, late = made(seed)
    outcomes = compare(inputs, {**outputs, **changed}, late=late)
    return {f"{one.name} {one.kind}": one for one in outcomes}


@pytest.mark.parametrize("seed", [7, 8])
def test_the_check_agrees_with_a_plain_model_of_every_output(seed: int) -> None:
    outcomes = checked(seed)
    assert len(outcomes) == len(EXPECTED) + len(LATE)
    assert [name for name, one in outcomes.items() if not one.holds] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_a_lost_a_doubled_and_a_wrong_row_are_seen(name: str) -> None:
    rows = made()[1][name]
    key = f"{name} {EXPECTED[name].kind}"
    lost = checked(**{name: rows.slice(1)})[key]
    doubled = checked(**{name: pa.concat_tables([rows, rows.slice(0, 1)])})[key]
    wrong = checked(**{name: with_a_wrong_row(rows)})[key]
    assert (lost.lost, lost.doubled, lost.holds) == (1, 0, False)
    assert (doubled.lost, doubled.doubled, doubled.holds) == (0, 1, False)
    assert (wrong.lost, wrong.doubled, wrong.holds) == (1, 1, False)


def with_a_wrong_row(rows: pa.Table) -> pa.Table:
    """The first row with one more in its first number."""
    first, *others = rows.to_pylist()
    column = next(
        name
        for name, value in first.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not name.startswith("_")
    )
    return pa.Table.from_pylist([{**first, column: first[column] + 1}, *others], rows.schema)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_output_without_rows_fails(name: str) -> None:
    outcome = checked(**{name: made()[1][name].slice(0, 0)})[f"{name} {EXPECTED[name].kind}"]
    assert (outcome.got, outcome.holds) == (0, False)


def test_a_late_row_that_nobody_appended_is_seen() -> None:
    inputs, outputs, late = made()
    doubled = {**late, "live_sessions": pa.concat_tables([late["live_sessions"], late["live_sessions"].slice(0, 1)])}
    outcomes = {one.name: one for one in compare(inputs, outputs, late=doubled)}
    assert outcomes["live_sessions.late"].doubled == 1


def test_the_check_imports_neither_operators_nor_spark_nor_the_app() -> None:
    script = "import sys, headwater.demo.checking; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    unwanted = ("pyspark", "headwater.operators", "headwater.runtime", "headwater.demo.company", "headwater.demo.world")
    assert [name for name in loaded if name.startswith(unwanted)] == []
