"""Load time of the console: Chromium opens the list of topics, with an empty cache and with a full one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import headwater.log as hwlog
from benchmarks.harness import Bench, Result, percentile
from benchmarks.server.children import console

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

TOPICS = 200
#: Notes when the first row with a topic stands in the table: it came through the open page's own connection.
LIVE = """
new MutationObserver(() => {
  if (window.liveAt === undefined && document.querySelector("main tbody td a")) window.liveAt = performance.now();
}).observe(document, { childList: true, subtree: true });
"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def first_paint(bench: Bench) -> list[Result]:
    """From the beginning of the navigation to the first words, and to the first live row."""
    if _chromium() is None:
        bench.say("there is no Chromium here; on Debian: apt-get install chromium")
        return []
    loads = bench.size(20, 3)
    with bench.scratch("console") as folder:
        with hwlog.open(folder / "log") as log:
            for number in range(TOPICS):
                log.create(f"topic.{number:03}", "amount int64", durability="os")
        with console(folder / "log") as address, _browser() as browser:
            _load(browser.new_context(), address)  # the server's own first time
            bench.say("cold")
            cold = [_in_new_context(browser, address) for _ in range(loads)]
            bench.say("warm")
            context = browser.new_context()
            _load(context, address)
            warm = [_load(context, address) for _ in range(loads)]
    return [
        _result(f"console.{name}.{cache}", [one[place] for one in found])
        for place, name in enumerate(("first_paint", "live_table"))
        for cache, found in (("cold", cold), ("warm", warm))
    ]


def _in_new_context(browser: Browser, address: str) -> tuple[float, float]:
    context = browser.new_context()
    try:
        return _load(context, address)
    finally:
        context.close()


def _load(context: BrowserContext, address: str) -> tuple[float, float]:
    """Milliseconds to the first paint and to the first live row, in the browser's own clock."""
    page = context.new_page()
    page.add_init_script(LIVE)
    page.goto(f"{address}/console/topics")
    page.wait_for_function("window.liveAt !== undefined", timeout=60_000)
    painted, live = page.evaluate(f"[{PAINTED}, window.liveAt]")
    page.close()
    return painted, live


@contextmanager
def _browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def _result(name: str, found: list[float]) -> Result:
    p50, p99 = percentile(found, 0.5), percentile(found, 0.99)
    return Result(name=name, value=p50, unit="ms", p50=p50, p99=p99, more={"loads": len(found), "topics": TOPICS})
