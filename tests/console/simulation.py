"""The console in this process, without a server and without a browser: pages are built, read and pressed as Python objects.

It is NiceGUI's own `User` on the application that `headwater serve` serves, called over ASGI, with its event loop in a
thread, so that tests read as those with a browser. What only a browser does is not seen here: layout, keys, sockets,
scripts. `page.later()` lets time pass: all that is measured, and all that the page shows, is read again at once.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

# Before NiceGUI is imported: it would write its files into the current folder.
os.environ.setdefault("NICEGUI_STORAGE_PATH", os.devnull)

import httpx
from fastapi import FastAPI
from nicegui import Client, background_tasks, core, events, ui
from nicegui import context as page_context
from nicegui.elements.mixins.disableable_element import DisableableElement
from nicegui.elements.mixins.value_element import ValueElement
from nicegui.functions.download import download
from nicegui.functions.navigate import Navigate
from nicegui.functions.notify import notify
from nicegui.testing import User
from nicegui.testing.user_navigate import UserNavigate
from nicegui.testing.user_notify import UserNotify
from nicegui.timer import Timer

from headwater.alerts import Watcher
from headwater.console import PATH, console_for_server
from headwater.console.alerts.badge import shared_alerts
from headwater.console.context import context
from headwater.console.kit import live
from headwater.console.kit.graph import GraphView
from headwater.console.kit.table import Table
from headwater.console.topics.row_list import RowList
from headwater.http.application import application
from headwater.log import Log
from headwater.services.settings import Settings
from headwater.services.tokens import Tokens
from headwater.sourcing import Entities

T = TypeVar("T")
#: It ends a hang; a machine may be slow.
SECONDS_MAX = 240.0
PAUSE_SECONDS = 0.01
ADDRESS = "http://127.0.0.1"


class SimulatedConsole:
    """The pages over one log. NiceGUI knows one set of pages per process, so there is one console at a time."""

    def __init__(self, app: FastAPI, loop: asyncio.AbstractEventLoop) -> None:
        self.app = app
        self._loop = loop
        self._clients: list[httpx.AsyncClient] = []
        self._pages: list[SimulatedPage] = []
        #: What went wrong in a page after it was sent.
        self.errors: list[BaseException] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the pages, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS_MAX)

    def http(self, *, raise_errors: bool = True) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=raise_errors)
        self._clients.append(httpx.AsyncClient(transport=transport, base_url=ADDRESS))
        return self._clients[-1]

    # Any: what httpx takes.
    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send one request as a new visitor without cookies."""
        return self.run(self.http(raise_errors=False).request(method, f"{PATH}{path}", **more))

    def visit(self, token: str = "") -> SimulatedPage:
        """A new visitor, who has logged in if there is a token."""
        page = SimulatedPage(self)
        self._pages.append(page)
        if token:
            answer = self.run(page.user.http_client.post(f"{PATH}/login", data={"token": token}))
            assert answer.status_code == 303, answer.text
        return page

    def open(self, path: str, token: str = "") -> SimulatedPage:
        """A page as a new visitor sees it."""
        return self.visit(token).open(path)

    def page_of(self, client: Client) -> SimulatedPage:
        """Whose page it is."""
        known = [page for page in self._pages if client.id in page.user.opened]
        return next(iter(known or [page for page in self._pages if page.user.is_opening]))

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        for page in list(Client.instances.values()):
            page.delete()


class _Navigate(UserNavigate):
    """Leads the visitor of the page that asks for it; NiceGUI would lead the one who has done something last.

    Where a page leads is kept: the login, for example, is no page of NiceGUI's.
    """

    def __init__(self, user: _User, console: SimulatedConsole) -> None:
        super().__init__(user)
        self._console = console
        self.went_to = ""

    # Any: as NiceGUI declares it.
    def to(self, target: Any, new_tab: bool = False) -> None:
        own = self._console.page_of(page_context.client).navigate
        own.went_to = str(target)
        if not own.went_to.endswith("/login"):
            super(_Navigate, own).to(target, new_tab)


