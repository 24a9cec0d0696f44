"""Changes of alerts, waited for over HTTP without a thread for each caller that waits."""

from __future__ import annotations

import time
from functools import partial

import anyio
from fastapi import APIRouter, Query, Request

from headwater.alerts.store import HISTORY_TOPIC
from headwater.http.forms import BIG_MAX
from headwater.log.embedded import local_log
from headwater.services.alerts import Alerts
from headwater.services.host import Host, caller_of
from headwater.services.json_form import to_json

#: How long a request that waits sleeps before it looks again by itself.
LOOK_AGAIN_SECONDS = 1.0


def router(host: Host) -> APIRouter:
    """The route of `Alerts.changes`, in place of the one that follows from its signature."""
    routes = APIRouter()

    @routes.get("/alerts/changes", include_in_schema=False)
    async def changes(
        request: Request,
        after: int | None = Query(default=None, ge=0, le=BIG_MAX),
        wait_seconds: float = Query(default=0.0, ge=0, le=3_600),
    ) -> object:
        service = Alerts(host, caller_of(request))
        deadline = time.monotonic() + host.seconds(wait_seconds)
        answer = await host.run(partial(service.changes, after))
        while after is not None and not answer.changes and not host.closing:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            await _wait(host, min(left, LOOK_AGAIN_SECONDS))
            answer = await host.run(partial(service.changes, answer.next))
        return to_json(answer)

    return routes


async def _wait(host: Host, seconds: float) -> None:
    """Sleep until the history goes on; no thread waits meanwhile."""
    if not await host.run(lambda: host.log.topics(HISTORY_TOPIC, internal=True)):
        await anyio.sleep(seconds)
        return
    path = local_log(host.log).handle(HISTORY_TOPIC).state.path
    with host.bell.waiting({path: "rows"}) as waiter:
        await waiter.wait(seconds=seconds)
