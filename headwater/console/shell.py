"""The frame of every page: navigation, the bar on top, the jump box, the panel that explains; and who may come in."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import app as pages
from nicegui import context as page_context
from nicegui import ui

from headwater.console.alerts.badge import follow
from headwater.console.context import Context, context
from headwater.console.history import History
from headwater.console.kit import why
from headwater.console.kit.layout import block
from headwater.console.kit.live import arriving_filled
from headwater.console.kit.words import span
from headwater.console.login import LOGO, ROOT, add_login, version
from headwater.console.pages import GROUPS, Screen, screens
from headwater.console.queries.list_page import address_of
from headwater.console.sql.statements import stop_all
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.services.callers import LOCAL, Caller
from headwater.services.queries import is_visible


@cache
def declare_pages() -> None:
    """Make pages of all screens; once per process."""
    for one in screens():
        ui.page(one.path, title=f"{one.title or 'Headwater'} · Headwater", language="en-US", response_timeout=20.0)(
            _page(one)
        )
    add_login(pages)
    pages.on_shutdown(stop_all)


def _page(one: Screen) -> Callable[..., Any]:
    """The function that NiceGUI calls: the screen's own inside the frame, with the request in front."""
    signature = inspect.signature(one.build)
    given = [parameter for name, parameter in signature.parameters.items() if name != "visit"]

    # Any: what the path and the query string hold.
    async def page(request: Request, **arguments: Any) -> Any:
        visitor = request.session["id"]
        caller = context().caller(visitor)
        if caller is None:  # the door has let it through a moment ago
            return RedirectResponse(f"{ROOT}/login")
        visit = Visit(caller=caller, dark=request.cookies.get("headwater_theme") == "dark")
        _head()
        _whole_addresses()
        async with arriving_filled():
            with _frame(one, visit):
                _leave_with(visitor, caller)
                try:
                    result = one.build(visit, **arguments)
                    if inspect.isawaitable(result):
                        await result
                except HeadwaterError as error:
                    _trouble(error)
        return None

    request = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request)
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in given]
    page.__signature__ = signature.replace(parameters=[request, *keyword])  # type: ignore[attr-defined]  # FastAPI reads it
    page.__annotations__ = {"request": Request, **{one.name: one.annotation for one in keyword}}
    return page


def _whole_addresses() -> None:
    """Let `ui.navigate.to` take addresses as links have them: NiceGUI would put the mount's path before them once more."""
    client = page_context.client
    inner = client.open

    def go(target: Callable[..., Any] | str, new_tab: bool = False) -> None:
        inner(target.removeprefix(ROOT) or "/" if isinstance(target, str) else target, new_tab)

    client.open = go  # type: ignore[method-assign]


def _leave_with(visitor: str, caller: Caller) -> None:
    """Close this page when its visitor has logged out, or the token is revoked; the door hears nothing of it any more."""
    client = page_context.client

    async def look() -> None:
        if context().caller(visitor) != caller:
            watch.deactivate()
            ui.navigate.to(f"{ROOT}/login")
            await asyncio.sleep(1.0)
            client.delete()

    watch = ui.timer(2.0, look, immediate=False)


def _head() -> None:
    ui.add_head_html(f'<script src="{ROOT}/static-headwater/console.js?{version()}"></script>')
    ui.add_head_html(f'<link rel="stylesheet" href="{ROOT}/static-headwater/console.css?{version()}">')
    ui.dark_mode(None)


def _trouble(error: HeadwaterError) -> None:
    # Where the page had begun, it has its heading.
    has_heading = any("hw-head" in element.classes for element in page_context.client.elements.values())
    tag = "h2" if has_heading else "h1"
    with block("note bad").props('role="alert"'), block("stack tight"):
        ui.html(f"<{tag}>{type(error).__name__}</{tag}>", sanitize=False)
        ui.label(str(error))


def _frame(one: Screen, visit: Visit) -> Any:
    for element in page_context.client.elements.values():
        if element.tag == "q-page":
            element.props('role="presentation"')  # Quasar makes it a second `main` around ours
    ui.html('<a class="skip" href="#page">Skip to the page</a>', sanitize=False)
    with block("hw"):
        _navigation(one, visit)
        _bar(visit)
        main = ui.element("main").classes("hw-page").props('id="page" tabindex="-1"')
    why.panel()
    return main


def _navigation(current: Screen, visit: Visit) -> None:
    with ui.element("nav").classes("hw-nav").props('aria-label="Screens"'):
        ui.html(f'<a class="hw-brand" href="{ROOT}/">{LOGO}Headwater</a>', sanitize=False)
        for group in GROUPS:
            members = [one for one in screens() if one.group == group and one.title]
            if group and members:
                with block("group"):
                    ui.label(group)
            for one in members:
                link = _item(one, is_on=one.path in (current.path, current.under))
                if one.path == "/alerts":
                    with link:
                        follow(visit, ui.label("").classes("pill bad count"))


