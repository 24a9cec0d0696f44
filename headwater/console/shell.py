"""The frame of every page: the navigation, the bar with the jump box, and the panel of explanations."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from nicegui import Client, ui
from nicegui import app as pages
from nicegui import context as page_context

from headwater.console.alerts.badge import follow_alerts
from headwater.console.authentication import LOGO, add_login, version
from headwater.console.context import Visit, context
from headwater.console.history import History
from headwater.console.kit.layout import WhyPanel, block, html, subtitle
from headwater.console.kit.live import loaded_first
from headwater.console.kit.words import span
from headwater.console.pages import GROUPS, PATH, Screen, path_to, screens
from headwater.console.queries.status import query_path
from headwater.console.sql.statements import stop_all
from headwater.errors import HeadwaterError, NotFound
from headwater.services.callers import LOCAL, Caller


@cache
def declare_pages() -> None:
    """Make NiceGUI's pages of all screens; once per process."""
    for screen in screens():
        title = f"{screen.title or 'Headwater'} · Headwater"
        ui.page(screen.path, title=title, language="en-US", response_timeout=20.0)(_page(screen))
    add_login(pages)
    pages.exception_handler(404)(_not_found)
    pages.on_shutdown(stop_all)


def _page(screen: Screen) -> Callable[..., Any]:
    """The function that NiceGUI calls: it takes the request, and builds the screen inside the frame."""
    signature = inspect.signature(screen.build)
    given = [parameter for name, parameter in signature.parameters.items() if name != "visit"]

    # Any: what the path and the query string hold.
    async def page(request: Request, **arguments: Any) -> Any:
        visitor = request.session["id"]
        caller = context().caller(visitor)
        if caller is None:  # the session has ended since the request was let in
            return RedirectResponse(f"{PATH}/login")
        visit = Visit(caller=caller, dark=_is_dark(request))
        _add_look()
        _accept_whole_addresses()
        async with loaded_first():
            with _frame(screen, visit):
                _close_after_logout(visitor, caller)
                try:
                    result = screen.build(visit, **arguments)
                    if inspect.isawaitable(result):
                        await result
                except HeadwaterError as error:
                    _show_error(error)
        return None

    request = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in given]
    page.__signature__ = signature.replace(parameters=[request, *keyword])  # type: ignore[attr-defined]  # FastAPI reads it
    page.__annotations__ = {"request": Request, **{parameter.name: parameter.annotation for parameter in keyword}}
    return page


def _is_dark(request: Request) -> bool:
    return request.cookies.get("headwater_theme") == "dark"


def _add_look() -> None:
    """Add the script and the stylesheet of every page."""
    ui.add_head_html(f'<script src="{PATH}/static-headwater/console.js?{version()}"></script>')
    ui.add_head_html(f'<link rel="stylesheet" href="{PATH}/static-headwater/console.css?{version()}">')
    ui.dark_mode(None)


async def _not_found(request: Request, error: Exception) -> Response:
    """The page for an address that no screen has."""
    caller = context().caller(request.session.get("id", ""))
    if caller is None:  # the session has ended since the request was let in
        return PlainTextResponse(f"{error}\n", status_code=404)
    with Client(ui.page("", title="Not found · Headwater", language="en-US"), request=request) as client:
        _add_look()
        with _frame(Screen(path="", build=_not_found), Visit(caller=caller, dark=_is_dark(request))):
            _show_not_found("There is no such page", f"The console has nothing at {request.url.path}.")
    return client.build_response(request, 404)


def _show_not_found(title: str, hint: str) -> None:
    with block("empty"):
        ui.icon("travel_explore").props('aria-hidden="true"')
        subtitle(title, level=1)
        ui.label(hint)
        with block("row-flex"):
            for screen in screens():
                if screen.title in ("Home", "Topics", "Queries"):
                    html(f'<a class="plain-button" href="{PATH}{screen.path}">{screen.title}</a>')


def _accept_whole_addresses() -> None:
    """Let `ui.navigate.to` take the addresses that links have: NiceGUI would prepend the path of the mount once more."""
    client = page_context.client
    inner = client.open

    def go(target: Callable[..., Any] | str, new_tab: bool = False) -> None:
        inner(target.removeprefix(PATH) or "/" if isinstance(target, str) else target, new_tab)

    client.open = go  # type: ignore[method-assign]


def _close_after_logout(visitor: str, caller: Caller) -> None:
    """Close this page when its visitor has logged out, or when the token is revoked."""
    client = page_context.client

    async def check() -> None:
        if context().caller(visitor) != caller:
            timer.deactivate()
            ui.navigate.to(f"{PATH}/login")
            await asyncio.sleep(1.0)
            client.delete()

    timer = ui.timer(2.0, check, immediate=False)


def _show_error(error: HeadwaterError) -> None:
    # A page that has begun has its heading already.
    has_heading = any("hw-head" in element.classes for element in page_context.client.elements.values())
    if isinstance(error, NotFound) and not has_heading:
        title, _, hint = str(error).partition(". ")
        _show_not_found(title, hint)
        return
    with block("note bad").props('role="alert"'), block("stack tight"):
        subtitle(type(error).__name__, level=2 if has_heading else 1)
        ui.label(str(error))


def _frame(screen: Screen, visit: Visit) -> ui.element:
    for element in page_context.client.elements.values():
        if element.tag == "q-page":
            element.props('role="presentation"')  # Quasar makes it a second `main` around ours
    html('<a class="skip" href="#page">Skip to the page</a>')
    with block("hw"):
        _navigation(screen, visit)
        _bar(visit)
        main = ui.element("main").classes("hw-page").props('id="page" tabindex="-1"')
    WhyPanel()
    return main


