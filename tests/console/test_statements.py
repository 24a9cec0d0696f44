"""Statements of a page: they end when the page is closed, and delay no other page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headwater.console.kit.live import LOADS, STATEMENTS, read
from headwater.console.sql.statements import Statement, StatementRunner, stop_all
from headwater.log import Log
from headwater.services.host import Host
from headwater.services.settings import Settings
from headwater.services.sql import Sql
from headwater.views.errors import StatementInvalid

ENDLESS = "SELECT count(*) FROM range(1000000000000) AS t(i) WHERE i % 7 = 3"


class Page:
    """A page that a test can close."""

    def __init__(self) -> None:
        self._handlers: list[Callable[..., Any]] = []

    def on_delete(self, handler: Callable[..., Any]) -> None:
        self._handlers.append(handler)

    def close(self) -> None:
        for handler in self._handlers:
            handler()


@dataclass(frozen=True)
class Begun:
    """A service of SQL, and an event that is set once a statement is at work."""

    sql: Sql
    event: threading.Event


@pytest.fixture
def begun(log: Log, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begun]:
    service, event = Sql(Host(log=log, settings=Settings())), threading.Event()
    inner = service.query

    def query(*arguments: Any, stoppable: Callable[[Callable[[], None]], None], **more: Any) -> Any:
        def told(end: Callable[[], None]) -> None:
            stoppable(end)
            event.set()

        return inner(*arguments, stoppable=told, **more)

    monkeypatch.setattr(service, "query", query)
    yield Begun(sql=service, event=event)
    stop_all()


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 60)


def test_a_statement_ends_with_its_page(begun: Begun) -> None:
    page = Page()
    runner = StatementRunner(begun.sql, page)

    async def visit() -> None:
        asked = asyncio.ensure_future(runner.ask(ENDLESS))
        await until(begun.event)
        assert runner.is_busy
        page.close()
        with pytest.raises(StatementInvalid):
            await asyncio.wait_for(asked, 60)

    asyncio.run(visit())
    assert (runner.is_closed, runner.is_busy, runner.stopped) == (True, False, "The page was closed.")


def test_all_statements_end_when_the_server_goes_down(begun: Begun) -> None:
    async def visit() -> None:
        asked = asyncio.ensure_future(StatementRunner(begun.sql, Page()).ask(ENDLESS))
        await until(begun.event)
        stop_all()
        with pytest.raises(StatementInvalid):
            await asyncio.wait_for(asked, 60)

    asyncio.run(visit())


def test_a_statement_that_was_stopped_while_it_waited_is_not_begun(begun: Begun) -> None:
    statement = Statement(ENDLESS, sql=begun.sql)
    statement.stop()
    with pytest.raises(StatementInvalid, match="stopped"):
        statement.run()


def test_pages_read_while_every_place_for_statements_is_taken() -> None:
    release = threading.Event()

    async def visit() -> None:
        taken = [asyncio.ensure_future(read(release.wait, pool=STATEMENTS)) for _ in range(20)]
        assert await asyncio.wait_for(read(lambda: 42), 60) == 42
        release.set()
        await asyncio.gather(*taken)

    asyncio.run(visit())
    assert LOADS is not STATEMENTS
