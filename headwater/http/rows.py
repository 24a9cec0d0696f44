"""Rows over HTTP: appended, read from any place, and waited for."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from headwater.http.bodies import JSON, JSON_LINES, Integers, encoded, form_of, rows_of
from headwater.http.forms import BIG_MAX, AppendedForm, Punctuation
from headwater.http.receipts import KEPT_SECONDS, KEY_LENGTH_MAX, Receipts, Repeat
from headwater.http.wait import waited
from headwater.log import Start
from headwater.log.remote.wire import (
    ARROW,
    MORE_HEADER,
    NEXT_HEADER,
    REPEAT_HEADER,
    REPEAT_SECONDS_HEADER,
    SERVER_HEADER,
    TOPIC_HEADER,
    appended_to_json,
    offsets_to_text,
    schema_to_text,
    start_from_text,
)
from headwater.schema.cloudevents import CONTENT_TYPE, CONTENT_TYPE_BATCH
from headwater.services.host import Host, caller_of
from headwater.services.row_pages import BatchPage, check_partitions
from headwater.services.rows import Rows

ROWS_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_LINES: {"schema": {"type": "string"}, "example": '{"id": 1}\n{"id": 2}\n'},
            JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
            CONTENT_TYPE: {"schema": {"type": "object"}},
            CONTENT_TYPE_BATCH: {"schema": {"type": "array", "items": {"type": "object"}}},
        },
    }
}
_ROWS_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows. The header `Headwater-Next` says where to go on, `Headwater-More` whether there is more.",
        "content": {
            JSON_LINES: {"schema": {"type": "string"}},
            JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}

#: A larger body would keep the event loop from others for too long.
DIGESTED_AT_ONCE = 64 * 1024

Number = Annotated[int | None, Query(ge=-BIG_MAX, le=BIG_MAX)]


def router(service: Host) -> APIRouter:
    """The routes of rows."""
    routes = APIRouter(prefix="/topics", tags=["rows"])
    log, receipts = service.log, Receipts()

    @routes.post("/{topic}/rows", response_model=AppendedForm, openapi_extra=ROWS_BODY)
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
        repeat_after: Annotated[float, Header(alias=REPEAT_SECONDS_HEADER, ge=0, le=BIG_MAX)] = 0.0,
    ) -> Response:
        """Append rows. With a producer and a sequence, sending them again changes nothing.

        With an `Idempotency-Key`, asking again within ten minutes gives the first answer; see `/receipts`. The same
        key with other rows is refused with 422.
        """
        caller = caller_of(request)
        caller.require("write", topic)  # before the body is read
        body = await request.body()
        # Any: arguments of `append`, each of its own type.
        details: dict[str, Any] = {
            "partition": partition,
            "expected_offset": expected_offset,
            "expected_key_offset": expected_key_offset,
            "producer": None if producer is None else caller.own(producer),
            "sequence": sequence,
            "epoch": epoch,
            "sent_at_us": sent_at_us,
            "durable": durable,
        }

        def work() -> bytes:
            rows = rows_of(body, request.headers, log.topic(topic), size_max=service.settings.body_bytes_max)
            return orjson.dumps(appended_to_json(Rows(service, caller).append(topic, rows, **details)))

        if idempotency_key is None:
            return Response(await service.run(work), media_type=JSON)
        repeat = None if repeat_of is None else Repeat(server=repeat_of, seconds=repeat_after)
        key = (caller.name, topic, idempotency_key)
        digest = await _digest(service, request, body)
        answer = await receipts.once(key, lambda: service.run(work), digest=digest, repeat=repeat)
        return Response(answer, media_type=JSON, headers={SERVER_HEADER: receipts.server})

    @routes.get("/{topic}/receipts")
    async def server_of_receipts(request: Request, topic: str) -> dict[str, Any]:
        """Which server this is, until it is started again: to be named by those who ask for an append again."""
        caller_of(request).require("write", topic)
        return {"server": receipts.server, "seconds": KEPT_SECONDS}

    @routes.get("/{topic}/rows", responses=_ROWS_ANSWER, response_class=Response)
    async def read(
        request: Request,
        topic: str,
        start: str = "earliest",
        stop: str | None = None,
        partition: Annotated[list[int] | None, Query(max_length=10_000)] = None,
        column: Annotated[list[str] | None, Query()] = None,
        limit: int = Query(default=1_000, ge=1, le=BIG_MAX),
        archived: bool = False,
        wait_seconds: float = Query(default=0.0, ge=0, le=3_600),
        integers: Integers = "number",
        cursor: str | None = Query(default=None, max_length=200),
        topic_id: str | None = None,
        accept: str = Header(default="", include_in_schema=False),
    ) -> Response:
        """Read rows from a place on; with `wait_seconds`, wait for the first where there is none yet."""
        rows, form = Rows(service, caller_of(request)), form_of(accept)

        def page(begin: Start) -> BatchPage:
            return rows.batches(
                topic,
                start=begin,
                stop=None if stop is None else start_from_text(stop, name="stop"),
                partitions=partition,
                columns=column,
                limit=min(limit, service.settings.answer_rows_max),
                bytes_max=service.settings.answer_bytes_max,
                archived=archived,
                ordered=form != ARROW,
                cursor=cursor,
                topic_id=topic_id,
            )

        found = await service.run(lambda: page(start_from_text(start)))
        if not found.batches and wait_seconds and stop is None:
            # From where the first look ended: a start such as `latest` must not move on meanwhile.
            following = found.next
            if await waited(service, {topic: following}, seconds=service.seconds(wait_seconds)):
                found = await service.run(lambda: page(following))
        body = await service.run(lambda: encoded(found.schema, found.batches, form, integers=integers))
        headers = {NEXT_HEADER: offsets_to_text(found.next), MORE_HEADER: "true" if found.more else "false"}
        if found.topic_id:
            headers[TOPIC_HEADER] = found.topic_id
        return Response(body, media_type=form, headers=headers)

    @routes.get("/{topic}/positions")
    def positions(
        request: Request,
        topic: str,
        start: str = "earliest",
        stop: str | None = None,
        partition: Annotated[list[int] | None, Query(max_length=10_000)] = None,
        column: Annotated[list[str] | None, Query()] = None,
        archived: bool = False,
    ) -> dict[str, Any]:
        """The offsets that a start and a stop mean now, and the Arrow schema in which rows will come."""
        caller_of(request).require("read", topic)
        check_partitions(log.topic(topic).partitions, topic, partition)
        reader = log.read(
            topic,
            start=start_from_text(start),
            stop=None if stop is None else start_from_text(stop, name="stop"),
            partitions=partition,
            columns=column,
            archived=archived,
        )
        return {
            "start": {str(number): span[0] for number, span in reader.ranges.items()},
            "stop": {str(number): span[1] for number, span in reader.ranges.items()},
            "arrow_schema": schema_to_text(reader.schema),
        }

    @routes.post("/{topic}/punctuate", status_code=204)
    def punctuate(request: Request, topic: str, asked: Punctuation) -> None:
        """Promise that no row earlier than a time follows."""
        caller = caller_of(request)
        caller.require("write", topic)
        producer = None if asked.producer is None else caller.own(asked.producer)
        log.punctuate(topic, asked.time_us, producer=producer, partition=asked.partition)

    @routes.post("/{topic}/flush", status_code=204)
    def flush(request: Request, topic: str) -> None:
        """Wait until every row written so far is as durable as the topic promises."""
        caller_of(request).require("write", topic)
        log.flush(topic)

    @routes.get("/{topic}/producers/{producer}")
    def last_sequence(request: Request, topic: str, producer: str) -> dict[str, Any]:
        """The highest sequence that a producer has appended, -1 for none."""
        caller = caller_of(request)
        caller.require("write", topic)
        return {"topic": topic, "producer": producer, "sequence": log.last_sequence(topic, caller.own(producer))}

    return routes


async def _digest(service: Host, request: Request, body: bytes) -> bytes:
    """What an append asks for, in a few bytes: its rows, and whatever else makes them what they are."""
    told = sorted(
        (name, value)
        for name, value in request.headers.items()
        if name.startswith(("content-", "ce-"))
        and name != "content-length"  # a proxy may send the same bytes in pieces
    )
    made = hashlib.blake2b(repr((sorted(request.query_params.multi_items()), told)).encode(), digest_size=16)
    if len(body) <= DIGESTED_AT_ONCE:
        made.update(body)
    else:
        await service.run(lambda: made.update(body))
    return made.digest()


def producer_router(service: Host) -> APIRouter:
    """Producers, over all topics."""
    routes = APIRouter(tags=["rows"])
    log = service.log

    @routes.post("/producers/{producer}/open")
    def open_producer(request: Request, producer: str, holder: str | None = None) -> dict[str, Any]:
        """Begin a new epoch of a producer: appends with an older epoch fail from now on."""
        caller = caller_of(request)
        caller.require_somewhere("write")
        return {"producer": producer, "epoch": log.open_producer(caller.own(producer), holder=holder)}

    @routes.get("/producers/{producer}")
    def producer(request: Request, producer: str) -> dict[str, Any]:
        """The sequence of the last transaction that a producer has committed, -1 for none."""
        caller = caller_of(request)
        caller.require_somewhere("write")
        return {"producer": producer, "sequence": log.committed_sequence(caller.own(producer))}

    return routes
