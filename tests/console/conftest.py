"""A real Chromium, looking at a real `headwater serve`, and at a real app that runs."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Error,
    Page,
    Playwright,
    Request,
    TimeoutError,
    WebSocket,
    expect,
    sync_playwright,
)

import headwater
from headwater.apps.home import Home
from headwater.apps.status import QueryStatus
from headwater.errors import HeadwaterError
from headwater.log import Log
from headwater.services import app_services
from headwater.spark.errors import JavaMissing
from headwater.spark.java import find_java
from tests.console import company
from tests.console.accessibility import TROUBLES
from tests.console.bank import make_bank
from tests.console.simulation import SimulatedConsole, simulated

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images" / "console"
#: Removed from the environment: the processes that tests start would refuse it as an unknown setting.
WANTS_PICTURES = bool(os.environ.pop("HEADWATER_PICTURES", ""))
#: Where a page looks the same but for its colours, the second is opened for its picture alone.
LOOKS = (False, True) if WANTS_PICTURES else (False,)
WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
# It ends a hang; a machine may be slow.
expect.set_options(timeout=120_000)


class Chromium:
    """The one Chromium of a test process, and the event loop that drives it.

    Playwright leaves its loop in the thread as the one that runs, so that no other test could use asyncio. So it is there
    only inside of `at_work`.
    """

    def __init__(self, playwright: Playwright, program: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])

    @contextmanager
    def at_work(self) -> Iterator[Browser]:
        asyncio._set_running_loop(self._loop)
        try:
            yield self.browser
        finally:
            asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """Debian's Chromium, driven by Playwright."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        # Where it is known to be there, tests that do not find it have not looked at anything.
        refuse = pytest.fail if os.environ.get("HEADWATER_TEST_BROWSER") == "required" else pytest.skip
        refuse("no Chromium here; on Debian: apt-get install chromium")
    playwright = sync_playwright().start()
    made = Chromium(playwright, program)
    with made.at_work():
        pass
    yield made
    with made.at_work():
        made.browser.close()
        playwright.stop()


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Browser]:
    with chromium.at_work() as started:
        yield started


class Visitor:
    """A user at a browser. A request to another host, an error in a page, or a control without a name fails the test."""

    def __init__(self, browser: Browser, address: str, *, dark: bool = False, phone: bool = False) -> None:
        self.address = address
        self.troubles: list[str] = []
        self.context: BrowserContext = browser.new_context(
            viewport=PHONE if phone else WIDE,  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
            color_scheme="dark" if dark else "light",
            timezone_id="UTC",
            permissions=["notifications"],
        )
        if dark:
            self.context.add_cookies([{"name": "headwater_theme", "value": "dark", "url": address}])
        self.context.set_default_timeout(120_000)
        self.page: Page = self.context.new_page()
        self.context.on("request", self._asked)
        self.page.on("websocket", self._asked)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))

    def open(self, path: str) -> Page:
        """Go to a page of the console and wait until it is alive."""
        self.page.goto(f"{self.address}/console{path}")
        self.page.wait_for_selector("main.hw-page")
        return self.page

    def picture(self, name: str, *, full: bool = False) -> None:
        """Keep what is on the screen for the documentation, if HEADWATER_PICTURES is set; the mouse is out of the way."""
        self.look(name)
        if WANTS_PICTURES:
            PICTURES.mkdir(parents=True, exist_ok=True)
            self.page.mouse.move(0, 0)
            # The folder of the log is another on each machine.
            self.page.evaluate("document.querySelectorAll('.crumbs > *').forEach(one => one.textContent = './data')")
            if full:  # what is as high as the window shall be as high as the page
                height = self.page.evaluate("document.documentElement.scrollHeight")
                self.page.set_viewport_size({"width": WIDE["width"], "height": height})
            self.page.screenshot(path=PICTURES / f"{name}.png", full_page=full)
            if full:
                self.page.set_viewport_size(WIDE)  # type: ignore[arg-type]  # as above

    def look(self, where: str) -> None:
        """Note what a person with a keyboard, or with a screen reader, would stumble over on the page as it is now."""
        if self.page.locator("main.hw-page").count():
            with suppress(TimeoutError):  # it is a trouble then
                self.page.locator("h1").first.wait_for()  # a page may be on its way
            self.troubles += [f"{where}: {trouble}" for trouble in self.page.evaluate(TROUBLES)]

    def close(self) -> None:
        """Go home, after a last look."""
        if not self.page.is_closed():
            try:
                self.look(self.page.url)
            except Error as error:
                if "navigation" not in str(error):  # on its way to another page, which has tests of its own
                    raise
        self.context.close()

    def _asked(self, request: Request | WebSocket) -> None:
        asked = urlsplit(request.url)
        if asked.scheme not in ("data", "blob") and asked.netloc != urlsplit(self.address).netloc:
            self.troubles.append(f"asked another host: {request.url}")


