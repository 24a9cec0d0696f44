"""A console that is mounted again on its port, as `headwater dev` does after each save."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

import headwater
from tests.console.conftest import Visit

#: Serves a log, and serves it again on the same port for each line that it is sent.
SERVER = """
import sys
from urllib.parse import urlsplit
import headwater
from headwater.console import console_for_server
from headwater.http.server import Address, served

port = 0
with headwater.open("log") as log:
    while True:
        with served(log, Address(port=port), **console_for_server()) as address:
            port = urlsplit(address).port
            print(address, flush=True)
            if not sys.stdin.readline():
                break
"""


def test_an_open_page_finds_the_console_that_comes_after(tmp_path: Path, visit: Visit) -> None:
    with headwater.open(tmp_path / "log") as log:
        log.create("orders", "amount long")
        words = [sys.executable, "-c", SERVER]
        with subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            page = visit(address).open("/topics")
            expect(page.get_by_role("link", name="orders")).to_be_visible()
            for topic in ("payments", "refunds"):
                page.evaluate("window.isOld = true")
                process.stdin.write("again\n")
                process.stdin.flush()
                assert process.stdout.readline().strip() == address
                page.wait_for_function("window.isOld === undefined")
                log.create(topic, "amount long")
                expect(page.get_by_role("link", name=topic)).to_be_visible()
            process.stdin.close()
            assert process.wait(60) == 0
