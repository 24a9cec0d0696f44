"""Matches: what was found, by which rule, and the events that made it, on a line of time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

import headwater
from headwater.console.matches.model import MatchTopic, events_of, matches_of, sources_of
from headwater.engine.finder import Finder
from headwater.log import Log
from headwater.services.tokens import Tokens
from tests.console.bank import CARD, STOLEN, make_bank, payments_of
from tests.console.conftest import PHONE, Running, Served, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated
from tests.laws import costly

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("bank") / "log") as log:
        assert isinstance(log, Log)
        make_bank(log)
        yield log


def test_matches_come_with_their_rule_key_and_events(bank: Log) -> None:
    with simulated(bank) as console:
        page = console.open("/matches")
        row = f".* alerts {CARD + 3} "
        assert "tries 2" in page.sees_row("Matches", row)
        assert page.row_markup("Matches", row).count("<circle") == len(payments_of(3))
        chart = page.chart("Matches by rule")
        assert all(rule in chart for rule in ("alerts", "tried-out", "large"))
        page.sees(f"{2 * STOLEN} matches of 3 rules")
        page.write("Filter by key or value", str(CARD + 8)).sees("1 to 2 of 2")
        page.write("Filter by key or value", "").write("Rule", "large").sees("1 to 5 of 5")
        assert bank.describe("caught").rows == STOLEN


def test_one_match_shows_its_events_and_leads_to_them(bank: Log) -> None:
    with simulated(bank) as console:
        page, events = console.open("/matches"), payments_of(2)
        page.pick("Matches", f".* alerts {CARD + 2} ").sees(f"{len(events)} events in", "PATTERN (small{2,} big)")
        assert page.markup().count("<circle") == len(events)
        assert "700" in page.markup()
        assert len(page.rows("The events")) == len(events)
        assert not any("Ferry" in row for row in page.rows("The events"))
        assert all(re.match(r"/console/topics/payments/\d/\d+", path) for path in page.links("The events").values())


def test_a_topic_of_unknown_origin_is_known_by_its_columns(log: Log, console: SimulatedConsole) -> None:
    schema = {
        "url": "string",
        "query_id": "string",
        "score": "float64",
        "highlights": "list<struct<field: string, fragment: string>>",
    }
    log.create("mentioned", {**schema, "metadata": "map<string, string>", "queries_version": "int64"})
    fragment = {"field": "title", "fragment": "<em>Storm</em> <script>alert(1)</script>"}
    row = {"url": "https://news.example/1", "query_id": "<i>weather</i>", "score": 1.5, "highlights": [fragment]}
    log.append("mentioned", [{**row, "queries_version": 3}])
    page = console.open("/matches")
    page.sees_row("Matches", ".*<i>weather</i>.*<script>")
    assert "<mark>Storm</mark> &lt;script&gt;" in page.markup()
    page.pick("Matches", ".*<i>weather</i>").sees("https://news.example/1")
    assert "<script>" not in page.markup()
    log.delete("mentioned")
    console.open("/matches/mentioned/0/0").sees("There is no", "mentioned")


def test_an_empty_log_says_what_looks_for_patterns(console: SimulatedConsole) -> None:
    console.open("/matches").sees("Nothing was found yet")


def test_a_token_that_may_not_read_the_events_shows_the_match_alone(log: Log) -> None:
    make_bank(log)
    token = Tokens(log.home).create("guest", ["read:alerts"])
    with simulated(log) as console:
        page = console.open("/matches", token).sees(f"1 to {STOLEN} of {STOLEN}")
        assert "<circle" not in page.markup()


def test_the_page_in_light_dark_and_on_a_phone(shared_bank: Served, visit: Visit) -> None:
    visitor = visit(shared_bank.address)
    page = visitor.open("/matches")
    expect(page.locator("tbody svg circle").first).to_be_visible()
    visitor.picture("matches-light")
    page.locator("tbody tr").filter(has_text=str(CARD + 2)).filter(has_text="alerts").click()
    expect(page.locator("svg.timeline.large").locator("circle")).to_have_count(len(payments_of(2)))
    visitor.picture("match-light")
    page.get_by_role("table", name="The events").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/console/topics/payments/\d/\d+"))
    dark = visit(shared_bank.address, dark=True)
    page = dark.open("/matches")
    expect(page.locator("tbody svg circle").first).to_be_visible()
    dark.picture("matches-dark")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    expect_to_fit(page)


def test_the_matches_of_a_real_app_have_their_events(running: Running, visit: Visit) -> None:
    page = visit(running.address).open("/matches")
    row = page.locator("tbody tr").filter(has_text="alerts").first
    expect(row).to_contain_text("tries 2")
    expect(row.locator("svg circle")).to_have_count(3)


# Any: rows.
@costly(3)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 3)).map(
            lambda one: {"card": one[0], "at": EPOCH + timedelta(seconds=one[1]), "amount": float(one[2])}
        ),
        max_size=30,
    ),
    given_spans=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=5),
)
def test_the_events_of_a_match_are_the_rows_of_its_key_between_its_times(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], given_spans: list[tuple[int, int, int]]
) -> None:
    with headwater.open(tmp_path_factory.mktemp("law") / "log") as log:
        assert isinstance(log, Log)
        log.create(
            "payments", {"card": "int64", "at": "timestamp", "amount": "float64"}, key="card", time="at", partitions=2
        )
        log.create("alerts", {"card": "int64", "first": "timestamp", "last": "timestamp"})
        for row in rows:  # a frame each, so that frames are passed over
            log.append("payments", [row])
        spans = [
            (card, EPOCH + timedelta(seconds=at), EPOCH + timedelta(seconds=at + length))
            for card, at, length in given_spans
        ]
        log.append("alerts", [{"card": card, "first": first, "last": last} for card, first, last in spans])
        finder = Finder(kind="pattern", operator="m", time="at", by=("card",))
        source = MatchTopic(topic="alerts", kind="pattern", query="alerts", reads=("payments",), finder=finder)
        matches = matches_of(log, source, rows=100)
        events = events_of(log, matches)
        for match in matches:
            card, first, last = spans[match.offset]
            wanted = sorted(
                (row["at"], row["amount"]) for row in rows if row["card"] == card and first <= row["at"] <= last
            )
            told = sorted((event.row["at"], event.row["amount"]) for event in events.get(match.place, []))
            assert told == wanted


def test_what_apps_write_down_comes_before_what_columns_say(bank: Log) -> None:
    known = {source.topic: (source.kind, source.query, source.app) for source in sources_of(bank)}
    assert known["alerts"] == ("pattern", "alerts", "bank")
    assert known["caught"] == ("rules", "caught", "bank")
