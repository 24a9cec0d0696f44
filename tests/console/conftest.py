"""A real Chromium, looking at a real `headwater serve`, and at a real app that runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

import headwater
from headwater.log import EmbeddedLog

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images" / "console"
WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


class Visitor:
    """Somebody at a browser. Whatever the page asks of other hosts, and every error in it, is a failure of the test."""

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
        self.context.set_default_timeout(20_000)
        self.page: Page = self.context.new_page()
        self.page.on("request", self._asked)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))

    def open(self, path: str) -> Page:
        """Go to a page of the console and wait until it is alive."""
        self.page.goto(f"{self.address}/console{path}")
        self.page.wait_for_selector("main.hw-page")
        return self.page

    def picture(self, name: str, *, full: bool = False) -> None:
        """Keep what is on the screen for the documentation, if HEADWATER_PICTURES is set; the mouse is out of the way."""
        if os.environ.get("HEADWATER_PICTURES"):
            PICTURES.mkdir(parents=True, exist_ok=True)
            self.page.mouse.move(0, 0)
            self.page.screenshot(path=PICTURES / f"{name}.png", full_page=full)

    # Any: a request of Playwright's.
    def _asked(self, request: object) -> None:
        url = str(getattr(request, "url", ""))
        if not url.startswith((self.address, "data:", "blob:", self.address.replace("http", "ws", 1))):
            self.troubles.append(f"asked another host: {url}")

    def close(self) -> None:
        self.context.close()
        assert self.troubles == []


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
    for one in made:
        one.close()


@contextmanager
def serving(log: Path, *more: str) -> Iterator[str]:
    """A `headwater serve` of its own process on a free port; gives its address."""
    words = [sys.executable, "-m", "headwater.cli", "--log", str(log), "--output", "jsonl", "serve", "--port", "0", *more]
    # In the log's folder: it must lay no files into the place where it was started.
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=log.parent) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with headwater.open(tmp_path / "log") as opened:
        assert isinstance(opened, EmbeddedLog)
        yield opened


@pytest.fixture
def served(log: EmbeddedLog) -> Iterator[str]:
    """The console over an empty log, which the test fills through the fixture `log`."""
    with serving(log.path) as address:
        yield address
