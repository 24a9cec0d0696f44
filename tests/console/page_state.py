"""States of a page in the browser that a test waits for.

Between the start of a new document and its first bytes a page has no element at all: `document.documentElement` is null.
A condition that is asked in JavaScript must hold this out, because Playwright asks it at any moment of a navigation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect

#: Whether the page is not wider than its window.
FITS = "document.documentElement?.scrollWidth <= innerWidth"


def expect_shown(page: Page) -> None:
    """Wait until the page is connected and has shown something of its own."""
    page.wait_for_function("window.socket === undefined || window.socket.connected")
    expect(page.locator("main h1, main [role=alert]").first).to_be_visible()


def expect_theme(page: Page, theme: str) -> None:
    """Wait until the page has the theme `light` or `dark`."""
    expect(page.locator("html")).to_have_attribute("data-theme", theme)


def expect_to_fit(page: Page) -> None:
    """Wait until the page does not scroll sideways."""
    page.wait_for_function(FITS)


@contextmanager
def loading_again(page: Page) -> Iterator[None]:
    """Wait, after the block, until the page that the block loads again has shown something."""
    page.evaluate("window.isOld = true")
    yield
    page.wait_for_function("window.isOld === undefined")
    expect_shown(page)
