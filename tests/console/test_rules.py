"""Rules and stored searches: checked as they are written, tried on past events, and put live with a question before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

import headwater
from headwater.console.ruling import Stored, stored_in, tables_of, write
from headwater.console.trying import Bench, bench_of, tried
from headwater.errors import KeyConflict
from headwater.log import EmbeddedLog
from headwater.server.audit import AUDIT_TOPIC as AUDIT
from headwater.server.tokens import Tokens
from tests.console.bank import CARD, STOLEN, TRIED_OUT, make_bank
from tests.console.conftest import Visit, serving
from tests.console.test_login import log_in

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def bank(log: EmbeddedLog) -> Iterator[tuple[EmbeddedLog, str]]:
    make_bank(log)
    with serving(log.path) as address:
        yield log, address


def stored(log: EmbeddedLog, topic: str = "rules") -> dict[str, Stored]:
    [table] = [one for one in tables_of(log) if one.topic == topic]
    return stored_in(log, table)


def rewrite(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Text of the rule").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_rules_are_listed_with_their_state_version_and_matches(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(bank[1])
    page = visitor.open("/rules")
    row = page.get_by_role("row", name=re.compile("tried-out"))
    expect(row).to_contain_text("on")
    expect(row.locator("td").nth(3)).to_have_text("0")
    expect(row.locator("td").nth(4)).to_have_text("7")
    refused = page.get_by_role("row", name=re.compile("broken"))
    expect(refused).to_contain_text("refused")
    expect(refused).to_contain_text("Did you mean amount?")
    visitor.picture("rules-light")
    page.get_by_role("link", name="searches").click()
    expect(page.get_by_role("row", name=re.compile("weather"))).to_contain_text("storm OR flood*")


def test_a_rule_is_paused_resumed_and_removed_after_a_question(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = bank
    page = visit(address).open("/rules")
    row = page.get_by_role("row", name=re.compile("tried-out"))
    row.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Tab")
    expect(row.get_by_role("button", name="Remove")).to_be_focused()
    expect(row.get_by_role("button", name="Remove")).to_have_css("outline-style", "solid")
    row.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("dialog")).to_contain_text("It has matched 7 times so far.")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    paused = stored(log)["tried-out"]
    assert not paused.enabled
    assert paused.row["owner"] == "fraud desk", "what the page does not show is kept"
    row.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(row.get_by_text("on", exact=True)).to_be_visible()
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert "tried-out" in stored(log)
    row.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    assert "tried-out" not in stored(log)
    noted = [row["action"] for row in log.read(AUDIT).rows()]
    assert [one for one in noted if one.startswith("rule.")] == ["rule.pause", "rule.resume", "rule.remove"]


def test_a_text_is_checked_as_it_is_written(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(bank[1]).open("/rules/rules/edit?id=tried-out")
    live = page.get_by_role("button", name="Put it live")
    expect(page.get_by_text("Understood.")).to_be_visible()
    expect(live).to_be_enabled()
    rewrite(page, TRIED_OUT.replace("amount < 5", "amout < 5"))
    expect(page.get_by_text("Did you mean amount?")).to_be_visible()
    expect(page.locator(".editor .trouble")).to_have_text("amout")
    expect(live).to_be_disabled()
    rewrite(page, "PATTERN (small{2,} big DEFINE small AS amount < 5, big AS amount > 500")
    expect(page.get_by_text("is never closed")).to_be_visible()
    expect(page.locator(".editor .trouble")).to_have_text("(")


def test_a_rule_is_tried_on_past_events_and_then_put_live(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = bank
    visitor = visit(address)
    page = visitor.open("/rules/rules/edit?id=tried-out")
    expect(page.get_by_text("Understood.")).to_be_visible()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("heading", name=f"{STOLEN} matches")).to_be_visible(timeout=60_000)
    row = page.get_by_role("table", name="Matches of the trial").locator("tbody tr").filter(has_text=str(CARD + 4))
    expect(row.locator("svg circle")).to_have_count(4)
    visitor.picture("rule-light")
    rewrite(page, TRIED_OUT.replace("amount > 500", "amount > 1000"))
    expect(page.get_by_text("Understood.")).to_be_visible()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("heading", name="3 matches")).to_be_visible(timeout=60_000)
    page.get_by_role("button", name="Put it live").click()
    expect(page.get_by_role("dialog")).to_contain_text("it found 3 matches")
    expect(page.get_by_role("dialog")).to_contain_text("amount > 500")
    page.get_by_role("dialog").get_by_role("button", name="Put it live").click()
    expect(page.get_by_text("Version 3 of a rule")).to_be_visible()
    now = stored(log)["tried-out"]
    assert (now.version, now.text, now.enabled) == (3, TRIED_OUT.replace("amount > 500", "amount > 1000"), True)
    assert [row["action"] for row in log.read(AUDIT).rows()][-1] == "rule.write"


def test_a_new_stored_search_is_tried_and_written(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = bank
    page = visit(address).open("/rules/searches")
    page.get_by_role("button", name="New stored search").click()
    rewrite(page, "title:rates AND (")
    expect(page.get_by_text("here something is missing")).to_be_visible()
    rewrite(page, "title:flood*")
    expect(page.get_by_text("Understood.")).to_be_visible()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("heading", name="10 matches")).to_be_visible(timeout=60_000)
    row = page.get_by_role("table", name="Matches of the trial").locator("tbody tr").first
    expect(row.locator("mark")).to_have_text("Floods")
    expect(row).to_contain_text("<b>Lyon</b>")
    page.get_by_label("Name of the rule").fill("floods")
    page.get_by_role("button", name="Put it live").click()
    page.get_by_role("dialog").get_by_role("button", name="Put it live").click()
    expect(page.get_by_text("Version 1 of a stored search")).to_be_visible()
    assert stored(log, "searches")["floods"].text == "title:flood*"


def test_somebody_elses_change_is_not_overwritten(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = bank
    page = visit(address).open("/rules/rules/edit?id=large")
    expect(page.get_by_text("Understood.")).to_be_visible()
    log.append("rules", [{"id": "large", "text": "PATTERN (a) DEFINE a AS amount > 1", "enabled": True}])
    page.get_by_role("button", name="Put it live").click()
    page.get_by_role("dialog").get_by_role("button", name="Put it live").click()
    expect(page.get_by_text("was last written at offset 3")).to_be_visible()
    assert stored(log)["large"].text == "PATTERN (a) DEFINE a AS amount > 1"


def test_whoever_may_only_read_changes_nothing(log: EmbeddedLog, visit: Visit) -> None:
    make_bank(log)
    token = Tokens(log.path).create("guest", ["read:*"])
    with serving(log.path) as address:
        page = visit(address).page
        log_in(page, address, token, to="/rules")
        expect(page.get_by_role("row", name=re.compile("tried-out"))).to_be_visible()
        expect(page.get_by_role("button", name="Pause")).to_have_count(0)
        expect(page.get_by_role("button", name="New rule")).to_have_count(0)
        page.goto(f"{address}/console/rules/rules/edit?id=large")
        expect(page.get_by_text("Understood.")).to_be_visible()
        expect(page.get_by_role("button", name="Put it live")).to_have_count(0)


def test_tables_that_are_not_there_are_told_in_a_sentence(served: str, visit: Visit) -> None:
    visitor = visit(served)
    expect(visitor.open("/rules").get_by_text("No table of rules yet")).to_be_visible()
    expect(visitor.open("/rules/nothing").get_by_role("alert")).to_contain_text("nothing")
    expect(visitor.open("/rules/nothing/edit").get_by_role("alert")).to_contain_text("nothing")


def test_a_rule_in_dark_and_on_a_phone(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(bank[1], dark=True)
    page = visitor.open("/rules/rules/edit?id=tried-out")
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("heading", name=f"{STOLEN} matches")).to_be_visible(timeout=60_000)
    visitor.picture("rule-dark")
    phone = visit(bank[1], phone=True).open("/rules/rules/edit?id=tried-out")
    expect(phone.get_by_text("Understood.")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visitor.open("/rules")
    expect(page.get_by_role("row", name=re.compile("large"))).to_be_visible()
    visitor.picture("rules-dark")


def test_a_rule_is_written_only_over_what_was_known(log: EmbeddedLog) -> None:
    make_bank(log)
    [table] = [one for one in tables_of(log) if one.topic == "rules"]
    known = stored_in(log, table)["large"]
    version = write(log, table, "large", "PATTERN (a) DEFINE a AS amount > 5", enabled=True, known=known)
    assert version == stored_in(log, table)["large"].version
    for stale in (known, None):
        with pytest.raises(KeyConflict):
            write(log, table, "large", "PATTERN (a) DEFINE a AS true", enabled=True, known=stale)


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, datetime]]:
    """The definition of `PATTERN (a b)`: two rows of a key that follow each other, and the next search begins behind them."""
    found = []
    for card in sorted({row["card"] for row in rows}):
        own = sorted((row for row in rows if row["card"] == card), key=lambda row: row["at"])
        at = 0
        while at + 1 < len(own):
            if own[at]["amount"] < 5 and own[at + 1]["amount"] > 500:
                found.append((card, own[at + 1]["at"]))
                at += 2
            else:
                at += 1
    return sorted(found)


@given(
    amounts=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 4.0, 50.0, 501.0, 900.0])), max_size=40),
    last=st.sampled_from([5, 20, 1_000]),
)
def test_a_trial_finds_what_the_definition_says_in_the_newest_rows(
    tmp_path_factory: pytest.TempPathFactory, amounts: list[tuple[int, float]], last: int
) -> None:
    rows = [
        {"card": card, "amount": amount, "at": EPOCH + timedelta(seconds=place)}
        for place, (card, amount) in enumerate(amounts)
    ]
    with headwater.open(tmp_path_factory.mktemp("law") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        log.create("payments", {"card": "int64", "amount": "float64", "at": "timestamp"}, key="card", time="at")
        log.append("payments", rows)
        bench = Bench(kind="rules", topic="payments", schema=log.topic("payments").schema, on="at", by=("card",))
        trial = tried(log, bench, "PATTERN (a b) DEFINE a AS amount < 5, b AS amount > 500", rows=last)
    wanted = pairs(rows[-last:])
    told = sorted(
        (one.key_values[0], EPOCH + timedelta(microseconds=(one.last_us or 0) - round(EPOCH.timestamp() * 1e6)))
        for one in trial.matches
    )
    assert (told, trial.count, trial.rows) == (wanted, len(wanted), min(last, len(rows)))
    assert all(len(trial.events[one.place]) == 2 for one in trial.matches)


def test_a_bench_takes_the_time_and_the_key_of_the_query(log: EmbeddedLog) -> None:
    make_bank(log)
    [table] = [one for one in tables_of(log) if one.topic == "rules"]
    bench = bench_of(log, table, "payments")
    assert (bench.on, bench.by) == ("at", ("card",))