def _navigation(current: Screen, visit: Visit) -> None:
    with ui.element("nav").classes("hw-nav").props('aria-label="Screens"'):
        html(f'<a class="hw-brand" href="{PATH}/">{LOGO}Headwater</a>')
        for group in GROUPS:
            members = [screen for screen in screens() if screen.group == group and screen.title]
            if group and members:
                with block("group"):
                    ui.label(group)
            for screen in members:
                with _navigation_link(screen, is_current=screen.path in (current.path, current.under)):
                    if screen.path == "/alerts":
                        follow_alerts(visit, ui.label("").classes("pill bad count"))


def _navigation_link(screen: Screen, *, is_current: bool) -> ui.element:
    hint = f"g {screen.key}" if screen.key else ""
    link = ui.element("a").classes(f"item{' on' if is_current else ''}")
    link.props(f'href="{PATH}{screen.path}" data-key="{screen.key}" title="{hint}"')
    if is_current:
        link.props('aria-current="page"')
    with link:
        ui.icon(screen.icon).props('aria-hidden="true"')
        ui.label(screen.title or "")
    return link


def _bar(visit: Visit) -> None:
    with ui.element("header").classes("hw-bar"):
        _tool("menu", "Open the navigation", "headwater.toggleNav()").classes("only-narrow")
        with block("crumbs"):
            ui.label(str(context().log.home)).classes("only-wide").tooltip("The log that is served")
        block("grow")
        _liveness(visit)
        jump = JumpBox(visit)
        ui.button("Jump to", icon="search", on_click=jump.open).classes("btn").props("flat data-jump no-caps")
        _tool("contrast", "Light or dark", "headwater.toggleTheme()")
        _shortcuts()
        if visit.caller != LOCAL:
            scopes = ", ".join(str(scope) for scope in visit.caller.scopes)
            ui.label(visit.caller.name).classes("pill plain only-wide").tooltip(scopes)
            with ui.element("form").props(f'method="post" action="{PATH}/logout"'):
                button = ui.button(icon="logout").classes("btn ghost icon").tooltip("Log out")
                button.props('flat type="submit" aria-label="Log out"')


def _tool(icon: str, label: str, script: str) -> ui.button:
    made = ui.button(icon=icon).classes("btn ghost icon").props(f'flat aria-label="{label}"').tooltip(label)
    made.on("click", js_handler=f"() => {script}")
    return made


def _liveness(visit: Visit) -> None:
    """A dot that says whether the numbers of the page are current."""
    with block("row-flex small quiet").props('role="status"'):
        dot = ui.element("span").classes("live-dot")
        label = ui.label("live").classes("only-wide")

    def show() -> None:
        text = liveness_text(context().history, visit.caller)
        dot.classes(add="" if text == "live" else "off", remove="off" if text == "live" else "")
        label.set_text(text)

    ui.timer(2.0, show)


def liveness_text(history: History, caller: Caller) -> str:
    """Whether the numbers are current, in a few words."""
    if seconds := history.stale_seconds():
        return f"{span(seconds)} old"
    if history.silent:
        return f"{history.silent[0] if caller.may('read', '*') else 'an app'} does not answer"
    return "live"


def _shortcuts() -> None:
    with ui.dialog().props('aria-label="All keys"') as dialog, block("card narrow"):
        subtitle("Keys")
        rows = [("Ctrl K", "jump to a topic, view or query"), ("/", "search on this page"), ("?", "these keys")]
        rows += [(f"g {screen.key}", screen.title or "") for screen in screens() if screen.key]
        for keys, meaning in rows:
            with block("row-flex"):
                html("".join(f"<kbd>{key}</kbd> " for key in keys.split(" "))).style("width: 96px")
                ui.label(meaning)
    button = ui.button(icon="keyboard", on_click=dialog.open).classes("btn ghost icon only-wide")
    button.props('flat data-help aria-label="Keys"').tooltip("Keys")


class JumpBox:
    """The dialog that opens a screen, a query or a topic by its name."""

    SHOWN_MAX = 12

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with (
            ui.dialog().props('position=top aria-label="Go anywhere"') as self._dialog,
            block("hw-palette").style("margin-top: 12vh"),
        ):
            self._name = ui.input(placeholder="Topic, view, query or screen", on_change=self._show).classes("field")
            self._name.props('outlined dense autofocus aria-label="Jump to"').on("keydown.enter", self._open_first)
            self._results = block("stack tight")

    def open(self) -> None:
        self._name.set_value("")
        self._show()
        self._dialog.open()

    def _open_first(self) -> None:
        if targets := self._matching():
            ui.navigate.to(targets[0][1])

    def _matching(self) -> list[tuple[str, str, str]]:
        """Name, address and kind of what fits, those that begin with the text first."""
        text = (self._name.value or "").lower()
        targets = [(screen.title or "", f"{PATH}{screen.path}", "screen") for screen in screens() if screen.title]
        targets += [(status.name, query_path(status), "query") for status in self._visit.queries()]
        targets += [(topic.name, path_to("topics", topic.name), "topic") for topic in self._visit.topics()]
        fitting = [target for target in targets if text in target[0].lower()]
        fitting.sort(key=lambda target: (not target[0].lower().startswith(text), len(target[0])))
        return fitting[: self.SHOWN_MAX]

    def _show(self) -> None:
        self._results.clear()
        with self._results:
            for name, path, kind in self._matching():
                with ui.element("a").props(f'href="{path}"'):
                    ui.label(name).classes("grow")
                    ui.label(kind).classes("quiet small")
