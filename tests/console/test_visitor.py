"""The tests' own eyes: what a page must not do is noticed, so that a test which sees nothing means something."""

from __future__ import annotations

import pytest

from tests.console.conftest import Visit, Visitor

ELSEWHERE = "127.0.0.1:9"


@pytest.fixture
def visitor(served: str, visit: Visit) -> Visitor:
    return visit(served)


def told(visitor: Visitor) -> list[str]:
    """The troubles that were noticed, which are then none of the test's own."""
    troubles = [*visitor.troubles]
    visitor.troubles.clear()
    return troubles


def test_an_image_from_another_host_is_noticed(visitor: Visitor) -> None:
    for address in (f"http://{ELSEWHERE}", f"{visitor.address}@{ELSEWHERE}"):
        with visitor.page.expect_request("**/spy.png"):
            visitor.page.set_content(f'<img alt="" src="{address}/spy.png">')
        assert any(f"{ELSEWHERE}/spy.png" in trouble for trouble in told(visitor))


def test_a_websocket_to_another_host_is_noticed(visitor: Visitor) -> None:
    with visitor.page.expect_websocket():
        visitor.page.evaluate(f"new WebSocket('ws://{ELSEWHERE}/spy')")
    assert told(visitor) == [f"asked another host: ws://{ELSEWHERE}/spy"]


def test_an_error_in_the_page_is_noticed(visitor: Visitor) -> None:
    with visitor.page.expect_event("pageerror"):
        visitor.page.evaluate("setTimeout(() => { throw new Error('spilt'); })")
    assert [trouble.startswith("error: spilt") for trouble in told(visitor)] == [True]


def test_a_control_without_a_name_is_noticed(visitor: Visitor) -> None:
    visitor.open("/").evaluate("document.querySelector('main.hw-page').append(document.createElement('button'))")
    visitor.page.locator("main.hw-page > button").evaluate("one => one.style.cssText = 'width: 9px; height: 9px'")
    visitor.look("home")
    assert told(visitor) == [f"home: a control without a name: {_button()}"]
    visitor.page.locator("main.hw-page > button").evaluate("one => one.remove()")


def _button() -> str:
    return '<button style="width: 9px; height: 9px;"></button>'


def test_the_console_itself_forbids_other_hosts(visitor: Visitor) -> None:
    refused = visitor.open("/").evaluate(
        """(address) => new Promise((done) => {
            addEventListener("securitypolicyviolation", (event) => done(event.blockedURI));
            new Image().src = address;
        })""",
        f"http://{ELSEWHERE}/spy.png",
    )
    assert refused == f"http://{ELSEWHERE}/spy.png"
    told(visitor)  # whether Chromium tells of requests that it refuses is its own affair