class _Notify(UserNotify):
    """Tells the visitor of the page that has something to say."""

    def __init__(self, console: SimulatedConsole) -> None:
        super().__init__()
        self._console = console

    # Any: as NiceGUI declares it.
    def __call__(self, message: str, **_: Any) -> None:
        self._console.page_of(page_context.client).notices.append(message)


class _User(User):
    """NiceGUI's user, who reads a page when it is whole: it may be sent while a part of it is still read from the disk."""

    #: The ids of all pages that were opened.
    opened: frozenset[str] = frozenset()
    is_opening = False

    async def open(self, path: str, *, clear_forward_history: bool = True) -> Client:
        self.is_opening = True
        try:
            client = await super().open(path, clear_forward_history=clear_forward_history)
            self.opened |= {client.id}
        finally:
            self.is_opening = False
        for task in list(background_tasks.running_tasks):
            if task.get_name().startswith("wait for result of page"):
                await asyncio.wait([task])
        return client

    def _patch_outbox_emit_function(self) -> None:
        """No script runs here; what waits for one gets nothing, at once."""
        client = self._client
        emit = client.outbox._emit

        # Any: a message of NiceGUI's.
        async def emit_and_answer(message: Any) -> None:
            await emit(message)
            _, kind, data = message
            if kind == "run_javascript" and "request_id" in data:
                client.handle_javascript_response({"request_id": data["request_id"], "result": None})

        client.outbox._emit = emit_and_answer  # type: ignore[method-assign]


