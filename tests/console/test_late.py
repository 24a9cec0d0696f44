"""Late rows: counted by query, with how late they were, where they went and a few of them; and kept apart from state that was let go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

import headwater
from headwater.apps.status import QueryStatus
from headwater.console.queries.late_rows import CLASSES, SHOWN_MAX, histogram, samples_of
from headwater.log import Log
from tests.console.conftest import Running, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import simulated
from tests.console.stage import APP, Stage, runner_of

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("late") / "log") as opened:
        assert isinstance(opened, Log)
        yield opened


def test_without_an_app_the_page_says_what_to_do(log: Log) -> None:
    with simulated(log) as console:
        console.open("/late").sees("No app has run on this log").sees("0rows", within="Behind the watermark")


def test_late_rows_are_counted_and_shown_with_where_they_went(log: Log) -> None:
    log.create("totals.late", "id int64, at timestamp, late_by_us int64")
    for number in range(3):
        log.append("totals.late", [{"id": number, "at": START, "late_by_us": 90_000_000}])
    given = {"kind": "view", "app": APP, "state": "running"}
    stage = Stage(log)
    stage.statuses = [
        QueryStatus(name="totals", late=3, side_outputs={"late": "totals.late"}, watermark_us=1, **given),  # type: ignore[arg-type]
        QueryStatus(name="prompt", watermark_us=1, **given),  # type: ignore[arg-type]
        QueryStatus(name="spent", late=4, watermark_us=1, evicted=7, **given),  # type: ignore[arg-type]
    ]
    stage.show()
    with simulated(log, runner_of(log)) as console:
        page = console.open("/late?query=totals")
        assert [row.split()[0] for row in page.rows("Queries")] == ["spent", "totals", "prompt"]  # the worst first
        assert page.links("Queries")["kept in totals.late"] == "/console/topics/totals.late"
        assert [row.split()[:5] for row in page.rows("Late rows")] == [
            ["1", "min", "30", "s", str(n)] for n in (2, 1, 0)
        ]
        page.sees("7rows", within="State let go")
        page.trigger("Queries", "row", "prompt").sees("Nothing was late")
        page.trigger("Queries", "row", "spent").sees("Counted, not kept")


def test_late_rows_of_a_real_query_are_counted_measured_and_shown(running: Running, visit: Visit) -> None:
    running.feed.some(seconds=120)
    running.feed.late(7)
    visitor = visit(running.address)
    page = visitor.open("/late")
    row = page.get_by_role("region", name="Queries", exact=True).get_by_role(
        "row", name=re.compile("orders_per_minute")
    )
    expect(row).to_contain_text("kept in orders.late")
    expect(row).to_have_class(re.compile("picked"))
    samples = page.get_by_role("region", name="Late rows", exact=True)
    expect(samples.get_by_role("row").nth(7)).to_be_visible()
    expect(samples).to_contain_text(" min ")
    expect(page.get_by_role("group", name="State let go")).to_be_visible()
    visitor.picture("late-light")
    dark = visit(running.address, dark=True)
    expect(dark.open("/late").get_by_role("region", name="Late rows", exact=True)).to_be_visible()
    dark.picture("late-dark")
    phone = visit(running.address, phone=True).open("/late")
    expect(phone.get_by_role("region", name="Late rows", exact=True)).to_be_visible()
    expect_to_fit(phone)


# -- what is read, without a browser ----------------------------------------------------------------------------------


@given(late=st.lists(st.integers(0, 10**13)))
def test_every_late_row_is_in_one_class_of_the_histogram(late: list[int]) -> None:
    counts = histogram(late)
    assert sum(counts) == len(late)
    below = 0
    for (bound, _), number in zip(CLASSES, counts, strict=True):
        below += number
        assert below == sum(us <= bound * 1_000_000 for us in late)


def test_samples_come_from_the_topic_that_is_set_aside_the_newest_first(log: Log) -> None:
    log.create("orders.late", "id int64, at timestamp, late_by_us int64", partitions=2)
    for number in range(SHOWN_MAX + 30):
        log.append("orders.late", [{"id": number, "at": START, "late_by_us": (number + 1) * 1_000_000}])
    samples = samples_of(log, QueryStatus(name="totals", kind="view", side_outputs={"late": "orders.late"}))
    assert (samples.source, samples.topic, samples.total) == ("topic", "orders.late", SHOWN_MAX + 30)
    assert samples.rows.column("id").to_pylist() == list(range(SHOWN_MAX + 29, 29, -1))
    assert samples.median_us == (SHOWN_MAX + 31) * 500_000


def test_a_side_that_has_no_topic_yet_is_empty(log: Log) -> None:
    samples = samples_of(log, QueryStatus(name="totals", kind="view", side_outputs={"late": "not.made"}))
    assert (samples.source, samples.total) == ("topic", 0)


def test_samples_that_an_operator_kept_are_found_and_a_broken_file_is_passed_over(log: Log) -> None:
    home = log.home / "apps" / "shop"
    checkpoint = home / "queries" / "totals" / "v1" / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "7f"}')
    side = home / "state" / "7f" / "tumbling" / "sides" / "late"
    side.mkdir(parents=True)
    for batch in range(3):
        table = pa.table({"id": [batch], "_key": [0], "late_by_us": [(batch + 1) * 5_000_000]})
        _write(side / f"{batch:012d}-00000.arrow", table)
    (side / "000000000009-00000.arrow").write_bytes(b"half")
    samples = samples_of(log, QueryStatus(name="totals", kind="view", app="shop", late=3))
    assert samples.source == "kept"
    assert samples.rows.to_pylist() == [{"id": n, "late_by_us": (n + 1) * 5_000_000} for n in (2, 1, 0)]
    assert samples.counts == (0, 2, 1, 0, 0, 0, 0)
    assert samples_of(log, QueryStatus(name="other", kind="view", app="shop")).source == "none"


def _write(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
