"""What holds for every screen: it opens, sends no request to another host, fits a phone, has names for its controls, and can be read."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

import headwater
from headwater.alerts import Rule, Watcher
from headwater.capture import CaptureConfig, CaptureStore
from headwater.capture.runner import CaptureRunner
from headwater.console.kit.values import coloured
from headwater.console.pages import screens
from headwater.gateways import GatewayRunner, StatsD
from headwater.log import Log
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from headwater.queues import Outgoing
from headwater.services import Settings, local
from headwater.services.host import Host
from headwater.sync import SyncConfig, SyncStore
from headwater.sync.runner import SyncRunner
from tests.console.accessibility import TROUBLES
from tests.console.conftest import PHONE, Visit, serving
from tests.console.page_state import expect_shown, expect_theme, expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated
from tests.sourcing.account import DECIDER, Open

CSS = Path(__file__).parents[2] / "headwater" / "console" / "static" / "console.css"
LISTED = [screen.path for screen in screens() if screen.title]
#: Pages of things that the log of these tests has.
FOUND = [
    "/topics/orders",
    "/topics/orders/browse",
    "/topics/orders/search",
    "/topics/orders/tail",
    "/topics/orders/produce",
    "/topics/orders/0/0",
    "/groups/billing",
    "/schemas/orders",
    "/alerts/slow",
    "/dead-letters/orders",
    "/captures/shop",
    "/syncs/copy",
    "/gateways/statsd-metrics",
    "/queues/jobs",
    "/entities/account",
    "/entities/account/entity?id=acc-1",
]
SINGLE = [screen.path for screen in screens() if not screen.title]
#: A name that no browser takes for markup, and that no path is broken by.
HOSTILE = "<img src=x onerror=alert(1)> & \"'"


def fill(log: Log) -> None:
    """A little of everything that needs no app."""
    log.create("orders", "customer string, amount long", partitions=2)
    rows = [{"customer": HOSTILE if not number % 50 else "ada", "amount": 2**62 + number} for number in range(500)]
    log.append("orders", rows)
    log.groups.seek("billing", "orders", {0: 0, 1: 0})
    Watcher(log).put(Rule(name="slow", kind="lag", group="billing", threshold=100, note=HOSTILE))
    letter = DeadLetter(topic="orders", partition=0, offset=1, error="Bad", message=HOSTILE, row="{}", at_us=1)
    append_dead_letters(log, "orders", [letter])
    capture_a_shop(log)
    runner = GatewayRunner(log, StatsD(port=0))
    runner.start()
    runner.stop()
    fill_a_queue(log)
    with headwater.Entities(log, "account", DECIDER) as accounts:
        accounts.send("acc-1", Open(HOSTILE), by=HOSTILE, why=HOSTILE, causation=HOSTILE)
        accounts.send(HOSTILE, Open(HOSTILE))


def fill_a_queue(log: Log) -> None:
    """A queue of two groups, with messages that wait, that a worker holds, and that it has given up."""
    log.queue("jobs", group="search").close()
    with log.queue("jobs") as queue:
        log.exchange("events").bind("jobs", pattern="orders.#")
        queue.put_many([Outgoing(body={"text": HOSTILE}, key=HOSTILE, delay=60 * (n % 5 == 4)) for n in range(20)])
        queue.take(consumer="elsewhere")
        queue.take(consumer="elsewhere")[0].reject(reason=HOSTILE)


def capture_a_shop(log: Log) -> None:
    """A capture of two tables, of which one has a row that does not fit."""
    path = Path(log.address).with_name("shop.db")
    shop = sqlite3.connect(path, isolation_level=None)
    shop.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
    shop.execute("CREATE TABLE prices (item TEXT PRIMARY KEY, price REAL)")
    shop.execute("INSERT INTO customers VALUES (1, ?)", (HOSTILE,))
    CaptureStore(log).create(CaptureConfig(name="shop", url=f"sqlite:///{path}"))
    CaptureRunner(log, "shop").catch_up()
    shop.execute("INSERT INTO prices VALUES (?, 'much')", (HOSTILE,))
    shop.close()
    keep_in_sync(log)


def keep_in_sync(log: Log) -> None:
    """A copy of the shop, in which another program has changed a row."""
    path = Path(log.address).with_name("copy.db")
    SyncStore(log).create(SyncConfig(name="copy", url=f"sqlite:///{path}", topics=("shop.*",)))
    SyncRunner(log, "copy").catch_up()
    with contextlib.closing(sqlite3.connect(path)) as copy, copy:
        copy.execute("UPDATE customers SET name = 'another'")
    local(Host(log=log, settings=Settings())).syncs.compare("copy")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedConsole]:
    with headwater.open(tmp_path_factory.mktemp("every") / "log") as log:
        assert isinstance(log, Log)
        fill(log)
        with headwater.Entities(log, "account", DECIDER) as accounts, simulated(log, entities=[accounts]) as made:
            yield made


@pytest.mark.parametrize("path", LISTED + FOUND)
def test_each_screen_opens_and_has_its_heading(path: str, filled: SimulatedConsole) -> None:
    page = filled.open(path)
    assert page.markup().count("<h1>") == 1
    assert "<img" not in page.markup(), "a text became markup"
    page.later()  # and what it reads again and again can be read again


@pytest.mark.parametrize("path", SINGLE)
def test_a_thing_that_is_not_there_is_told_in_words(path: str, filled: SimulatedConsole) -> None:
    missing = re.sub(r"\{[^}]*int\}", "0", path)
    missing = re.sub(r"\{[^}]*\}", quote(HOSTILE, safe=""), missing)
    answer = filled.ask("GET", missing)
    assert answer.status_code < 500
    assert "Traceback" not in answer.text
    if answer.status_code == 200:
        page = filled.open(missing)
        assert "<img" not in page.markup()
        assert page.text("page")


def test_no_two_screens_share_a_key() -> None:
    keys = [screen.key for screen in screens() if screen.key]
    assert sorted(keys) == sorted(set(keys))


def test_an_address_that_no_screen_has_is_a_page_that_says_so(filled: SimulatedConsole) -> None:
    answer = filled.ask("GET", "/console/nowhere/at/all")
    assert answer.status_code == 404
    for text in ("There is no such page", "/console/nowhere/at/all", "/console/topics", "hw-nav"):
        assert text in answer.text


def test_parts_of_json_have_classes_that_no_list_of_rows_hides() -> None:
    css = CSS.read_text(encoding="utf-8")
    classes = set(re.findall(r'class="([\w-]+)"', coloured('{"a": [1, "b", true]}')))
    assert classes == {"json-key", "json-number", "json-text", "json-literal"}
    assert all(f".{name} {{ color:" in css for name in classes)
    assert not re.search(r"\.json-[^}]*display: none", css)


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A log of its own: every screen shows all that there is, and other tests leave much."""
    path = tmp_path_factory.mktemp("every") / "log"
    with headwater.open(path) as log:
        assert isinstance(log, Log)
        fill(log)
    with serving(path) as address:
        yield address


