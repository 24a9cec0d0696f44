"""Who may come in: a login for everything once there are tokens, and nothing for those who have lost theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import headwater
from headwater.console.authentication import HEADERS
from headwater.log import Log
from headwater.services.tokens import Tokens
from tests.console.conftest import Visit, serving
from tests.console.simulation import SimulatedConsole

SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guarded") / "log"
    with headwater.open(path) as log:
        fill(log)
    Tokens(path).create("root")
    return path


def fill(log: Log) -> None:
    log.create("orders", "customer string, amount long")
    log.create("salaries", "name string")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(folder) as address:
        yield address


@pytest.fixture
def tokens(log: Log) -> Tokens:
    """Those of the console in this process, of which there is one."""
    fill(log)
    made = Tokens(log.home)
    made.create("root")
    return made


def log_in(page: Page, address: str, token: str, *, to: str = "/topics") -> None:
    page.goto(f"{address}/console{to}")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def post(console: SimulatedConsole, token: str, **more: str) -> httpx.Response:
    return console.ask("POST", "/login", data={"token": token, **more})


def test_without_a_login_every_page_leads_to_it(tokens: Tokens, console: SimulatedConsole) -> None:
    assert tokens
    for path in ("/", "/topics", "/topics/orders", "/nothing"):
        answer = console.ask("GET", path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/console/login?to=/console")
    assert "<h1>Log in</h1>" in console.ask("GET", "/login").text


def test_a_wrong_token_is_told_so_and_many_of_them_must_wait(tokens: Tokens, console: SimulatedConsole) -> None:
    wrong = "hw_0000000000000000_wrong"
    assert 'role="alert"' in post(console, wrong).text
    assert wrong not in post(console, wrong).text
    codes = [post(console, wrong).status_code for _ in range(40)]
    assert codes[0] == 401
    assert codes[-1] == 429
    assert int(post(console, "wrong").headers["retry-after"]) >= 1
    # Others may share the address: a good token is still good.
    assert post(console, tokens.create("behind-the-same-proxy")).status_code == 303


def test_a_login_leads_nowhere_but_into_the_console(tokens: Tokens, console: SimulatedConsole) -> None:
    token = tokens.create("careful")
    for to in (
        "https://example.org/",
        "//example.org/",
        "/console\\example.org",
        "javascript:alert(1)",
        "/api/v1/topics",
    ):
        assert post(console, token, to=to).headers["location"] == "/console/"
    assert post(console, token, to="/console/topics?page=2").headers["location"] == "/console/topics?page=2"


def test_the_session_is_for_this_site_and_not_for_scripts(tokens: Tokens, console: SimulatedConsole) -> None:
    first = console.ask("GET", "/login")
    given = {"Cookie": "; ".join(f"{name}={value}" for name, value in first.cookies.items())}
    second = console.ask("POST", "/login", data={"token": tokens.create("kept")}, headers=given)
    cookie = second.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    # A new session with the login: a cookie from before the login is worth nothing.
    assert set(first.cookies.values()).isdisjoint(second.cookies.values())


def test_a_revoked_token_loses_its_open_pages(tokens: Tokens, console: SimulatedConsole) -> None:
    page = console.open("/topics", tokens.create("leaving")).sees("orders", "leaving")
    tokens.revoke("leaving")
    page.later()
    assert page.navigate.went_to == "/console/login"
    assert console.run(page.user.http_client.get("/console/topics")).status_code == 303


def test_a_token_for_some_topics_shows_those(tokens: Tokens, console: SimulatedConsole) -> None:
    page = console.open("/topics", tokens.create("narrow", ["read:orders*"]))
    assert [row.split()[0] for row in page.rows("Topics")] == ["orders"]


def test_the_first_token_closes_a_console_that_was_open(log: Log, console: SimulatedConsole) -> None:
    page = console.open("/")
    Tokens(log.home).create("first")
    page.later()
    assert page.navigate.went_to == "/console/login"
    Tokens(log.home).revoke("first")  # the last one, which does not open it again
    assert console.ask("GET", "/").status_code == 303


def test_browsers_are_told_what_to_refuse(console: SimulatedConsole) -> None:
    answer = console.ask("GET", "/login?to=/console/topics")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


# -- over a socket ----------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.xdist_group("browser")  # the server of the browser tests
def test_without_a_login_there_is_no_socket_and_nothing_is_laid_into_the_folder(address: str, folder: Path) -> None:
    with pytest.raises(InvalidStatus), connect(address.replace("http", "ws", 1) + SOCKET):
        pass
    polling = httpx.get(f"{address}/console/_nicegui_ws/socket.io/?EIO=4&transport=polling", trust_env=False)
    assert polling.status_code == 303
    assert httpx.post(f"{address}/console/_nicegui_ws/socket.io/", trust_env=False).status_code == 401
    answer = httpx.get(f"{address}/console/login", trust_env=False)
    assert answer.headers["cache-control"] == "no-store"
    assert [path.name for path in folder.parent.iterdir()] == ["log"]  # where the server was started


@pytest.mark.process
@pytest.mark.xdist_group("browser")  # the server of the browser tests
def test_other_sites_get_neither_a_socket_nor_a_form(address: str, folder: Path) -> None:
    token = Tokens(folder).create("visited")
    answer = httpx.post(f"{address}/console/login", data={"token": token}, trust_env=False)
    session = "; ".join(f"{name}={value}" for name, value in answer.cookies.items())
    socket = address.replace("http", "ws", 1) + SOCKET
    with connect(socket, additional_headers={"Cookie": session, "Origin": address}) as accepted:
        assert str(accepted.recv()).startswith("0")  # the greeting of the protocol
    for origin in ("https://example.org", "null", f"{address}.example.org"):
        with pytest.raises(InvalidStatus), connect(socket, additional_headers={"Cookie": session, "Origin": origin}):
            pass
        foreign = {"Cookie": session, "Origin": origin}
        assert httpx.post(f"{address}/console/logout", headers=foreign, trust_env=False).status_code == 403


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_every_page_asks_for_a_login_and_leads_back(address: str, folder: Path, visit: Visit) -> None:
    visitor = visit(address)
    page = visitor.page
    log_in(page, address, "hw_0000000000000000_wrong")
    expect(page.get_by_role("alert")).to_contain_text("token")
    expect(page.get_by_label("Token")).to_have_value("")
    page.goto(f"{address}/console/topics")
    expect(page).to_have_title("Log in · Headwater")
    visitor.picture("login-light")
    log_in(page, address, Tokens(folder).create("ada"))
    expect(page).to_have_url(f"{address}/console/topics")
    expect(page.get_by_role("row", name=re.compile("orders"))).to_be_visible()
    expect(page.get_by_text("ada", exact=True)).to_be_visible()


def test_logging_out_or_losing_the_token_closes_all_pages_of_the_session(
    address: str, folder: Path, visit: Visit
) -> None:
    visitor, tokens = visit(address), Tokens(folder)
    log_in(visitor.page, address, tokens.create("short"))
    other = visitor.context.new_page()
    other.goto(f"{address}/console/")
    expect(other.get_by_role("heading", name="Home")).to_be_visible()
    leaving = visit(address).page
    log_in(leaving, address, tokens.create("leaving"))
    expect(leaving.get_by_role("row", name=re.compile("orders"))).to_be_visible()
    visitor.page.get_by_label("Log out").click()
    tokens.revoke("leaving")
    for page in (visitor.page, other, leaving):
        expect(page).to_have_title("Log in · Headwater")
