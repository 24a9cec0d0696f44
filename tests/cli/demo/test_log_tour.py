"""The tour of the log counts for real, and fits its screen."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
from rich.console import Console

import headwater
from headwater.cli.demo.log_scene import Member, Scene, draw
from headwater.cli.demo.log_tour import INVOICES, LEDGER, ORDERS, Reckoning, make_topics, reckon
from headwater.cli.terminal.query_table import sparkline
from tests.cli.conftest import execute


@pytest.mark.process
def test_the_demo_loses_and_doubles_nothing_although_a_process_is_killed(tmp_path: Path) -> None:
    done = execute("demo", "log", "--seconds", "5", "--dir", str(tmp_path / "shop"), "--json")
    assert done.code == 0, done.err
    record = done.json
    assert record["appended"] == record["sent"] == record["billed"] == record["audited"] > 0
    assert (record["lost"], record["doubled"], record["holds"]) == (0, 0, True)
    for event in ("SIGKILL", "has taken over", "customers compacted", "the producer has stopped"):
        assert event in done.err
    assert execute("--log", str(tmp_path / "shop"), "log", "verify").code == 0


def test_a_lost_or_doubled_order_would_be_seen(tmp_path: Path) -> None:
    with headwater.open(tmp_path) as log:
        make_topics(log)
        log.append(ORDERS, [{"id": number, "customer": "ada"} for number in range(3)])
        log.append(INVOICES, [{"order": number} for number in (0, 1, 1)])
        log.append(LEDGER, [{"order": number} for number in range(3)])
        result = reckon(log, sent=4, audited={"seen": 3, "doubled": 0})
    assert (result.lost, result.doubled, result.holds) == (2, 1, False)
    assert str(result) == "appended 3  consumed 3  lost 2  doubled 1"


def test_the_last_line_says_it_all() -> None:
    result = Reckoning(sent=9000, appended=9000, billed=9000, audited=9000, lost=0, doubled=0)
    assert str(result) == "appended 9,000  consumed 9,000  lost 0  doubled 0"
    assert result.holds


def scene() -> Scene:
    made = Scene(folder="/tmp/x", seconds=20, elapsed=7.5, appended=12_345, rate=1500, rates=deque([1.0, 2.0]))
    made.groups["billing"].members = [Member(name="a", pid=1, alive=True, partitions=[0, 1, 2, 3])]
    made.groups["billing"].killed = [2]
    made.tail = [{"_partition": 0, "_offset": n, "customer": "ada1", "item": "lamp", "amount": 1.5} for n in range(16)]
    made.happened("something to remember")
    return made


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (140, 45)])
def test_the_screen_shows_every_pane_at_every_size(width: int, height: int) -> None:
    console = Console(width=width, height=height, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(draw(scene(), width=width, height=height))
        text = console.export_text()
    for word in (
        "producer",
        "group billing",
        "killed",
        "group audit",
        "tail orders",
        "customers",
        "transactions",
        "log",
    ):
        assert word in text
    assert "@15" in text
    assert "something to remember" in text
    assert max(map(len, text.splitlines())) <= width


def test_a_sparkline_keeps_its_newest_values() -> None:
    assert sparkline(deque([1.0, 2.0, 4.0]), 2) == "▄█"
    assert sparkline(deque([0.0, 0.0]), 5) == "▁▁"