@pytest.mark.parametrize("path", LISTED + FOUND)
def test_each_screen_can_be_used_without_eyes_or_mouse_and_fits_a_phone(path: str, address: str, visit: Visit) -> None:
    page = visit(address, dark=True).open(path)
    expect_shown(page)
    assert page.evaluate(TROUBLES) == []
    expect_theme(page, "dark")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the page"
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    expect_to_fit(page)
    # No table scrolls sideways.
    page.wait_for_function(
        "[...document.querySelectorAll('.hw-table')].every((one) => one.scrollWidth <= one.clientWidth)"
    )


def test_the_keys_go_to_the_screens(served: str, visit: Visit) -> None:
    visitor = visit(served)
    # Two keys belong together for about a second; on a slow machine more may pass between them.
    visitor.page.clock.set_fixed_time(datetime(2026, 1, 1, tzinfo=UTC))
    page = visitor.open("/")
    expect_shown(page)
    for screen in screens():
        if screen.key and screen.title:
            page.keyboard.press("g")
            page.keyboard.press(screen.key)
            expect(page).to_have_url(f"{served}/console{screen.path}")
            page.wait_for_selector("main.hw-page")
            expect(page.locator(".hw-nav a[data-key]").first).to_be_attached()
            expect_shown(page)
            visitor.look(screen.path)
    expect_theme(page, "light")


def test_the_first_visit_of_a_dark_browser_has_dark_charts(address: str, visit: Visit) -> None:
    visitor = visit(address)
    visitor.page.emulate_media(color_scheme="dark")
    page = visitor.open("/topics/orders")
    expect_theme(page, "dark")
    page.wait_for_selector("main svg text[fill='#8ea19f']")  # the labels of an axis, as the server drew them


def test_the_jump_box_goes_where_it_says(address: str, visit: Visit) -> None:
    page = visit(address).open("/")
    expect_shown(page)
    page.keyboard.press("Control+k")
    page.get_by_label("Jump to").last.fill("orders")
    expect(page.locator(".hw-palette a").first).to_contain_text("orders")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{address}/console/topics/orders")


# -- colours ----------------------------------------------------------------------------------------------------------


def _palette(theme: str) -> dict[str, str]:
    css = CSS.read_text(encoding="utf-8")
    start = css.index(":root {") if theme == "light" else css.index('html[data-theme="dark"] {')
    body = css[start : css.index("}", start)]
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", body))


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


PAIRS = [
    *[(text, ground) for text in ("text", "text-2", "text-3") for ground in ("bg", "surface", "raised", "sunken")],
    *[("accent", ground) for ground in ("bg", "surface", "raised")],
    *[(tone, ground) for tone in ("good", "warn", "bad", "info") for ground in ("surface", "raised", f"{tone}-soft")],
    ("accent-2", "accent-soft"),
    ("on-accent", "accent"),
    *[(text, "accent-soft") for text in ("text", "text-2", "text-3")],
    *[
        (part, ground)
        for part in ("info", "good", "json-number", "series-3")  # keys, texts, numbers and words of a JSON value
        for ground in ("surface", "sunken", "accent-soft")
    ],
    ("accent", "sunken"),
    ("bad", "accent-soft"),
    *[("text", f"{tone}-soft") for tone in ("good", "warn", "bad", "info")],
    *[("text-2", f"{tone}-soft") for tone in ("warn", "bad", "info")],
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_on_its_ground(theme: str) -> None:
    palette = _palette(theme)
    assert [(text, on) for text, on in PAIRS if _contrast(palette[text], palette[on]) < 4.5] == []
