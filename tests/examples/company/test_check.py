"""The check says what the outputs should be: it agrees with a plain model, and sees every mistake."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from company import check
from company.check import EXPECTED, LATE, Outcome, compare
from company.topics import INPUTS
from company.world import Row

from tests.examples.company.made import START, happened, late_ones, late_tables, placed, tables
from tests.examples.company.model import modelled


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


@functools.cache
def outcomes_with(mistake: str) -> dict[str, Outcome]:
    """The outcomes where each output has one mistake: none is computed from another."""
    change: Callable[[pa.Table], pa.Table] = {
        "lost": lambda rows: rows.slice(1),
        "doubled": lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]),
        "wrong": with_a_wrong_row,
    }[mistake]
    return checked(**{name: change(rows) for name, rows in made()[1].items()})


@pytest.mark.parametrize("name", EXPECTED)
def test_a_lost_a_doubled_and_a_wrong_row_are_seen(name: str) -> None:
    key = f"{name} {EXPECTED[name].kind}"
    lost, doubled, wrong = (outcomes_with(mistake)[key] for mistake in ("lost", "doubled", "wrong"))
    assert (lost.lost, lost.doubled, lost.holds) == (1, 0, False)
    assert (doubled.lost, doubled.doubled, doubled.holds) == (0, 1, False)
    assert (wrong.lost, wrong.doubled, wrong.holds) == (1, 1, False)


def test_a_mistake_in_one_output_is_seen_in_that_one_alone() -> None:
    outcomes = checked(top_pages=made()[1]["top_pages"].slice(1))
    assert [name for name, one in outcomes.items() if not one.holds] == [f"top_pages {EXPECTED['top_pages'].kind}"]


def with_a_wrong_row(rows: pa.Table) -> pa.Table:
    """The first row with one more in its first number."""
    first, *others = rows.to_pylist()
    column = next(
        name
        for name, value in first.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not name.startswith("_")
    )
    return pa.Table.from_pylist([{**first, column: first[column] + 1}, *others], rows.schema)


def test_an_output_without_rows_proves_nothing_and_fails_also_where_none_is_expected() -> None:
    inputs, outputs, late = ({name: table.slice(0, 0) for name, table in some.items()} for some in made())
    outcomes = compare(inputs, outputs, late=late)
    assert len(outcomes) == len(EXPECTED) + len(LATE)
    assert {(one.expected, one.got, one.lost, one.doubled, one.holds) for one in outcomes} == {(0, 0, 0, 0, False)}


@pytest.mark.parametrize("name", LATE)
def test_a_late_row_that_nobody_appended_is_seen(name: str) -> None:
    inputs, outputs, late = made()
    doubled = {**late, name: pa.concat_tables([late[name], late[name].slice(0, 1)])}
    outcome = {one.name: one for one in compare(inputs, outputs, late=doubled)}[f"{name}.late"]
    assert (outcome.lost, outcome.doubled, outcome.holds) == (0, 1, False)


@pytest.mark.parametrize("some", [slice(700, 701), slice(None, None, 2)], ids=["one row", "every second row"])
def test_operators_that_call_rows_late_which_were_in_time_are_seen(some: slice) -> None:
    rows = placed(happened(90))
    late = late_ones(rows)
    in_time, claimed = {}, {}
    for name in LATE:
        places = {row["_offset"] for row in late[name]}
        known = [row for row in rows["page_views"] if row["visitor"] is not None and row["_offset"] not in places]
        in_time[name] = known[some]
        claimed[name] = late[name] + in_time[name]
    outputs = as_tables(modelled(rows, claimed))  # each output is in step with what its operator claims
    outcomes = {one.name: one for one in compare(tables(rows), outputs, late=late_tables(claimed))}
    for name in LATE:
        assert not outcomes[name].holds
        record = outcomes[f"{name}.late"]
        assert (record.doubled, record.holds) == (len(in_time[name]), False)


@pytest.mark.parametrize(("name", "seconds"), [("live_sessions", 20 + 30), ("visitors_per_minute", 60 + 600 + 30)])
def test_a_row_may_be_late_from_the_moment_on_at_which_its_window_is_closed(name: str, seconds: int) -> None:
    assert may_be_late(name, behind=timedelta(seconds=seconds))
    assert not may_be_late(name, behind=timedelta(seconds=seconds) - timedelta(microseconds=1))


def test_what_is_sent_later_makes_no_row_late() -> None:
    assert may_be_late("live_sessions", behind=timedelta(hours=1))
    assert not may_be_late("live_sessions", behind=timedelta(hours=1), first=True)


def may_be_late(name: str, *, behind: timedelta, first: bool = False) -> bool:
    """Whether a row so far behind another one may be called late: one that was sent before it, or else after it."""
    page: Row = {"visitor": "ada1", "city": "Lisbon", "page": "/", "at": START}
    other = {**page, "at": START + behind}
    pages = [page, other] if first else [other, page]
    sent = [{**row, "_sent_at": START + timedelta(seconds=place)} for place, row in enumerate(pages)]
    inputs = tables(placed({topic: sent if topic == "page_views" else [] for topic in INPUTS}))
    outcomes = compare(inputs, {}, late=late_tables({one: [page] for one in LATE}))
    return {one.name: one for one in outcomes}[f"{name}.late"].holds


@pytest.mark.process
def test_the_check_imports_neither_operators_nor_spark_nor_the_app() -> None:
    script = "import sys, company.check; print(*sys.modules)"
    examples = Path(check.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=examples)
    loaded = done.stdout.split()
    unwanted = ("pyspark", "headwater.operators", "headwater.apps", "company.app", "company.world")
    assert [name for name in loaded if name.startswith(unwanted)] == []