class Visit(Protocol):
    """Makes visitors, and sends them home at the end of the test."""

    def __call__(self, address: str, *, dark: bool = False, phone: bool = False) -> Visitor: ...


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    made: list[Visitor] = []

    def come(address: str, *, dark: bool = False, phone: bool = False) -> Visitor:
        made.append(Visitor(browser, address, dark=dark, phone=phone))
        return made[-1]

    yield come
    for visitor in made:
        visitor.close()
    assert [trouble for visitor in made for trouble in visitor.troubles] == []


@contextmanager
def serving(log: Path, *more: str) -> Iterator[str]:
    """A `headwater serve` of its own process on a free port; gives its address."""
    words = [
        sys.executable,
        "-m",
        "headwater.cli",
        "--log",
        str(log),
        "--output",
        "jsonl",
        "serve",
        "--port",
        "0",
        *more,
    ]
    # In the log's folder: it must lay no files into the place where it was started.
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=log.parent) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with headwater.open(tmp_path / "log") as opened:
        assert isinstance(opened, Log)
        yield opened


@pytest.fixture
def console(log: Log) -> Iterator[SimulatedConsole]:
    """The console of the fixture `log` in this process: it starts nothing."""
    with simulated(log) as made:
        yield made


@dataclass(frozen=True, kw_only=True)
class Served:
    """A log with a `headwater serve` on it. Tests share it: each makes topics, groups and rules with names of its own."""

    log: Log
    address: str


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The one served log of a test process."""
    path = tmp_path_factory.mktemp("shared") / "log"
    with headwater.open(path) as opened, serving(path) as address:
        assert isinstance(opened, Log)
        yield Served(log=opened, address=address)


@pytest.fixture
def served(shared: Served) -> str:
    """The address of the served log that tests share."""
    return shared.address


@pytest.fixture(scope="session")
def shared_bank(shared: Served) -> Served:
    """A bank in the shared log: its topics, and what its app looks for."""
    make_bank(shared.log)
    return shared


_prefixes = itertools.count(1)


@pytest.fixture
def prefix() -> str:
    """Put before the names of what a test makes in the shared log; no two tests have the same one."""
    return f"t{next(_prefixes)}."


@dataclass(frozen=True, kw_only=True)
class Running:
    """A real `headwater run` of `company.py`, with its console."""

    address: str
    log: Log
    feed: company.Feed
    home: Path

    def queries(self) -> dict[str, QueryStatus]:
        """The queries by name, as the app itself tells of them."""
        with app_services(Home(self.home)) as services:
            return {status.name: status for status in services.queries.statuses().queries}

    def is_at_work(self) -> bool:
        """Whether every query has done a batch, and goes on."""
        return all(status.batch is not None and status.error is None for status in self.queries().values())

    def until(self, holds: Callable[[], bool], expected: str, *, seconds: float = 180.0) -> None:
        """Wait for a condition; an app that is just coming up, or a topic that is not there yet, does not meet it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if holds():
                    return
            except HeadwaterError:
                pass
            assert time.monotonic() < deadline, f"waited in vain until {expected}"
            time.sleep(0.1)


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The company at work: every query has done a batch, late and broken rows have come, and alerts were found.

    All tests share it. Feed it as you like; a test that stops a query starts it again.
    """
    try:
        find_java()
    except JavaMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("company")
    home = folder / "data" / "apps" / company.NAME
    words = [sys.executable, "-m", "headwater.cli", "--log", str(folder / "data"), "run", str(Path(company.__file__))]
    with (folder / "stderr").open("w") as told, subprocess.Popen(words, cwd=folder, stderr=told) as process:
        try:
            while (runner := Home(home).active_runner()) is None:
                assert process.poll() is None, (folder / "stderr").read_text()
                time.sleep(0.1)
            with headwater.open(folder / "data") as opened:
                assert isinstance(opened, Log)
                feed = company.Feed(opened)
                for _ in range(5):
                    feed.some()
                running = Running(address=runner.address, log=opened, feed=feed, home=home)
                running.until(running.is_at_work, "every query has done a batch")
                feed.late()
                feed.broken()
                running.until(lambda: opened.describe("orders.dlq").rows >= 3, "the broken orders are dead letters")
                running.until(
                    lambda: opened.describe("orders.late").rows >= 5, "the late orders are in their side output"
                )
                yield running
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
