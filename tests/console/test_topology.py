"""The topology: drawn for all apps, lit up query by query, moved by mouse and keys, and no trouble with five hundred nodes."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from headwater.apps.status import Graph, QueryStatus
from headwater.console.topology import page as topology
from headwater.log import Log
from tests.conditions import until
from tests.console import company
from tests.console.conftest import LOOKS, PHONE, Running, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated
from tests.console.stage import APP, Stage, Theatre, graph_of, opened_theatre, runner_of

QUERIES: dict[str, tuple[list[str], list[str]]] = {
    "spend": (["payments", "cards"], ["spend", "spend.late"]),
    "stolen": (["payments"], ["stolen", "sink:webhook:bank"]),
    "per_country": (["spend"], ["per_country"]),
}


def status(name: str, **more: object) -> QueryStatus:
    given = {"state": "running", "batch": 7, "batch_ms": 120.0, "lag_rows": 0, "rows_per_second": 50.0, **more}
    return QueryStatus(name=name, kind="view", app=APP, inputs=tuple(QUERIES.get(name, ([], []))[0]), **given)  # type: ignore[arg-type]  # a test's own


def staged_on(log: Log) -> Stage:
    made = Stage(log)
    made.graph = graph_of(QUERIES)
    made.statuses = [
        status("spend", busy=0.94, state_rows=12_300, late=3, watermark_us=int((time.time() - 20) * 1e6)),
        status("stolen", busy=0.3),
        status("per_country", state="waiting", batch=None, rows_per_second=0.0),
    ]
    made.show()
    return made


TOPICS = ("payments", "cards", "spend", "spend.late", "stolen", "per_country")


@pytest.fixture
def acted(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Stage, SimulatedConsole]]:
    """An app on a stage, and its console, which asks for the shape of the graph each time."""
    monkeypatch.setattr(topology, "GRAPH_SECONDS", 0.0)
    for name in TOPICS:
        log.create(name, "id long")
    stage = staged_on(log)
    with simulated(log, runner_of(log)) as console:
        yield stage, console


def test_topics_stand_left_of_the_queries_that_read_them(acted: tuple[Stage, SimulatedConsole]) -> None:
    nodes, edges = acted[1].open("/topology").graph()
    line = ("topic:payments", "query:shop/spend", "topic:spend", "query:shop/per_country", "topic:per_country")
    places = [nodes[id]["x"] for id in line]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert nodes["topic:spend"]["kind"] == "view"
    assert "sink:shop/stolen → webhook:bank" in nodes
    assert [edge["to"] for edge in edges if edge["aside"]] == ["topic:spend.late"]


def test_a_click_opens_the_panel_with_numbers_and_links(acted: tuple[Stage, SimulatedConsole]) -> None:
    page = acted[1].open("/topology").pick_node("query:shop/spend")
    panel = "The node that was picked"
    page.sees("spend", "Rows a second", within=panel)
    assert "<dt>Busy</dt><dd>94%</dd>" in page.markup()
    assert page.links()["Open the query"] == "/console/queries/spend"
    assert page.links()["payments"] == "/console/topics/payments"
    page.press("Close the panel").sees_not("Rows a second")
    page.pick_node("topic:payments").sees("Columns", within=panel)


def test_a_node_that_is_searched_is_picked(acted: tuple[Stage, SimulatedConsole]) -> None:
    page = acted[1].open("/topology").write("Find a node", "per_c").submit("Find a node")
    page.sees("per_country", within="The node that was picked")


def test_five_hundred_nodes_are_shown_in_parts(acted: tuple[Stage, SimulatedConsole]) -> None:
    stage, console = acted
    chance = random.Random(7)
    queries: dict[str, tuple[list[str], list[str]]] = {}
    for number in range(180):
        reads = [f"t{chance.randrange(120)}"] + ([f"q{chance.randrange(number)}"] if number % 3 == 1 else [])
        queries[f"q{number}"] = (reads, [f"q{number}", *([f"sink:lake:{number}"] if number < 60 else [])])
    stage.graph = graph_of(queries)
    stage.statuses = [status(name) for name in queries]
    stage.show()
    page = console.open("/topology").later()
    page.sees("nodes are more than one can look at")
    assert 0 < len(page.graph()[0]) < 100
    page.write("Find a node", "q77").submit("Find a node")
    until(lambda: "query:shop/q77" in page.graph()[0], "the part around it is drawn")
    page.press(f"All {len(stage.graph.nodes)}")
    until(lambda: len(page.graph()[0]) == len(stage.graph.nodes), "all are drawn")


def test_an_empty_log_says_what_to_do_and_topics_alone_are_drawn(log: Log, console: SimulatedConsole) -> None:
    page = console.open("/topology").sees("Nothing flows yet")
    log.create("orders", "id long")
    log.append("orders", [{"id": 1}])
    log.groups.seek("billing", "orders", {0: 0})
    page.later().sees("No app has run on this log").sees_not("Nothing flows yet")
    assert set(page.graph()[0]) == {"topic:orders", "group:billing"}


def test_what_goes_while_one_looks_is_told_in_a_sentence(acted: tuple[Stage, SimulatedConsole]) -> None:
    stage, console = acted
    page = console.open("/topology").pick_node("query:shop/per_country").sees("waiting")
    stage.graph = Graph(
        app=APP,
        nodes=tuple(node for node in stage.graph.nodes if "per_country" not in node.name),
        edges=tuple(edge for edge in stage.graph.edges if "per_country" not in "".join(edge)),
    )
    stage.show()
    page.later().sees("It is not there any more.")
    assert "query:shop/per_country" not in page.graph()[0]


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    with opened_theatre(tmp_path_factory.mktemp("topology") / "log") as made:
        for name in TOPICS:
            made.log.create(name, "id long")
        yield made


@pytest.fixture
def stage(theatre: Theatre) -> Stage:
    return staged_on(theatre.log)


@pytest.fixture
def staged(theatre: Theatre, stage: Stage) -> str:
    assert stage.graph.nodes
    return theatre.address


def node(page: Page, id: str) -> Locator:
    return page.locator(f'.node[data-id="{id}"]')


def test_nodes_tell_their_numbers_and_rows_are_seen_to_flow(theatre: Theatre, staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    spend = node(page, "query:shop/spend")
    for told in ("50 in", "busy 94%", "state 12.3 k", "watermark -", "late 3", "busiest"):
        expect(spend).to_contain_text(told)
    expect(page.locator(".node.busiest")).to_have_count(1)
    expect(page.get_by_role("button", name=re.compile("^spend, query of shop, 50 in"))).to_be_visible()
    expect(node(page, "topic:payments")).to_contain_text("0 rows/s")
    theatre.log.append("payments", [{"id": number} for number in range(400)])
    expect(node(page, "topic:payments")).to_contain_text("400 rows")
    expect(page.locator(".line .rows").first).to_be_attached()
    expect(page.locator(".line.aside")).to_have_count(1)  # spend → spend.late


def test_a_query_that_waits_is_dashed_and_lights_up_when_it_runs(stage: Stage, staged: str, visit: Visit) -> None:
    stage.spark = False
    stage.show()
    page = visit(staged).open("/topology")
    expect(page.get_by_text("Spark is starting")).to_be_visible()
    waiting = node(page, "query:shop/per_country")
    expect(waiting).to_have_class(re.compile(r"\boff\b"))
    assert waiting.evaluate("element => getComputedStyle(element).borderStyle") == "dashed"
    place = waiting.bounding_box()
    stage.spark = True
    stage.statuses[2] = status("per_country", state="starting", batch=None)
    stage.show()
    expect(waiting).to_have_class(re.compile(r"\bstarting\b"))
    stage.statuses[2] = status("per_country")
    stage.show()
    expect(waiting).to_have_class(re.compile(r"\bon\b"))
    expect(page.get_by_text("Spark is starting")).to_have_count(0)
    stage.statuses[2] = status("per_country", state="failed", error="ValueError: no")
    stage.show()
    expect(waiting).to_have_class(re.compile(r"\bbad\b"))
    after = waiting.bounding_box()
    assert place is not None
    assert after is not None
    assert abs(place["x"] - after["x"]) < 1  # it keeps its place


def test_keys_walk_along_the_rows_and_move_the_drawing(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    node(page, "topic:cards").focus()
    page.keyboard.press("ArrowRight")
    expect(node(page, "query:shop/spend")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_label("The node that was picked")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_label("The node that was picked")).not_to_be_visible()
    expect(page.locator(".flow-split")).not_to_have_class(re.compile("open"))
    plane = page.locator(".flow-plane")
    page.locator(".flow").focus()
    page.keyboard.press("0")
    before = plane.get_attribute("style")
    page.keyboard.press("+")
    page.keyboard.press("ArrowDown")
    assert plane.get_attribute("style") != before
    page.keyboard.press("0")
    expect(plane).to_have_attribute("style", str(before))


def test_the_mouse_moves_and_zooms_and_a_drag_picks_nothing(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    box = node(page, "topic:cards").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 70, steps=4)
    page.mouse.up()
    moved = node(page, "topic:cards").bounding_box()
    assert moved is not None
    assert (round(moved["x"] - box["x"]), round(moved["y"] - box["y"])) == (100, 50)
    expect(page.get_by_label("The node that was picked")).not_to_be_visible()
    page.mouse.wheel(0, -400)
    page.wait_for_function(
        f"document.querySelector('[data-id=\"topic:cards\"]')?.getBoundingClientRect().width > {moved['width'] + 10}"
    )


def test_searching_and_hovering_let_others_step_back_on_a_phone_too(staged: str, visit: Visit) -> None:
    visitor = visit(staged)
    visitor.page.emulate_media(reduced_motion="reduce")
    page = visitor.open("/topology")
    expect(page.locator(".line .rows").first).to_be_attached()
    assert page.locator(".line .rows").first.evaluate("element => getComputedStyle(element).animationName") == "none"
    node(page, "query:shop/spend").hover()
    expect(node(page, "topic:cards")).to_have_class(re.compile(r"\bnear\b"))
    expect(node(page, "topic:stolen")).to_have_class(re.compile(r"\bdim\b"))
    page.mouse.move(0, 0)
    page.keyboard.press("/")
    page.keyboard.type("per_c")
    expect(page.locator(".node.found")).to_have_count(2)
    expect(node(page, "topic:cards")).to_have_class(re.compile(r"\bdim\b"))
    page.keyboard.press("Enter")
    expect(page.get_by_label("The node that was picked")).to_be_visible()
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    expect_to_fit(page)


@pytest.mark.parametrize("dark", LOOKS)
def test_the_real_company_is_drawn_with_late_rows_and_dead_letters(running: Running, visit: Visit, dark: bool) -> None:
    visitor = visit(running.address, dark=dark)
    page = visitor.open("/topology")
    running.feed.some()
    for name in company.QUERIES:
        expect(node(page, f"query:company/{name}")).to_have_class(re.compile(r"\bon\b"))
    expect(node(page, "topic:orders.late")).to_be_visible()
    expect(node(page, "topic:orders.dlq")).to_be_visible()
    expect(node(page, "query:company/orders_per_minute")).to_contain_text("late")
    expect(page.locator(".line .rows").first).to_be_attached()
    page.wait_for_function("document.getAnimations().every((one) => one.animationName !== 'lit')")
    visitor.picture(f"topology-{'dark' if dark else 'light'}")
