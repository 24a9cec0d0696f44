"""Queries: the list, and the page of one with its phases, its reasons, its troubles, and what it may be told."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from headwater.log import EmbeddedLog
from headwater.runtime.status import QueryStatus
from headwater.runtime.trouble import Trouble
from headwater.server.tokens import Tokens
from tests.console.conftest import Running, Visit
from tests.console.elsewhere import running_elsewhere
from tests.console.staged import APP, Stage, Theatre, graph_of, opened_theatre, staging

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


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    with opened_theatre(tmp_path_factory.mktemp("queries") / "log") as made:
        for name in ("payments", "spend", "payments.dlq"):
            made.log.create(name, "id long")
        made.log.append("payments.dlq", [{"id": number} for number in range(3)])
        yield made


def staged_on(log: EmbeddedLog) -> Stage:
    made = Stage(log)
    made.graph = graph_of({"spend": (["payments"], ["spend", "spend.late", "sink:lake:spend"])})
    spend = QueryStatus(**{**SPEND.as_dict(), "watermark_us": int((time.time() - 75) * 1e6)})
    made.statuses = [spend, STOLEN]
    made.show()
    return made


@pytest.fixture
def stage(theatre: Theatre) -> Stage:
    return staged_on(theatre.log)


@pytest.fixture
def staged(theatre: Theatre, stage: Stage) -> str:
    assert stage.statuses
    return theatre.address


def test_the_list_tells_how_each_query_does(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/queries")
    row = page.get_by_role("row", name=re.compile("spend"))
    for told in ("running", "317", "1.23 k", "420 ms", "42%", "min", "5.40 k", "2.0 MiB", "17"):
        expect(row).to_contain_text(told)
    expect(page.locator("tr", has_text="<b>stolen</b>")).to_contain_text("waiting")
    page.get_by_role("button", name="rows/s").click()
    expect(page.locator("tbody tr").first).to_contain_text("spend")
    page.get_by_label("Filter queries").fill("stol")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_without_an_app_the_list_says_how_to_run_one(served: str, visit: Visit) -> None:
    page = visit(served).open("/queries")
    expect(page.get_by_text("No app runs on this log")).to_be_visible()


def test_one_query_tells_three_fates_of_rows_and_the_reason_of_its_watermark(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/queries/spend")
    for label, value in (("Late rows", "17"), ("Rejected rows", "5"), ("Dead letters", "3"), ("Lag", "1.23 k")):
        expect(page.get_by_role("group", name=label, exact=True)).to_contain_text(value)
    expect(page.get_by_text("Partition 2 of payments, idle for 40 s, holds the watermark.")).to_be_visible()
    expect(page.get_by_text("73,314,510,714,175,488 since the start")).to_be_visible()
    page.get_by_label("Why: Rejected").click()
    expect(page.get_by_text("The idea")).to_be_visible()


def test_the_steps_of_a_batch_have_plain_words_beside_sparks_names(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/queries/spend")
    row = page.get_by_role("row", name=re.compile("addBatch"))
    expect(row).to_contain_text("Work and write")
    expect(row).to_contain_text("301")
    expect(page.get_by_role("img", name="Time of a batch by its steps")).to_be_visible()


def test_inputs_and_outputs_are_links(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/queries/spend")
    writes = page.get_by_role("region", name="Writes")
    expect(page.get_by_role("region", name="Reads from").get_by_role("link", name="payments")).to_have_attribute(
        "href", "/console/topics/payments"
    )
    expect(writes.get_by_role("link", name="spend", exact=True)).to_have_attribute("href", "/console/views/spend")
    expect(writes.get_by_role("row", name=re.compile("spend.late"))).to_contain_text("put aside")
    expect(writes.get_by_role("row", name=re.compile("lake:spend"))).to_contain_text("sink")


def test_the_last_error_shows_the_users_line_first_and_folds_the_rest(stage: Stage, staged: str, visit: Visit) -> None:
    stage.statuses[0] = QueryStatus(
        **{**stage.statuses[0].as_dict(), "state": "restarting", "error": "ZeroDivisionError: no", "restarts": 2}
    )
    stage.trouble = Trouble(
        line="ZeroDivisionError: no (shop.py:9, in ratio)",
        details=("shop.py:9, in ratio", "    return 1 / 0", "ZeroDivisionError: no"),
        trace="Traceback <script>alert(1)</script>\n\tat org.apache.spark",
    )
    stage.show()
    page = visit(staged).open("/queries/spend")
    alert = page.get_by_role("alert").first
    assert (alert.locator("pre").first.text_content() or "").splitlines()[0] == "shop.py:9, in ratio"
    expect(alert.get_by_text("org.apache.spark")).not_to_be_visible()
    alert.get_by_text("Everything that is known").click()
    expect(alert.get_by_text("org.apache.spark")).to_be_visible()
    stage.statuses[0] = QueryStatus(**{**SPEND.as_dict(), "restarts": 2})
    stage.show()
    expect(page.get_by_text("It has failed, and goes on again.")).to_be_visible()


def test_stop_and_restart_ask_first_and_are_written_down(
    theatre: Theatre, stage: Stage, staged: str, visit: Visit
) -> None:
    page = visit(staged).open("/queries/spend")
    page.get_by_role("button", name="Stop", exact=True).click()
    dialog = page.get_by_role("dialog").filter(has_text="Stop spend?")
    expect(dialog).to_contain_text("nothing is lost")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert stage.asked() == []
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_text("spend is stopped.")).to_be_visible()
    page.get_by_role("button", name="Restart", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Restart", exact=True).click()
    expect(page.get_by_text("spend starts again.")).to_be_visible()
    assert stage.asked() == ["stop spend", "restart spend"]
    noted = [row["action"] for row in theatre.log.read("__audit").rows()]
    assert noted[-2:] == ["query.stop", "query.restart"]


def test_whoever_may_only_read_stops_nothing(log: EmbeddedLog, visit: Visit) -> None:
    stage = staged_on(log)
    secret = Tokens(log.path).create("reader", ["read:*"])
    with staging(log) as address:
        visitor = visit(address)
        visitor.log_in(secret)
        page = visitor.open("/queries/spend")
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("admin:*")).to_be_visible()
        assert stage.asked() == []


def test_whoever_may_read_only_some_inputs_sees_neither_plan_nor_trace_nor_other_queries(
    log: EmbeddedLog, visit: Visit
) -> None:
    stage = staged_on(log)
    failed = {"state": "restarting", "error": "ValueError: card 4000-1234", "restarts": 2}
    stage.statuses = [
        QueryStatus(**{**SPEND.as_dict(), **failed, "inputs": ("payments", "cards")}),
        QueryStatus(name="salaries", kind="view", app=APP, state="running", inputs=("people",)),
    ]
    stage.trouble = Trouble(line="ValueError", details=("card 4000-1234",), trace="card 4000-1234")
    stage.show()
    secret = Tokens(log.path).create("narrow", ["read:payments", "admin:spend"])
    with staging(log) as address:
        visitor = visit(address)
        visitor.log_in(secret)
        page = visitor.open("/queries")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("button", name="Jump to").click()
        page.get_by_label("Jump to").fill("s")
        expect(page.locator(".hw-palette a", has_text="spend")).to_be_visible()
        expect(page.locator(".hw-palette a", has_text="salaries")).to_have_count(0)
        expect(page.get_by_text("4000-1234")).to_have_count(0)
        page = visitor.open("/queries/spend")
        expect(page.get_by_role("alert").first).to_contain_text("Only somebody who may read all of its inputs")
        expect(page.get_by_role("button", name="Show the plan")).to_be_disabled()
        expect(page.get_by_text("4000-1234")).to_have_count(0)
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("admin:*")).to_be_visible()  # as over HTTP
        assert stage.asked() == []


def test_a_query_of_another_app_is_stopped_there(theatre: Theatre, stage: Stage, staged: str, visit: Visit) -> None:
    with running_elsewhere(theatre.log, "b", dataclasses.replace(SPEND, app="b")) as other:
        visitor = visit(staged)
        expect(visitor.open("/queries").get_by_text("view of b")).to_be_visible()
        page = visitor.open("/queries/spend?app=b")
        expect(page.get_by_text("A query of b that")).to_be_visible()
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("spend is stopped.")).to_be_visible()
        assert (stage.asked(), other.asked) == ([], ["POST /queries/spend/stop"])


def test_the_plan_is_shown_on_request_and_escaped(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/queries/spend")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_text("Project of spend <b>")).to_be_visible()


def test_a_version_on_trial_is_compared(stage: Stage, staged: str, visit: Visit) -> None:
    stage.statuses.insert(1, QueryStatus(name="spend", kind="view", app=APP, version=2, state="running", lag_rows=9))
    stage.show()
    visitor = visit(staged)
    page = visitor.open("/queries/spend")
    expect(page.get_by_text("Version 2 is tried beside version 1: running, 9 rows behind.")).to_be_visible()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("40 rows are the same, 2 differ, 1 only in use, 0 only on trial.")).to_be_visible()
    page = visitor.open("/queries")
    expect(page.get_by_text("version 2, on trial")).to_be_visible()


def test_a_query_that_is_not_there_is_told_in_a_sentence(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/queries/nobody")
    expect(page.get_by_role("alert")).to_contain_text("QueryNotFound")
    expect(page.get_by_role("alert")).to_contain_text("nobody")


def test_on_a_phone_nothing_leads_off_the_page(staged: str, visit: Visit) -> None:
    for path in ("/queries", "/queries/spend"):
        page = visit(staged, phone=True).open(path)
        expect(page.get_by_text("spend").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True])
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