def _item(one: Screen, *, is_on: bool) -> ui.element:
    hint = f"g {one.key}" if one.key else ""
    link = ui.element("a").classes(f"item{' on' if is_on else ''}")
    link.props(
        f'href="{ROOT}{one.path}" data-key="{one.key}" title="{hint}"' + (' aria-current="page"' if is_on else "")
    )
    with link:
        ui.icon(one.icon).props('aria-hidden="true"')
        ui.label(one.title or "")
    return link


def _bar(visit: Visit) -> None:
    with ui.element("header").classes("hw-bar"):
        _tool("menu", "Open the navigation", "headwater.toggleNav()").classes("only-narrow")
        with block("crumbs"):
            ui.label(context().log.address).classes("only-wide").tooltip("The log that is served")
        block("grow")
        _liveness(visit)
        palette = Palette(context(), visit)
        ui.button("Jump to", icon="search", on_click=palette.open).classes("btn").props("flat data-jump no-caps")
        _tool("contrast", "Light or dark", "headwater.toggleTheme()")
        _shortcuts()
        if visit.caller != LOCAL:
            _who(visit.caller)


def _who(caller: Caller) -> None:
    ui.label(caller.name).classes("pill plain only-wide").tooltip(", ".join(str(scope) for scope in caller.scopes))
    with ui.element("form").props(f'method="post" action="{ROOT}/logout"'):
        ui.button(icon="logout").classes("btn ghost icon").props('flat type="submit" aria-label="Log out"').tooltip(
            "Log out"
        )


def _tool(icon: str, label: str, script: str) -> ui.button:
    made = ui.button(icon=icon).classes("btn ghost icon").props(f'flat aria-label="{label}"').tooltip(label)
    made.on("click", js_handler=f"() => {script}")
    return made


def _liveness(visit: Visit) -> None:
    """A dot that says whether what the page shows is of now."""
    with block("row-flex small quiet").props('role="status"'):
        dot = ui.element("span").classes("live-dot")
        label = ui.label("live").classes("only-wide")

    def show() -> None:
        told = liveness_told(context().history, visit.caller)
        dot.classes(add="" if told == "live" else "off", remove="off" if told == "live" else "")
        label.set_text(told)

    ui.timer(2.0, show)


def liveness_told(history: History, caller: Caller) -> str:
    """Whether the numbers are of now, in a few words."""
    if seconds := history.stale_seconds():
        return f"{span(seconds)} old"
    if history.silent:
        return f"{history.silent[0] if caller.may('read', '*') else 'an app'} does not answer"
    return "live"


def _shortcuts() -> None:
    with ui.dialog().props('aria-label="All keys"') as dialog, block("card narrow"):
        ui.html("<h2>Keys</h2>", sanitize=False)
        rows = [("Ctrl K", "jump to a topic, view or query"), ("/", "search on this page"), ("?", "these keys")]
        rows += [(f"g {one.key}", one.title or "") for one in screens() if one.key]
        for keys, meaning in rows:
            with block("row-flex"):
                ui.html("".join(f"<kbd>{key}</kbd> " for key in keys.split(" ")), sanitize=False).style("width: 96px")
                ui.label(meaning)
    button = ui.button(icon="keyboard", on_click=dialog.open).classes("btn ghost icon only-wide")
    button.props('flat data-help aria-label="Keys"').tooltip("Keys")


class Palette:
    """The box that jumps to anything by its name."""

    SHOWN_MAX = 12

    def __init__(self, known: Context, visit: Visit) -> None:
        self._known = known
        self._visit = visit
        with (
            ui.dialog().props('position=top aria-label="Go anywhere"') as self._dialog,
            block("hw-palette").style("margin-top: 12vh"),
        ):
            self._box = ui.input(placeholder="Topic, view, query or screen", on_change=self._show).classes("field")
            self._box.props('outlined dense autofocus aria-label="Jump to"').on("keydown.enter", self._first)
            self._found = block("stack tight")

    def open(self) -> None:
        self._box.set_value("")
        self._show()
        self._dialog.open()

    def _first(self) -> None:
        if found := self._matching():
            ui.navigate.to(found[0][1])

    def _matching(self) -> list[tuple[str, str, str]]:
        text = (self._box.value or "").lower()
        every = [(one.title or "", f"{ROOT}{one.path}", "screen") for one in screens() if one.title]
        every += [
            (one.name, address_of(one), "query")
            for one in self._known.history.statuses
            if is_visible(one, self._visit.caller)
        ]
        every += [
            (name, f"{ROOT}/topics/{quote(name, safe='')}", "topic")
            for name in self._known.history.topics
            if self._visit.caller.sees(name)
        ]
        fit = [one for one in every if text in one[0].lower()]
        return sorted(fit, key=lambda one: (not one[0].lower().startswith(text), len(one[0])))[: self.SHOWN_MAX]

    def _show(self) -> None:
        self._found.clear()
        with self._found:
            for name, path, kind in self._matching():
                with ui.element("a").props(f'href="{path}"'):
                    ui.label(name).classes("grow")
                    ui.label(kind).classes("quiet small")
