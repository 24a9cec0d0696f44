"""Queries: the list, and the page of one with its phases, its reasons, its troubles, and what it may be told."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from headwater.apps.failure import Trouble
from headwater.apps.status import QueryStatus
from headwater.log import Log
from headwater.services.tokens import Tokens
from tests.console.conftest import LOOKS, Running, Visit
from tests.console.other_app import running_elsewhere
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated
from tests.console.stage import APP, Stage, graph_of, runner_of

PHASES = {"latestOffset": 12.0, "walCommit": 30.0, "queryPlanning": 60.0, "addBatch": 301.0, "triggerExecution": 420.0}
SPEND = QueryStatus(
    name="spend",
    kind="view",
    app=APP,
    state="running",
    inputs=("payments",),
    outputs=("spend",),
    batch=41,
    batch_ms=420.0,
    phases_ms=PHASES,
    busy=0.42,
    rows_per_second=317.0,
    rows_total=73_314_510_714_175_488,
    lag_rows=1_234,
    watermark_us=0,
    watermark_held_by="partition 2 of payments, idle for 40 s, holds the watermark",
    state_rows=5_400,
    state_bytes=2 * 1024 * 1024,
    late=17,
    rejected=5,
)
STOLEN = QueryStatus(name="<b>stolen</b>", kind="topic", app=APP, state="waiting", inputs=("payments",))


@pytest.fixture
def stage(log: Log) -> Stage:
    for name in ("payments", "spend", "payments.dlq"):
        log.create(name, "id long")
    log.append("payments.dlq", [{"id": number} for number in range(3)])
    made = Stage(log)
    made.graph = graph_of({"spend": (["payments"], ["spend", "spend.late", "sink:lake:spend"])})
    made.statuses = [spend(), STOLEN]
    made.show()
    return made


# Any: fields of a status.
def spend(**more: Any) -> QueryStatus:
    return dataclasses.replace(SPEND, watermark_us=int((time.time() - 75) * 1e6), **more)


@pytest.fixture
def console(log: Log, stage: Stage) -> Iterator[SimulatedConsole]:
    """The console of the app on the stage."""
    assert stage.statuses
    with simulated(log, runner_of(log)) as made:
        yield made


def test_the_list_tells_how_each_query_does(console: SimulatedConsole) -> None:
    page = console.open("/queries")
    row = page.sees_row("Queries", "spend")
    for told in ("running", "317", "1.23 k", "0.420 s", "42%", "min", "5.40 k", "2.0 MiB", "17"):
        assert told in row
    assert "waiting" in page.sees_row("Queries", "<b>stolen</b>")
    page.trigger("Queries", "sort", "rate").sees_first("Queries", "spend")
    page.write("Filter queries", "stol").sees_first("Queries", "<b>stolen</b>")
    assert len(page.rows("Queries")) == 1


def test_without_an_app_the_list_says_how_to_run_one(log: Log) -> None:
    with simulated(log) as console:
        console.open("/queries").sees("No app has run on this log", "headwater run app.py")


def test_one_query_counts_late_rejected_and_dead_rows_and_explains_its_watermark(console: SimulatedConsole) -> None:
    page = console.open("/queries/spend")
    for label, value in (("Late rows", "17"), ("Rejected rows", "5"), ("Dead letters", "3"), ("Lag", "1.23 k")):
        page.sees(value, within=label)
    page.sees("Partition 2 of payments, idle for 40 s, holds the watermark.", "73,314,510,714,175,488 since it began")
    page.press("Why: Rejected").sees("The idea")


def test_the_steps_of_a_batch_have_plain_words_beside_sparks_names(console: SimulatedConsole) -> None:
    page = console.open("/queries/spend")
    assert page.sees_row("Steps of the last batch", "Work and write addBatch") == "Work and write addBatch 0.301 s"
    assert "work and write" in page.chart("Seconds of a batch by its steps").lower()


def test_inputs_and_outputs_are_links(console: SimulatedConsole) -> None:
    page = console.open("/queries/spend")
    assert page.links("Reads from") == {"payments": "/console/topics/payments"}
    assert page.links("Writes")["spend"] == "/console/views/spend"
    assert "side output" in page.sees_row("Writes", "spend.late")
    assert "sink" in page.sees_row("Writes", "lake:spend")


def test_the_last_error_shows_the_users_line_first_and_folds_the_rest(stage: Stage, console: SimulatedConsole) -> None:
    stage.statuses[0] = spend(state="restarting", error="ZeroDivisionError: no", restarts=2)
    stage.trouble = Trouble(
        line="ZeroDivisionError: no (shop.py:9, in ratio)",
        details=("shop.py:9, in ratio", "    return 1 / 0", "ZeroDivisionError: no"),
        trace="Traceback <script>alert(1)</script>\n\tat org.apache.spark",
    )
    stage.show()
    page = console.open("/queries/spend").later()
    page.sees(
        "It fails, and is started again.\nshop.py:9, in ratio", "<script>alert(1)</script>\n\tat org.apache.spark"
    )
    assert "<script>" not in page.markup()
    assert "<details><summary>Everything that is known</summary>" in page.markup()
    stage.statuses[0] = spend(restarts=2)
    stage.show()
    page.later().sees("It has failed, and goes on again.")


def test_stop_and_restart_ask_first_and_are_written_down(log: Log, stage: Stage, console: SimulatedConsole) -> None:
    page = console.open("/queries/spend").press("Stop")
    page.sees("Stop spend?", "nothing is lost")
    page.press("Cancel").sees_not("Stop spend?")
    assert stage.asked() == []
    page.press("Stop").sees("Stop spend?").press("Stop").sees_not("Stop spend?")
    page.hears("spend is stopped.")
    page.press("Restart").sees("Restart spend?").press("Restart")
    page.hears("spend starts again.")
    assert stage.asked() == ["stop spend", "restart spend"]
    assert [row["action"] for row in log.read("__audit").rows()][-2:] == ["queries.stop", "queries.restart"]


def test_a_token_to_read_stops_nothing(log: Log, stage: Stage, console: SimulatedConsole) -> None:
    token = Tokens(log.home).create("reader", ["read:*"])
    page = console.open("/queries/spend", token).press("Stop").sees("Stop spend?").press("Stop")
    page.hears("admin:*")
    assert stage.asked() == []


def test_a_token_for_some_inputs_shows_neither_plan_nor_trace_nor_other_queries(
    log: Log, stage: Stage, console: SimulatedConsole
) -> None:
    stage.statuses = [
        spend(state="restarting", error="ValueError: card 4000-1234", restarts=2, inputs=("payments", "cards")),
        QueryStatus(name="salaries", kind="view", app=APP, state="running", inputs=("people",)),
    ]
    stage.trouble = Trouble(line="ValueError", details=("card 4000-1234",), trace="card 4000-1234")
    stage.show()
    token = Tokens(log.home).create("narrow", ["read:payments", "admin:spend"])
    page = console.open("/queries", token).later()
    assert [row.split()[0] for row in page.rows("Queries")] == ["spend"]
    assert "4000-1234" not in page.markup()
    page.press("Jump to").write("Jump to", "s")
    assert "spend" in page.dialog()
    assert "salaries" not in page.dialog()
    page = console.open("/queries/spend", token)
    page.sees("shown only to users who may read all of its inputs")
    assert not page.is_enabled("Show the plan")
    assert "4000-1234" not in page.markup()
    page.press("Stop").sees("Stop spend?").press("Stop").hears("admin:*")  # as over HTTP
    assert stage.asked() == []


def test_a_query_of_another_app_is_stopped_there(log: Log, stage: Stage, console: SimulatedConsole) -> None:
    with running_elsewhere(log, "b", dataclasses.replace(SPEND, app="b")) as other:
        console.open("/queries").later().sees_row("Queries", "spend view of b")
        page = console.open("/queries/spend?app=b").sees("A query of b that")
        page.press("Stop").sees("Stop spend?").press("Stop").hears("spend is stopped.")
        assert (stage.asked(), other.asked) == ([], ["POST /queries/spend/stop"])


def test_the_plan_is_shown_on_request_and_escaped(console: SimulatedConsole) -> None:
    page = console.open("/queries/spend").press("Show the plan").sees("Project of spend <b>")
    assert "Project of spend &lt;b&gt;" in page.markup()


def test_a_version_on_trial_is_compared(stage: Stage, console: SimulatedConsole) -> None:
    stage.statuses.insert(1, QueryStatus(name="spend", kind="view", app=APP, version=2, state="running", lag_rows=9))
    stage.show()
    page = console.open("/queries/spend").later()
    page.sees("Version 2 is tried beside version 1: running, 9 rows behind.")
    page.press("Compare").sees("40 rows are the same, 2 differ, 1 only in use, 0 only on trial.")
    console.open("/queries").sees("version 2, on trial")


def test_a_query_that_is_not_there_is_told_in_a_sentence(console: SimulatedConsole) -> None:
    console.open("/queries/unknown").sees("There is no query 'unknown'")


@pytest.mark.parametrize("dark", LOOKS)
def test_a_real_query_has_phases_a_plan_and_a_watermark(running: Running, visit: Visit, dark: bool) -> None:
    visitor = visit(running.address, dark=dark)
    look = "dark" if dark else "light"
    running.feed.some()
    page = visitor.open("/queries")
    expect(page.get_by_role("row", name=re.compile("orders_per_minute"))).to_contain_text("caught up")
    visitor.picture(f"queries-{look}")
    page = visitor.open("/queries/orders_per_minute")
    expect(page.get_by_role("row", name=re.compile("addBatch"))).to_be_visible()
    visitor.picture(f"query-{look}", full=True)
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_text("== Physical Plan ==")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    expect_to_fit(page)
