"""Alerts over HTTP: rules, how they stand, what fired when, and a test of who is told."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from headwater.alerts import Change, Delivery, Listener, Rule, Summary, Watcher
from headwater.alerts.book import HISTORY_TOPIC
from headwater.server.forms import BIG_MAX, Form
from headwater.server.service import Service, caller_of
from headwater.server.tokens import EVERY, Caller

#: How long a request that waits sleeps before it looks again by itself.
LOOK_AGAIN_SECONDS = 1.0
CHANGES_MAX = 1_000


class RuleForm(Form):
    """A rule; what is not given is as the reference says of `Rule`."""

    kind: Literal["lag", "watermark_delay", "dead_letters", "query_down", "view"]
    group: str | None = None
    topic: str | None = None
    query: str | None = None
    sql: str | None = None
    key: list[str] = []
    threshold: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    unit: Literal["rows", "seconds"] = "rows"
    for_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    severity: Literal["info", "warning", "critical"] = "warning"
    webhooks: list[str] = []
    emails: list[str] = []
    browser: bool = True
    enabled: bool = True
    snoozed_until_us: int | None = Field(default=None, ge=0, le=BIG_MAX)
    note: str = ""


class Snooze(Form):
    """Until when nobody is told, in microseconds since 1970; null tells again at once."""

    until_us: int | None = Field(ge=0, le=BIG_MAX)


def router(service: Service, watcher: Watcher) -> APIRouter:
    """The routes of alerts."""
    routes = APIRouter(prefix="/alerts", tags=["alerts"])
    _reading(routes, service, watcher)
    _changing(routes, watcher)
    return routes


def _reading(routes: APIRouter, service: Service, watcher: Watcher) -> None:
    @routes.get("")
    def listed(request: Request) -> dict[str, Any]:
        """All rules with how they stand, and whether this process or any other looks at them."""
        caller = caller_of(request)
        caller.require("read", EVERY)
        return {
            "watching": watcher.is_watching,
            "watched": watcher.is_watched(),
            "looked_at_us": watcher.looked_us,
            "rules": [_summary(one, caller) for one in watcher.states()],
        }

    @routes.get("/history")
    def history(
        request: Request,
        rule: str | None = None,
        state: Annotated[list[str] | None, Query()] = None,
        since_us: int | None = Query(default=None, ge=0, le=BIG_MAX),
        limit: int = Query(default=100, ge=1, le=CHANGES_MAX),
    ) -> dict[str, Any]:
        """Changes of states, newest first, with who was told and how that went."""
        caller = caller_of(request)
        caller.require("read", EVERY)
        found = watcher.history(rule=rule, since_us=since_us, limit=limit, states=state or ())
        return {"changes": _with_deliveries(watcher, found, caller)}

    @routes.get("/changes")
    async def changes(
        request: Request,
        after: int | None = Query(default=None, ge=0, le=BIG_MAX),
        seconds: float = Query(default=0.0, ge=0, le=3_600),
    ) -> dict[str, Any]:
        """What browsers are to show, from a place on: waits for so long if there is nothing yet.

        Without `after` it only says where the history ends now, to go on from there.
        """
        caller_of(request).require("read", EVERY)
        listener = await service.run(lambda: watcher.listen(after=after))
        found = [] if after is None else await _heard(service, listener, service.seconds(seconds))
        return {"changes": [asdict(one) for one in found], "next": listener.position}

    @routes.get("/rules/{name}")
    def found(request: Request, name: str) -> dict[str, Any]:
        """One rule, and how it stands."""
        caller = caller_of(request)
        caller.require("read", EVERY)
        return _summary(watcher.state(name), caller)


def _changing(routes: APIRouter, watcher: Watcher) -> None:
    @routes.put("/rules/{name}")
    def put(request: Request, name: str, asked: RuleForm) -> dict[str, Any]:
        """Add a rule, or replace the one of this name; one that cannot be looked at is refused."""
        caller = caller_of(request)
        caller.require("admin", EVERY)
        watcher.put(Rule(name=name, **asked.model_dump()))
        return _summary(watcher.state(name), caller)

    @routes.delete("/rules/{name}", status_code=204)
    def remove(request: Request, name: str) -> None:
        """Take a rule away."""
        caller_of(request).require("admin", EVERY)
        watcher.remove(name)

    @routes.post("/rules/{name}/pause")
    def pause(request: Request, name: str) -> dict[str, Any]:
        """Do not look at a rule until further notice."""
        caller = caller_of(request)
        caller.require("admin", EVERY)
        watcher.pause(name)
        return _summary(watcher.state(name), caller)

    @routes.post("/rules/{name}/resume")
    def resume(request: Request, name: str) -> dict[str, Any]:
        """Look at a rule again."""
        caller = caller_of(request)
        caller.require("admin", EVERY)
        watcher.pause(name, paused=False)
        return _summary(watcher.state(name), caller)

    @routes.post("/rules/{name}/snooze")
    def snooze(request: Request, name: str, asked: Snooze) -> dict[str, Any]:
        """Tell nobody of a rule until a moment; it is looked at all the while."""
        caller = caller_of(request)
        caller.require("admin", EVERY)
        watcher.snooze(name, until_us=asked.until_us)
        return _summary(watcher.state(name), caller)

    @routes.post("/rules/{name}/test")
    def test(request: Request, name: str) -> dict[str, Any]:
        """Tell everybody whom a rule would tell that this is a test, and say how that went."""
        caller = caller_of(request)
        caller.require("admin", EVERY)
        return {"deliveries": [_delivery(one, caller) for one in watcher.test(name)]}


async def _heard(service: Service, listener: Listener, seconds: float) -> list[Change]:
    deadline = time.monotonic() + seconds
    while not (found := await service.run(listener.poll)):
        left = deadline - time.monotonic()
        if left <= 0 or service.closing:
            break
        await _wait(service, min(left, LOOK_AGAIN_SECONDS))
    return found


async def _wait(service: Service, seconds: float) -> None:
    """Sleep until the history goes on; no thread waits meanwhile."""
    if not await service.run(lambda: service.log.topics(HISTORY_TOPIC, internal=True)):
        import anyio

        await anyio.sleep(seconds)
        return
    path = service.log.handle(HISTORY_TOPIC).state.path
    with service.bell.waiting({path: "rows"}) as waiter:
        await waiter.wait(seconds=seconds)


# -- answers ----------------------------------------------------------------------------------------------------------


# Any: JSON, here and below.
def _summary(summary: Summary, caller: Caller) -> dict[str, Any]:
    told = summary.as_dict()
    if told["rule"] is not None:
        told["rule"]["webhooks"] = [_address(url, caller) for url in told["rule"]["webhooks"]]
    return told


def _with_deliveries(watcher: Watcher, changes: list[Change], caller: Caller) -> list[dict[str, Any]]:
    deliveries = watcher.book.outbox.of(change.id for change in changes)
    return [
        {**asdict(change), "deliveries": [_delivery(one, caller) for one in deliveries[change.id]]}
        for change in changes
    ]


def _delivery(delivery: Delivery, caller: Caller) -> dict[str, Any]:
    told = asdict(delivery)
    told.pop("body")
    return {**told, "target": _address(delivery.target, caller)}


def _address(target: str, caller: Caller) -> str:
    """Who is told. The address of a webhook is often a secret, and shown only to those who may change it."""
    if not target.startswith(("http://", "https://")) or caller.may("admin", EVERY):
        return target
    return "/".join(target.split("/")[:3]) + "/…"
