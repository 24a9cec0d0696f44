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
from headwater.console.door import HEADERS
from headwater.server.tokens import Tokens
from tests.console.conftest import Visit, serving

SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guarded") / "log"
    with headwater.open(path) as log:
        log.create("orders", "customer string, amount long")
        log.create("salaries", "name string")
    Tokens(path).create("root")
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(folder) as found:
        yield found


@pytest.fixture
def tokens(folder: Path) -> Tokens:
    return Tokens(folder)


def log_in(page: Page, address: str, token: str, *, to: str = "/topics") -> None:
    page.goto(f"{address}/console{to}")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def post(address: str, token: str, **more: str) -> httpx.Response:
    return httpx.post(f"{address}/console/login", data={"token": token, **more}, trust_env=False)


def test_every_page_asks_for_a_login_and_leads_back(address: str, tokens: Tokens, visit: Visit) -> None:
    token = tokens.create("ada")
    visitor = visit(address)
    page = visitor.page
    page.goto(f"{address}/console/topics")
    expect(page).to_have_title("Log in · Headwater")
    visitor.picture("login-light")
    log_in(page, address, token)
    expect(page).to_have_url(f"{address}/console/topics")
    expect(page.get_by_role("row", name=re.compile("orders"))).to_be_visible()
    expect(page.get_by_text("ada", exact=True)).to_be_visible()


@pytest.mark.process
def test_without_a_login_there_is_neither_a_page_nor_a_socket(address: str) -> None:
    for path in ("/", "/topics", "/topics/orders", "/nothing"):
        answer = httpx.get(f"{address}/console{path}", trust_env=False)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/console/login?to=/console")
    with pytest.raises(InvalidStatus), connect(address.replace("http", "ws", 1) + SOCKET):
        pass
    polling = httpx.get(f"{address}/console/_nicegui_ws/socket.io/?EIO=4&transport=polling", trust_env=False)
    assert polling.status_code == 303
    assert httpx.post(f"{address}/console/_nicegui_ws/socket.io/", trust_env=False).status_code == 401


def test_a_wrong_token_is_told_so_and_many_of_them_must_wait(folder: Path, visit: Visit) -> None:
    with serving(folder) as address:  # of its own: who is slowed down stays so for a while
        page = visit(address).page
        log_in(page, address, "hw_0000000000000000_wrong")
        expect(page.get_by_role("alert")).to_contain_text("token")
        expect(page.get_by_label("Token")).to_have_value("")
        codes = [post(address, "hw_0000000000000000_wrong").status_code for _ in range(40)]
        assert codes[0] == 401
        assert codes[-1] == 429
        assert int(post(address, "wrong").headers["retry-after"]) >= 1
        # Others may share the address: a good token is still good.
        assert post(address, Tokens(folder).create("behind-the-same-proxy")).status_code == 303


@pytest.mark.process
def test_a_login_leads_nowhere_but_into_the_console(address: str, tokens: Tokens) -> None:
    token = tokens.create("careful")
    for to in (
        "https://example.org/",
        "//example.org/",
        "/console\\example.org",
        "javascript:alert(1)",
        "/api/v1/topics",
    ):
        assert post(address, token, to=to).headers["location"] == "/console/"
    assert post(address, token, to="/console/topics?page=2").headers["location"] == "/console/topics?page=2"


@pytest.mark.process
def test_the_session_is_for_this_site_and_not_for_scripts(address: str, tokens: Tokens) -> None:
    first = httpx.get(f"{address}/console/login", trust_env=False)
    second = httpx.post(
        f"{address}/console/login", data={"token": tokens.create("kept")}, cookies=dict(first.cookies), trust_env=False
    )
    cookie = second.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    # A new session with the login: whoever planted the old cookie has nothing of it.
    assert set(first.cookies.values()).isdisjoint(second.cookies.values())


@pytest.mark.process
def test_other_sites_get_neither_a_socket_nor_a_form(address: str, tokens: Tokens) -> None:
    token = tokens.create("visited")
    session = "; ".join(f"{name}={value}" for name, value in post(address, token).cookies.items())
    socket = address.replace("http", "ws", 1) + SOCKET
    with connect(socket, additional_headers={"Cookie": session, "Origin": address}) as accepted:
        assert str(accepted.recv()).startswith("0")  # the greeting of the protocol
    for origin in ("https://example.org", "null", f"{address}.example.org"):
        with pytest.raises(InvalidStatus), connect(socket, additional_headers={"Cookie": session, "Origin": origin}):
            pass
        foreign = {"Cookie": session, "Origin": origin}
        assert httpx.post(f"{address}/console/logout", headers=foreign, trust_env=False).status_code == 403


def test_a_revoked_token_loses_its_open_pages(address: str, tokens: Tokens, visit: Visit) -> None:
    page = visit(address).page
    log_in(page, address, tokens.create("leaving"))
    expect(page.get_by_role("row", name=re.compile("orders"))).to_be_visible()
    tokens.revoke("leaving")
    expect(page).to_have_title("Log in · Headwater")
    page.goto(f"{address}/console/topics")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_logging_out_closes_all_pages_of_the_session(address: str, tokens: Tokens, visit: Visit) -> None:
    visitor = visit(address)
    log_in(visitor.page, address, tokens.create("short"))
    other = visitor.context.new_page()
    other.goto(f"{address}/console/")
    expect(other.get_by_role("heading", name="Home")).to_be_visible()
    visitor.page.get_by_label("Log out").click()
    expect(visitor.page).to_have_title("Log in · Headwater")
    expect(other).to_have_title("Log in · Headwater")


def test_a_token_for_some_topics_shows_those(address: str, tokens: Tokens, visit: Visit) -> None:
    page = visit(address, dark=True).page
    log_in(page, address, tokens.create("narrow", ["read:orders*"]))
    expect(page.get_by_role("row", name=re.compile("orders"))).to_be_visible()
    expect(page.get_by_text("salaries")).to_have_count(0)


def test_the_first_token_closes_a_console_that_was_open(tmp_path: Path, visit: Visit) -> None:
    headwater.open(tmp_path / "log").close()
    with serving(tmp_path / "log") as address:
        page = visit(address).open("/")
        Tokens(tmp_path / "log").create("first")
        expect(page).to_have_title("Log in · Headwater")
        Tokens(tmp_path / "log").revoke("first")  # the last one, which does not open it again
        page.goto(f"{address}/console/")
        expect(page).to_have_title("Log in · Headwater")


@pytest.mark.process
def test_browsers_are_told_what_to_refuse_and_nothing_is_laid_into_the_folder(address: str, folder: Path) -> None:
    answer = httpx.get(f"{address}/console/login", trust_env=False)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert answer.headers["cache-control"] == "no-store"
    assert [path.name for path in folder.parent.iterdir()] == ["log"]  # where the server was started