class SimulatedPage:
    """What one visitor has open."""

    def __init__(self, console: SimulatedConsole) -> None:
        self._console = console
        self.user = _User(console.http())
        self.navigate = _Navigate(self.user, console)
        #: What was said in the corner.
        self.notices: list[str] = []
        self.user.navigate, self.user.notify = self.navigate, _Notify(console)

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self, path: str) -> SimulatedPage:
        self._console.run(self.user.open(f"{PATH}{path}"))
        return self

    @property
    def address(self) -> str:
        """The address of the page, below the console's own."""
        return self.user.back_history[-1].removeprefix(PATH)

    def text(self, within: str = "") -> str:
        """All that is in sight, one line for each element; or what is inside of the part of this name."""
        return self._do(lambda: _text_of(self._part(within)))

    def _text_if_there(self, within: str) -> str:
        return self._do(lambda: "\n".join(_text_of(part) for part in self._parts(within)[:1]))

    def later(self) -> SimulatedPage:
        """Some seconds later: what is measured is measured again, and the page shows it."""
        context().history.measure()
        shared_alerts().forget()

        async def tick() -> None:
            with self._client:
                for timer in [element for element in self._client.elements.values() if isinstance(element, ui.timer)]:
                    if timer.active and timer.callback is not None and not timer._should_stop():
                        await timer._invoke_callback()

        self._console.run(tick())
        return self

    def sees(self, *texts: str, within: str = "") -> SimulatedPage:
        """Wait until all these texts are in sight."""
        for text in texts:
            self._wait(lambda text=text: text in self._text_if_there(within), f"to see {text!r}")  # type: ignore[misc]
        return self

    def sees_not(self, *texts: str, within: str = "") -> SimulatedPage:
        """Wait until none of these texts is in sight."""
        for text in texts:
            self._wait(lambda text=text: text not in self.text(within), f"not to see {text!r}")  # type: ignore[misc]
        return self

    def hears(self, text: str) -> SimulatedPage:
        """Wait until this is said in the corner."""
        self._wait(lambda: any(text in notice for notice in self.notices), f"to hear {text!r}, not {self.notices}")
        return self

    def markup(self) -> str:
        """All HTML that goes into the page as it is, that of tables too."""
        return self._do(lambda: "\n".join(part for element in _seen(self._layout) for part in _markup(element)))

    def row_markup(self, table: str, pattern: str) -> str:
        """The HTML that is drawn in a row that begins with a regular expression."""
        self.sees_row(table, pattern)
        rows = self._do(lambda: self._table(table).props["rows"])
        return "\n".join(part for row in rows if re.match(pattern, _row_text(row)) for part in _drawn(row))

    def underlines(self, *texts: str) -> SimulatedPage:
        """Wait until these are marked as wrong in an editor, and nothing else."""

        def find() -> list[str]:
            editor = self._one(ui.codemirror)
            return [editor.value[mark["from"] : mark["to"]] for mark in editor.decorations]

        self._wait(lambda: self._do(find) == [*texts], f"{texts} to be underlined")
        return self

    def rows(self, table: str) -> list[str]:
        """The rows of a table, as a screen reader reads them."""
        return self._do(lambda: [_row_text(row) for row in self._table(table).props["rows"]])

    def sees_row(self, table: str, pattern: str) -> str:
        """Wait for a row that begins with a regular expression; gives its text."""
        self._wait(lambda: bool(self._fitting(table, pattern)), f"a row {pattern!r} in {table!r}")
        return self._fitting(table, pattern)[0]

    def sees_first(self, table: str, pattern: str) -> SimulatedPage:
        """Wait until the first row of a table begins with a regular expression."""
        self._wait(lambda: any(re.match(pattern, row) for row in self.rows(table)[:1]), f"{pattern!r} as first row")
        return self

    def _fitting(self, table: str, pattern: str) -> list[str]:
        try:
            return [row for row in self.rows(table) if re.match(pattern, row)]
        except AssertionError:  # the table is not there yet
            return []

    def links(self, table: str = "") -> dict[str, str]:
        """Addresses by text: those in a table, or all others on the page."""
        return self._do(lambda: _cell_links(self._table(table)) if table else _links(self._layout))

    def lines(self) -> list[str]:
        """The places of the rows of a topic that are in sight."""
        return self._do(lambda: [str(row["i"]) for row in self._one(RowList).props["rows"]])

    # Any: as the drawing's script gets them.
    def graph(self) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
        """The nodes of a drawing by id, and its edges."""
        props = self._do(lambda: self._one(GraphView).props)
        return {str(node["id"]): node for node in props["nodes"]}, list(props["edges"])

    def pick_node(self, id: str) -> SimulatedPage:
        self._do(lambda: _fire(self._client, self._one(GraphView), "pick", id))
        return self

    def chart(self, label: str) -> str:
        """What a chart draws, as text."""
        return self._do(lambda: str(self._named(label, ui.echart).props["options"]))

    def is_there(self, name: str) -> bool:
        """Whether there is something to press with this name."""
        return self._do(lambda: bool(self._pressable(name)))

    def is_enabled(self, name: str) -> bool:
        return self._do(lambda: _is_enabled(self._pressable(name)[0]))

    # Any: of whatever type the field is.
    def value(self, label: str) -> Any:
        return self._do(lambda: self._field(label).value)

    def dialog(self) -> str:
        """The text of the dialog that is open, "" where none is."""
        return self._do(lambda: "" if (dialog := self._dialog()) is None else _text_of(dialog))

    # -- doing --------------------------------------------------------------------------------------------------------

    def press(self, name: str) -> SimulatedPage:
        """Click on what has this name; while a dialog is open, in the dialog."""
        self._wait(lambda: self.is_there(name) and self.is_enabled(name), f"to press {name!r}")

        def click() -> None:
            [element, *_] = self._pressable(name)
            if isinstance(element, ui.switch | ui.checkbox):
                element.value = not element.value
            _fire(self._client, element, "click", element.props.get("data-preview"))
            for menu in _menus(element):  # in a browser, a menu opens and closes itself
                menu.set_value(not menu.value)

        self._do(click)
        return self

    def write(self, label: str, text: str) -> SimulatedPage:
        """Write into a field, or choose in a select, in place of what is there."""
        self._wait(lambda: self._do(lambda: bool(self._fields(label))), f"for the field {label!r}")

        def put() -> None:
            self._field(label).value = text

        self._do(put)
        return self

    def submit(self, label: str) -> SimulatedPage:
        """Press Enter in a field."""
        self._do(lambda: _fire(self._client, self._field(label), "keydown.enter", self._field(label).value))
        return self

    # Any: what a script sends.
    def send(self, name: str, event: str, arguments: Any) -> SimulatedPage:
        """What a browser sends that may be behind: an event of what has this name, with its arguments."""
        self._do(lambda: _fire(self._client, self._pressable(name)[0], event, arguments))
        return self

    # Any: what the table's script sends.
    def trigger(self, table: str, event: str, arguments: Any) -> SimulatedPage:
        """What the script of a table tells: `sort` with a column, `row` with a key, `act` with both."""
        self._do(lambda: _fire(self._client, self._table(table), event, arguments))
        return self

    def pick(self, table: str, pattern: str) -> SimulatedPage:
        """Click on the row that begins with a regular expression."""
        self.sees_row(table, pattern)
        rows = self._do(lambda: self._table(table).props["rows"])
        [key, *_] = [row["key"] for row in rows if re.match(pattern, _row_text(row))]
        return self.trigger(table, "row", key)

    def act(self, table: str, pattern: str, text: str) -> SimulatedPage:
        """Press the button of this text in a row that begins with a regular expression."""
        self.sees_row(table, pattern)
        rows = self._do(lambda: self._table(table).props["rows"])
        [row, *_] = [row for row in rows if re.match(pattern, _row_text(row))]
        [cell] = [cell for cell in row["cells"] if isinstance(cell, dict) and "action" in cell and cell["text"] == text]
        return self.trigger(table, "act", {"action": cell["action"], "key": row["key"]})

    def pick_line(self, place: str) -> SimulatedPage:
        """Click on a row of a topic."""
        self._wait(lambda: place in self.lines(), f"the row {place}")
        self._do(lambda: _fire(self._client, self._one(RowList), "pick", place))
        return self

    # -- how ----------------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> Client:
        assert self.user.client is not None
        return self.user.client

    @property
    def _layout(self) -> ui.element:
        return self._client.layout

    def _do(self, work: Callable[[], T]) -> T:
        """Do something in the loop and in the place of the page."""

        async def there() -> T:
            with self._client:
                return work()

        return self._console.run(there())

    def _wait(self, holds: Callable[[], bool], expected: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not holds():
            assert time.monotonic() < deadline, f"waited in vain {expected}; the page was:\n{self.text()}"
            time.sleep(PAUSE_SECONDS)

    def _parts(self, name: str) -> list[ui.element]:
        if not name:
            return [self._layout]
        named = [element for element in _seen(self._layout) if name in (_label(element), element.props.get("id"))]
        return [element for element in named if not isinstance(element, ui.button)]

    def _part(self, name: str) -> ui.element:
        parts = self._parts(name)
        assert parts, f"nothing is called {name!r}"
        return parts[0]

    # Any: a type of element.
    def _named(self, name: str, kind: type[Any]) -> Any:
        named = [element for element in _seen(self._layout) if isinstance(element, kind) and _label(element) == name]
        assert named, f"no {kind.__name__} is called {name!r}"
        return named[0]

    def _one(self, kind: type[Any]) -> Any:
        [element] = [element for element in _seen(self._layout) if isinstance(element, kind)]
        return element

    def _table(self, label: str) -> Table:
        tables = [
            element for element in _seen(self._layout) if isinstance(element, Table) and element.props["label"] == label
        ]
        assert tables, f"no table is called {label!r}"
        return tables[0]

    def _dialog(self) -> ui.dialog | None:
        return next(
            (element for element in reversed(list(_seen(self._layout))) if isinstance(element, ui.dialog)), None
        )

    def _pressable(self, name: str) -> list[ui.element]:
        within = self._dialog() or self._layout
        return [
            element
            for element in _seen(within)
            if _can_be_pressed(element) and name in (_label(element), _own_text(element))
        ]

    # Any: a value element of any type.
    def _fields(self, label: str) -> list[ValueElement[Any]]:
        within = self._dialog() or self._layout
        return [
            element for element in _seen(within) if isinstance(element, ValueElement) and _is_called(element, label)
        ]

    # Any: as above.
    def _field(self, label: str) -> ValueElement[Any]:
        [field, *_] = self._fields(label)
        return field


# -- what an element shows --------------------------------------------------------------------------------------------


def _seen(element: ui.element) -> Iterator[ui.element]:
    """What is in sight of an element and of all that is inside of it, in the order of the page."""
    is_closed = isinstance(element, ui.dialog | ui.menu) and not element.value
    if not element.visible or is_closed or isinstance(element, ui.tooltip):
        return
    yield element
    for slot in element.slots.values():
        for child in slot.children:
            yield from _seen(child)


def _text_of(element: ui.element) -> str:
    return "\n".join(text for part in _seen(element) if (text := _own(part)))


def _own(element: ui.element) -> str:
    """The text of an element alone."""
    if isinstance(element, Table):
        rows = [_row_text(row) for row in element.props["rows"]]
        return "\n".join(rows or [str(element.props["none"])])
    if isinstance(element, RowList):
        rows = [f"{row['i']} {row['key']} {row['value']}" for row in element.props["rows"]]
        return "\n".join(rows or [str(element.props["none"])])
    if isinstance(element, ui.html | ui.markdown):
        return _plain(element.content)
    return str(getattr(element, "text", "") or "")


def _markup(element: ui.element) -> list[str]:
    if isinstance(element, Table):
        return [part for row in element.props["rows"] for part in _drawn(row)]
    return [element.content] if isinstance(element, ui.html) else []


# Any: a row as the table's script gets it.
def _drawn(row: dict[str, Any]) -> list[str]:
    return [str(cell["html"]) for cell in row["cells"] if isinstance(cell, dict) and "html" in cell]


def _plain(markup: str) -> str:
    """The text of HTML.

    >>> _plain('<b title="x">a &lt;b&gt;</b> c')
    'a <b> c'
    """
    return html.unescape(re.sub(r"<[^>]*>", "", markup)).strip()


# Any: a row as the table's script gets it.
def _row_text(row: dict[str, Any]) -> str:
    return " ".join(text for cell in row["cells"] if (text := _cell_text(cell)))


def _cell_text(cell: Any) -> str:
    if not isinstance(cell, dict):
        return str(cell)
    if "html" in cell:
        return _plain(cell["html"])
    return " ".join(str(cell[part]) for part in ("text", "under") if cell.get(part))


def _cell_links(table: Table) -> dict[str, str]:
    cells = [cell for row in table.props["rows"] for cell in row["cells"]]
    return {cell["text"]: cell["href"] for cell in cells if isinstance(cell, dict) and "href" in cell}


def _links(element: ui.element) -> dict[str, str]:
    links = {}
    for part in _seen(element):
        if part.tag == "a" and "href" in part.props:
            links[_text_of(part)] = str(part.props["href"])
        elif isinstance(part, ui.html):
            pairs = re.findall(r'<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>', part.content, re.DOTALL)
            links.update({_plain(text): html.unescape(address) for address, text in pairs})
    return links


def _label(element: ui.element) -> str:
    return html.unescape(str(element.props.get("aria-label") or element.props.get("label") or ""))


def _own_text(element: ui.element) -> str:
    return _text_of(element).strip()


def _is_called(element: ui.element, label: str) -> bool:
    return label in (_label(element), str(element.props.get("label", "")), str(element.props.get("placeholder", "")))


def _can_be_pressed(element: ui.element) -> bool:
    is_control = isinstance(element, ui.button | ui.switch | ui.checkbox | ui.menu_item) or element.tag == "button"
    return is_control or any(
        listener.type.partition(".")[0] == "click" for listener in element._event_listeners.values()
    )


def _menus(element: ui.element) -> list[ui.menu]:
    """The menu that a button opens, or that an item closes."""
    inside = [other for slot in element.slots.values() for other in slot.children]
    around = list(element.ancestors()) if isinstance(element, ui.menu_item) else []
    return [other for other in (*inside, *around) if isinstance(other, ui.menu)]


def _is_enabled(element: ui.element) -> bool:
    return not isinstance(element, DisableableElement) or element.enabled


# Any: what a script sends with an event.
def _fire(client: Client, element: ui.element, event: str, arguments: Any = None) -> None:
    """Call what listens to an event, as a message of the browser does."""
    for listener in list(element._event_listeners.values()):
        if listener.type in (event, f"{event}.prevent"):
            told = events.GenericEventArguments(sender=element, client=client, args=arguments)
            events.handle_event(listener.handler, told)


# -- beginning and end ------------------------------------------------------------------------------------------------


_is_on = False


_run_in_loop = Timer._run_in_loop


async def _wait_for_later(timer: Timer) -> None:
    """What a page does every few seconds it does once, and then when a test says so: `SimulatedPage.later`."""
    if timer.interval < 1.0:
        await _run_in_loop(timer)
    elif timer._immediate and await timer._can_start() and timer.active:
        await timer._invoke_callback()


# Any: stands in for a runner, as far as the console asks one.
@contextmanager
def simulated(
    log: Log, runner: Any = None, *, watcher: Watcher | None = None, entities: Sequence[Entities[Any, Any, Any]] = ()
) -> Iterator[SimulatedConsole]:
    """The console of a log, and of an app on it, while the block runs. An error inside of a page fails the test."""
    global _is_on
    assert not _is_on, "another console is open in this process"
    _is_on = True
    tokens = Tokens(log.home, clock=log.clock)
    # Without the API's own routes: they take most of the time, and have tests of their own.
    with patch("headwater.http.application._routers", lambda *_: []):
        app = application(
            log,
            settings=Settings(),
            tokens=tokens,
            watcher=watcher,
            confined=False,  # a test that asks SQL starts nothing
            runner=runner,
            entities=entities,
            **console_for_server(),
        )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="simulated-console", daemon=True)
    console = SimulatedConsole(app, loop)
    lifespan = app.router.lifespan_context(app)
    with (
        # Pages arrive with all that they show, however slow the machine is.
        patch.object(live, "FIRST_LOAD_SECONDS_MAX", SECONDS_MAX),
        # It is measured once, and then when a test says so.
        patch.object(context().history, "start", context().history.measure),
        patch.object(Timer, "_run_in_loop", _wait_for_later),
    ):
        thread.start()
        with patch("gc.get_objects", list):  # NiceGUI looks among all objects for a server, and there is none
            console.run(_entered(lifespan))
        core.app.on_exception(console.errors.append)
        try:
            yield console
        finally:
            core.app._exception_handlers.remove(console.errors.append)
            console.run(console.close())
            console.run(_left(lifespan))
            console.run(_cancelled())
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
            ui.navigate, ui.notify, ui.download = Navigate(), notify, download
            _is_on = False
    for error in console.errors:
        raise error


# Any: a lifespan of Starlette's.
async def _entered(lifespan: Any) -> None:
    await lifespan.__aenter__()


async def _left(lifespan: Any) -> None:
    await lifespan.__aexit__(None, None, None)


async def _cancelled() -> None:
    """End what pages have left to be done."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
