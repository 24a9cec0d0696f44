"""The topology: drawn for all apps, lit up query by query, moved by mouse and keys, and no trouble with five hundred nodes."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from headwater.log import EmbeddedLog
from headwater.runtime.status import Graph, QueryStatus
from tests.console import company
from tests.console.conftest import Running, Visit
from tests.console.staged import APP, Stage, Theatre, graph_of, opened_theatre

QUERIES: dict[str, tuple[list[str], list[str]]] = {
    "spend": (["payments", "cards"], ["spend", "spend.late"]),
    "stolen": (["payments"], ["stolen", "sink:webhook:bank"]),
    "per_country": (["spend"], ["per_country"]),
}


def status(name: str, **more: object) -> QueryStatus:
    given = {"state": "running", "batch": 7, "batch_ms": 120.0, "lag_rows": 0, "rows_per_second": 50.0, **more}
    return QueryStatus(name=name, kind="view", app=APP, inputs=tuple(QUERIES.get(name, ([], []))[0]), **given)  # type: ignore[arg-type]  # a test's own


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    with opened_theatre(tmp_path_factory.mktemp("topology") / "log") as made:
        for name in ("payments", "cards", "spend", "spend.late", "stolen", "per_country"):
            made.log.create(name, "id long")
        yield made


@pytest.fixture
def stage(theatre: Theatre) -> Stage:
    made = Stage(theatre.log)
    made.graph = graph_of(QUERIES)
    made.statuses = [
        status("spend", busy=0.94, state_rows=12_300, late=3, watermark_us=int((time.time() - 20) * 1e6)),
        status("stolen", busy=0.3),
        status("per_country", state="waiting", batch=None, rows_per_second=0.0),
    ]
    made.show()
    return made


@pytest.fixture
def staged(theatre: Theatre, stage: Stage) -> str:
    assert stage.graph.nodes
    return theatre.address


def node(page: Page, id: str) -> Locator:
    return page.locator(f'.node[data-id="{id}"]')


def test_topics_stand_left_of_the_queries_that_read_them(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    places = {}
    for id in ("topic:payments", "query:shop/spend", "topic:spend", "query:shop/per_country", "topic:per_country"):
        expect(node(page, id)).to_be_visible()
        box = node(page, id).bounding_box()
        assert box is not None
        places[id] = box["x"]
    assert list(places.values()) == sorted(places.values())
    expect(node(page, "topic:spend")).to_have_class(re.compile("view"))
    expect(node(page, "sink:shop/stolen → webhook:bank")).to_contain_text("exactly once")
    expect(page.locator(".line.aside")).to_have_count(1)  # spend → spend.late


def test_a_node_tells_its_numbers_and_the_busiest_stands_out(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    spend = node(page, "query:shop/spend")
    expect(spend).to_contain_text("50 in")
    expect(spend).to_contain_text("94% busy")
    for told in ("state 12.3 k", "watermark -", "late 3", "busiest"):
        expect(spend).to_contain_text(told)
    expect(page.locator(".node.busiest")).to_have_count(1)
    expect(page.get_by_role("button", name=re.compile("^spend, query of shop, 50 in"))).to_be_visible()


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


def test_rows_are_seen_to_flow(theatre: Theatre, staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    expect(node(page, "topic:payments")).to_contain_text("0 rows/s")
    theatre.log.append("payments", [{"id": number} for number in range(400)])
    expect(node(page, "topic:payments")).to_contain_text("400 rows")
    expect(page.locator(".line .rows").first).to_be_attached()


def test_hovering_shows_the_neighbours_and_a_click_opens_the_panel(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    node(page, "query:shop/spend").hover()
    expect(node(page, "topic:cards")).to_have_class(re.compile(r"\bnear\b"))
    expect(node(page, "topic:stolen")).to_have_class(re.compile(r"\bdim\b"))
    node(page, "query:shop/spend").click()
    panel = page.get_by_label("The node that was picked")
    expect(panel.get_by_role("heading", name="spend")).to_be_visible()
    expect(panel.get_by_role("img", name="Rows a second")).to_be_visible()
    expect(panel.get_by_role("link", name="Open the query")).to_have_attribute("href", "/console/queries/spend")
    expect(panel.get_by_role("link", name="payments")).to_have_attribute("href", "/console/topics/payments")
    panel.get_by_label("Close the panel").click()
    expect(panel).not_to_be_visible()
    node(page, "topic:payments").click()
    expect(panel.get_by_text("Columns")).to_be_visible()


def test_searching_finds_and_goes_there(staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    expect(node(page, "topic:cards")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("per_c")
    expect(page.locator(".node.found")).to_have_count(2)
    expect(node(page, "topic:cards")).to_have_class(re.compile(r"\bdim\b"))
    page.keyboard.press("Enter")
    expect(page.get_by_label("The node that was picked")).to_be_visible()


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
        f"document.querySelector('[data-id=\"topic:cards\"]').getBoundingClientRect().width > {moved['width'] + 10}"
    )


def test_who_asks_for_less_motion_gets_none(staged: str, visit: Visit) -> None:
    visitor = visit(staged)
    visitor.page.emulate_media(reduced_motion="reduce")
    page = visitor.open("/topology")
    expect(page.locator(".line .rows").first).to_be_attached()
    assert page.locator(".line .rows").first.evaluate("element => getComputedStyle(element).animationName") == "none"


def test_five_hundred_nodes_are_shown_in_parts(stage: Stage, staged: str, visit: Visit) -> None:
    chance = random.Random(7)
    queries: dict[str, tuple[list[str], list[str]]] = {}
    for number in range(180):
        reads = [f"t{chance.randrange(120)}"] + ([f"q{chance.randrange(number)}"] if number % 3 == 1 else [])
        queries[f"q{number}"] = (reads, [f"q{number}", *([f"sink:lake:{number}"] if number < 60 else [])])
    stage.graph = graph_of(queries)
    stage.statuses = [status(name) for name in queries]
    stage.show()
    page = visit(staged).open("/topology")
    expect(page.get_by_text(re.compile(r"5\d\d nodes are more than one can look at"))).to_be_visible()
    expect(page.locator(".node").first).to_be_visible()
    assert page.locator(".node").count() < 100
    page.get_by_label("Find a node").fill("q77")
    page.get_by_label("Find a node").press("Enter")
    expect(node(page, "query:shop/q77")).to_be_visible()
    page.get_by_role("button", name=re.compile("All 5")).click()
    expect(page.locator(".node")).to_have_count(len(stage.graph.nodes))


def test_an_empty_log_says_what_to_do_and_topics_alone_are_drawn(log: EmbeddedLog, served: str, visit: Visit) -> None:
    page = visit(served).open("/topology")
    expect(page.get_by_text("Nothing flows yet")).to_be_visible()
    log.create("orders", "id long")
    log.append("orders", [{"id": 1}])
    log.groups.seek("billing", "orders", {0: 0})
    expect(node(page, "group:billing")).to_contain_text("1 behind")
    expect(page.get_by_text("No app runs on this log")).to_be_visible()
    expect(page.get_by_text("Nothing flows yet")).to_have_count(0)


def test_what_goes_while_one_looks_is_told_in_a_sentence(stage: Stage, staged: str, visit: Visit) -> None:
    page = visit(staged).open("/topology")
    node(page, "query:shop/per_country").click()
    expect(page.get_by_label("The node that was picked")).to_be_visible()
    stage.graph = Graph(
        app=APP,
        nodes=tuple(one for one in stage.graph.nodes if "per_country" not in one.name),
        edges=tuple(edge for edge in stage.graph.edges if "per_country" not in "".join(edge)),
    )
    stage.show()
    # The shape of the graph is asked for every few seconds only.
    expect(page.get_by_text("It is not there any more.")).to_be_visible(timeout=20_000)
    expect(node(page, "query:shop/per_country")).to_have_count(0)


def test_on_a_phone_nothing_leads_off_the_page(staged: str, visit: Visit) -> None:
    page = visit(staged, phone=True).open("/topology")
    node(page, "topic:payments").click()
    expect(page.get_by_label("The node that was picked")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True])
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
