"""Conditions that tests ask of a page hold out a page that is only beginning."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser

from tests.conditions import SECONDS_MAX
from tests.console.page_state import FITS, expect_theme, expect_to_fit

UNGUARDED = re.compile(r"wait_for_function\([^)]*?document\.(?:documentElement|body|activeElement)\.")
PAGE = "<!doctype html><html data-theme={theme}><body><main>plums</main></body></html>"


@contextmanager
def served_late(release: threading.Event) -> Iterator[str]:
    """A light page; asked for again, it is dark, and its document comes after the release."""
    asked = 0

    class Late(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal asked
            asked += 1
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.flush()
            if asked > 1:
                release.wait(SECONDS_MAX)
            self.wfile.write(PAGE.format(theme="dark" if asked > 1 else "light").encode())

        def log_message(self, *told: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Late) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            release.set()
            server.shutdown()
            thread.join()


def test_a_page_that_has_no_document_yet_meets_no_condition(browser: Browser) -> None:
    release = threading.Event()
    with served_late(release) as address:
        page = browser.new_page()
        page.route("**/favicon.ico", lambda route: route.abort())
        page.goto(address)
        expect_theme(page, "light")
        page.evaluate("setTimeout(() => location.reload())")
        page.wait_for_function("document.documentElement === null")
        assert page.evaluate(FITS) is False
        release.set()
        expect_to_fit(page)
        expect_theme(page, "dark")
        page.close()


def test_no_condition_takes_the_document_for_granted() -> None:
    files = sorted(Path(__file__).parent.glob("*.py"))
    assert [file.name for file in files if UNGUARDED.search(file.read_text(encoding="utf-8"))] == []
