"""Rows over HTTP: appended and read as Arrow streams, JSON lines, JSON or CloudEvents.

These routes are written by hand: their bodies are rows in a form that headers name, and an append may be repeated by its
`Idempotency-Key`. Scopes are checked before a body is read, and again by the services that they call.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import Response

from headwater.http.bodies import JSON_LINES, Integers, encoded, form_of, rows_of
from headwater.http.receipts import KEPT_SECONDS, KEY_LENGTH_MAX, Receipts, Repeat
from headwater.http.router import not_audited, service_of
from headwater.log import Start
from headwater.log.remote.wire import (
    ARROW,
    MORE_HEADER,
    NEXT_HEADER,
    REPEAT_HEADER,
    REPEAT_SECONDS_HEADER,
    SERVER_HEADER,
    TOLD_HEADER,
    TOPIC_HEADER,
    appended_to_json,
    batches_to_bytes,
    offsets_to_text,
    start_from_text,
)
from headwater.schema.cloudevents import CONTENT_TYPE, CONTENT_TYPE_BATCH
from headwater.services.host import Host, ServerFull
from headwater.services.json_form import INTEGER_MAX, json_schema
from headwater.services.producers import Producers
from headwater.services.route import JSON
from headwater.services.row_pages import BatchPage
from headwater.services.rows import Produced, Rows
from headwater.services.wait import rows_behind
from headwater.units import MIB

_FORMS = {
    JSON_LINES: {"schema": {"type": "string"}, "example": '{"id": 1}\n{"id": 2}\n'},
    JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
    ARROW: {"schema": {"type": "string", "format": "binary"}},
}
_EVENTS = {
    CONTENT_TYPE: {"schema": {"type": "object"}},
    CONTENT_TYPE_BATCH: {"schema": {"type": "array", "items": {"type": "object"}}},
}
#: Rows in a request and in an answer, for the OpenAPI document.
ROWS_BODY = {"requestBody": {"required": True, "content": _FORMS | _EVENTS}}
_ROWS_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows. The header `Headwater-Next` says where to go on, `Headwater-More` whether there is more.",
        "content": _FORMS,
    }
}
_RANGE_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows. `Headwater-Next` and `Headwater-Told` say where to go on, `Headwater-More` whether there is more.",
        "content": {ARROW: _FORMS[ARROW]},
    }
}
_APPENDED_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"description": "The offsets of the rows.", "content": {JSON: {"schema": json_schema(Produced)}}}
}
#: Larger bodies are digested in a thread: in the event loop they would delay other requests.
DIGESTED_AT_ONCE = 64 * 1024
#: What a body counts whose length is not known before it has come.
UNKNOWN_LENGTH = 8 * MIB

Number = Annotated[int | None, Query(ge=-INTEGER_MAX, le=INTEGER_MAX)]
Partitions = Annotated[list[int] | None, Query(max_length=10_000)]
Columns = Annotated[list[str] | None, Query()]


def router(host: Host) -> APIRouter:
    """The routes of rows."""
    routes = APIRouter(tags=["rows"], dependencies=[Depends(not_audited)])
    log, receipts = host.log, Receipts()

    async def bounded(request: Request) -> AsyncIterator[None]:
        """Refuse a body while as many bytes as the server may hold are being appended; one body is never too much."""
        length = request.headers.get("content-length", "")
        size = int(length[:18]) if length.isdecimal() else UNKNOWN_LENGTH
        size_max = host.settings.appended_bytes_max
        if host.appended_bytes and host.appended_bytes + size > size_max:
            raise ServerFull(what="bytes of rows", count_max=size_max, setting="appended_bytes_max")
        host.appended_bytes += size
        try:
            yield
        finally:
            host.appended_bytes -= size

    # Any: arguments of FastAPI's router.
    body_of_rows: dict[str, Any] = {"openapi_extra": ROWS_BODY, "dependencies": [Depends(bounded)]}

    # Any: rows in a shape that `Log.append` takes.
    def rows_in(request: Request, body: bytes, topic: str) -> Any:
        return rows_of(body, request.headers, log.topic(topic), size_max=host.settings.body_bytes_max)

    @routes.post("/topics/{topic}/rows", response_class=Response, responses=_APPENDED_ANSWER, **body_of_rows)
    async def append(
        request: Request,
        topic: str,
        partition: Number = None,
        expected_offset: Number = None,
        expected_key_offset: Number = None,
        producer: str | None = None,
        sequence: Number = None,
        epoch: Number = None,
        sent_at_us: Number = None,
        durable: bool = True,
        idempotency_key: Annotated[str | None, Header(max_length=KEY_LENGTH_MAX)] = None,
        repeat_of: Annotated[str | None, Header(alias=REPEAT_HEADER, max_length=100)] = None,
        repeat_after: Annotated[float, Header(alias=REPEAT_SECONDS_HEADER, ge=0, le=INTEGER_MAX)] = 0.0,
    ) -> Response:
        """Append rows. With a producer and a sequence, appending them again changes nothing.

        With an `Idempotency-Key`, a repeated request within ten minutes gets the first answer; see `/receipts`. The same
        key with other rows is an error (422).
        """
        service = service_of(Rows, host, request)
        service.caller.require("write", topic)
        body = await request.body()

        def work() -> bytes:
            appended = service.append(
                topic,
                rows_in(request, body, topic),
                partition=partition,
                expected_offset=expected_offset,
                expected_key_offset=expected_key_offset,
                producer=None if producer is None else service.caller.own(producer),
                sequence=sequence,
                epoch=epoch,
                sent_at_us=sent_at_us,
                durable=durable,
            )
            return orjson.dumps(appended_to_json(appended))

        if idempotency_key is None:
            return Response(await host.run(work), media_type=JSON)
        repeat = None if repeat_of is None else Repeat(server=repeat_of, seconds=repeat_after)
        key = (service.caller.name, topic, idempotency_key)
        digest = await _digest(host, request, body)
        answer = await receipts.once(key, lambda: host.run(work), digest=digest, repeat=repeat)
        return Response(answer, media_type=JSON, headers={SERVER_HEADER: receipts.server})

    @routes.get("/topics/{topic}/receipts")
    async def server_of_receipts(request: Request, topic: str) -> dict[str, Any]:
        """Read the id of this server, which a repeated append names, until the server is restarted."""
        service_of(Rows, host, request).caller.require("write", topic)
        return {"server": receipts.server, "seconds": KEPT_SECONDS}

    @routes.get("/topics/{topic}/rows", responses=_ROWS_ANSWER, response_class=Response)
    async def read(
        request: Request,
        topic: str,
        start: str = "earliest",
        stop: str | None = None,
        partition: Partitions = None,
        column: Columns = None,
        limit: int = Query(default=1_000, ge=1, le=INTEGER_MAX),
        archived: bool = False,
        wait_seconds: float = Query(default=0.0, ge=0, le=3_600),
        integers: Integers = "number",
        cursor: str | None = Query(default=None, max_length=200),
        topic_id: str | None = None,
        accept: str = Header(default="", include_in_schema=False),
    ) -> Response:
        """Read rows from a position on; with `wait_seconds`, wait for the first if there is none yet."""
        rows, form = service_of(Rows, host, request), form_of(accept)

        def page(begin: Start) -> BatchPage:
            return rows.batches(
                topic,
                start=begin,
                stop=None if stop is None else start_from_text(stop, name="stop"),
                partitions=partition,
                columns=column,
                rows_max=min(limit, host.settings.answer_rows_max),
                bytes_max=host.settings.answer_bytes_max,
                archived=archived,
                ordered=form != ARROW,
                cursor=cursor,
                topic_id=topic_id,
            )

        found = await host.run(lambda: page(start_from_text(start)))
        if not found.batches and wait_seconds and stop is None:
            # From where the first read ended: a start such as `latest` must not move on meanwhile.
            following = found.next
            if await rows_behind(host, {topic: following}, seconds=host.seconds(wait_seconds)):
                found = await host.run(lambda: page(following))
        body = await host.run(lambda: encoded(found.schema, found.batches, form, integers=integers))
        headers = {NEXT_HEADER: offsets_to_text(found.next), MORE_HEADER: "true" if found.more else "false"}
        if found.topic_id:
            headers[TOPIC_HEADER] = found.topic_id
        return Response(body, media_type=form, headers=headers)

    @routes.get("/topics/{topic}/partitions/{partition}/rows", responses=_RANGE_ANSWER, response_class=Response)
    async def read_range(
        request: Request,
        topic: str,
        partition: int,
        start: int = Query(ge=0, le=INTEGER_MAX),
        stop: int = Query(ge=0, le=INTEGER_MAX),
        column: Columns = None,
        since_us: Number = None,
        until_us: Number = None,
        punctuations: bool = False,
        told_start: int = Query(default=0, ge=0, le=INTEGER_MAX),
        told_stop: int | None = Query(default=None, ge=0, le=INTEGER_MAX),
    ) -> Response:
        """Read a range of offsets of one partition as Arrow, for tasks that share a topic between them.

        Stored batches without a row from `since_us` to `until_us` are left out. With `punctuations` these come, too: not
        the first `told_start` of them at `start`, and up to `told_stop` of them at `stop`.
        """
        rows = service_of(Rows, host, request)
        found = await host.run(
            lambda: rows.range(
                topic,
                partition,
                start=start,
                stop=stop,
                columns=column,
                since_us=since_us,
                until_us=until_us,
                punctuations=(told_start, told_stop) if punctuations else None,
                rows_max=host.settings.answer_rows_max,
                bytes_max=host.settings.answer_bytes_max,
            )
        )
        body = await host.run(lambda: batches_to_bytes(found.schema, found.batches))
        headers = {
            NEXT_HEADER: str(found.offset),
            TOLD_HEADER: str(found.told),
            MORE_HEADER: "true" if found.more else "false",
            TOPIC_HEADER: found.topic_id,
        }
        return Response(body, media_type=ARROW, headers=headers)

    @routes.post("/staged/{producer}/{sequence}/rows/{topic}", status_code=201, **body_of_rows)
    async def stage(
        request: Request,
        producer: str,
        sequence: Annotated[int, Path(ge=0, le=INTEGER_MAX)],
        topic: str,
        attempt: str = Query(max_length=150),
    ) -> dict[str, str]:
        """Stage rows that become visible by `/staged/commit`, together with those of other requests."""
        service = service_of(Producers, host, request)
        service.caller.require("write", topic)
        body = await request.body()
        done = await host.run(lambda: service.stage(producer, sequence, attempt, topic, rows_in(request, body, topic)))
        return {"staged": done.staged}

    @routes.post("/transactions/{transaction}/rows/{topic}", status_code=204, **body_of_rows)
    async def append_in_transaction(
        request: Request, transaction: str, topic: str, partition: Number = None, sent_at_us: Number = None
    ) -> None:
        """Add rows to a transaction."""
        service = service_of(Producers, host, request)
        service.caller.require("write", topic)
        body = await request.body()
        await host.run(
            lambda: service.append(
                transaction, topic, rows_in(request, body, topic), partition=partition, sent_at_us=sent_at_us
            )
        )

    return routes


async def _digest(host: Host, request: Request, body: bytes) -> bytes:
    """A digest of an append: of its rows, and of all parameters and headers that change their meaning."""
    headers = sorted(
        (name, value)
        for name, value in request.headers.items()
        if name.startswith(("content-", "ce-"))
        and name != "content-length"  # a proxy may send the same bytes in pieces
    )
    made = hashlib.blake2b(repr((sorted(request.query_params.multi_items()), headers)).encode(), digest_size=16)
    if len(body) <= DIGESTED_AT_ONCE:
        made.update(body)
    else:
        await host.run(lambda: made.update(body))
    return made.digest()
