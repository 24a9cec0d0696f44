"""A browser follows a topic by what it has itself, through a restart of the server."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

from headwater.http import Address, served
from headwater.log import Log
from tests.console.conftest import browser as browser
from tests.console.conftest import chromium as chromium

FOLLOW = """
window.byEvents = []
window.bySocket = []
const events = new EventSource('/api/v1/topics/t/tail?start=earliest')
events.onmessage = event => window.byEvents.push(JSON.parse(event.data).id)
let next = 'earliest'
function connect() {
    const socket = new WebSocket(`ws://${location.host}/api/v1/topics/t/ws?start=${next}`)
    socket.onmessage = message => {
        const frame = JSON.parse(message.data)
        next = frame.next
        for (const row of frame.rows ?? []) window.bySocket.push(row.id)
    }
    socket.onclose = () => setTimeout(connect, 100)
}
connect()
"""


@pytest.mark.browser
def test_event_source_and_web_socket_have_each_row_once_through_a_restart(log: Log, browser: Browser) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": number} for number in range(1_000)])
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(120_000)
    have = "count => window.byEvents.length >= count && window.bySocket.length >= count"
    with served(log, Address(port=0)) as address:
        page.goto(f"{address}/livez")
        page.evaluate(FOLLOW)
        page.wait_for_function(have, arg=1_000)
    log.append("t", [{"id": number} for number in range(1_000, 2_000)])
    with served(log, Address(port=urlsplit(address).port or 0)):
        page.wait_for_function(have, arg=2_000)
        log.append("t", [{"id": 2_000}])
        page.wait_for_function(have, arg=2_001)
        found = page.evaluate("[window.byEvents, window.bySocket]")
        context.close()
    assert found == [list(range(2_001))] * 2
