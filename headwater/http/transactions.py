"""Transactions over HTTP: rows of many requests that readers see all at once or never.

The server holds open transactions in memory and drops them when it ends, or after a time without use. A prepared
transaction is durable, and can be committed by its id also after that. A second commit changes nothing, so a client
whose answer was lost may repeat it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Query, Request

from headwater.errors import NotFound
from headwater.http.bodies import rows_of
from headwater.http.forms import BIG_MAX, Begin, Commit
from headwater.http.rows import ROWS_BODY
from headwater.log import Appended, Transaction
from headwater.log.errors import TransactionFinished
from headwater.log.remote.wire import appended_to_json
from headwater.services.callers import EVERY, Caller
from headwater.services.groups import check_offsets
from headwater.services.host import TRY_AGAIN_SECONDS, Host, Kept, ServerFull, caller_of

#: Of so many the end is remembered, for clients whose answer was lost.
ENDED_MAX = 10_000


@dataclass(kw_only=True)
class Open:
    """A transaction that the server holds."""

    transaction: Transaction
    owner: str
    is_prepared: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of a transaction, for a client whose answer was lost."""

    owner: str
    outcome: str
    appended: dict[str, Appended] = field(default_factory=dict)
    was_prepared: bool = False
    """The log itself knows how it ended."""


class Transactions:
    """The transactions that the server holds, and how the last ones ended."""

    def __init__(self, service: Host) -> None:
        self._log = service.log
        settings = service.settings
        self._count_max = settings.transactions_max
        self._open: Kept[Open] = Kept(count_max=settings.transactions_max, seconds_max=settings.transaction_seconds_max)
        self._ended: Kept[Ended] = Kept(count_max=ENDED_MAX, seconds_max=settings.transaction_seconds_max)

    def begin(self, asked: Begin, caller: Caller) -> Open:
        producer = None if asked.producer is None else caller.own(asked.producer)
        made = self._log.transaction(producer, epoch=asked.epoch, sequence=asked.sequence)
        found = Open(transaction=made, owner=caller.name)
        if not self._open.put(made.id, found, evict=False):
            made.rollback()
            raise ServerFull(
                what="open transactions",
                count_max=self._count_max,
                setting="transactions_max",
                seconds=TRY_AGAIN_SECONDS,
            )
        return found

    def get(self, identity: str, caller: Caller) -> Open:
        """One that is open; those of others are as if they were not there."""
        found = self._open.get(identity)
        if found is not None and found.owner == caller.name:
            return found
        ended = self._ended_of(identity, caller)
        if ended is None:
            raise NotFound(kind="prepared transaction", name=identity)
        raise TransactionFinished(transaction=identity, outcome=ended.outcome)

    def commit(self, identity: str, caller: Caller) -> dict[str, Appended]:
        found = self._open.get(identity)
        if found is None or found.owner != caller.name:
            return self._commit_again(identity, caller)
        with found.lock:
            if self._ended_of(identity, caller) is not None:  # by another request, while this one waited
                return self._commit_again(identity, caller)
            appended = self._log.commit(identity) if found.is_prepared else found.transaction.commit()
            self._end(identity, found, "committed", appended)
            return appended

    def rollback(self, identity: str, caller: Caller) -> None:
        found = self._open.get(identity)
        if found is None or found.owner != caller.name:
            self._rollback_again(identity, caller)
            return
        with found.lock:
            if self._ended_of(identity, caller) is not None:
                self._rollback_again(identity, caller)
                return
            if found.is_prepared:
                self._log.rollback(identity)
            else:
                found.transaction.rollback()
            self._end(identity, found, "rolled back")

    def _ended_of(self, identity: str, caller: Caller) -> Ended | None:
        found = self._ended.get(identity)
        return found if found is not None and found.owner == caller.name else None

    def _end(self, identity: str, found: Open, outcome: str, appended: dict[str, Appended] | None = None) -> None:
        """Let go of its rows; only how it ended is remembered."""
        ended = Ended(owner=found.owner, outcome=outcome, appended=appended or {}, was_prepared=found.is_prepared)
        self._ended.put(identity, ended)
        self._open.pop(identity)

    def _commit_again(self, identity: str, caller: Caller) -> dict[str, Appended]:
        ended = self._ended_of(identity, caller)
        if ended is None:
            caller.require("admin", EVERY)  # prepared by another caller, or before the server was restarted
        if ended is None or ended.was_prepared:
            return self._log.commit(identity)
        if ended.outcome != "committed":
            raise TransactionFinished(transaction=identity, outcome=ended.outcome)
        return ended.appended

    def _rollback_again(self, identity: str, caller: Caller) -> None:
        ended = self._ended_of(identity, caller)
        if ended is None:
            caller.require("admin", EVERY)
        if ended is None or ended.was_prepared:
            self._log.rollback(identity)
        elif ended.outcome == "committed":
            raise TransactionFinished(transaction=identity, outcome=ended.outcome)


def router(service: Host, transactions: Transactions) -> APIRouter:
    """The routes of transactions."""
    routes = APIRouter(prefix="/transactions", tags=["transactions"])
    log = service.log

    @routes.post("", status_code=201)
    def begin(request: Request, asked: Begin) -> dict[str, Any]:
        """Begin. With a producer and a sequence it can be repeated without doubling: `committed` says that it was."""
        caller_of(request).require_somewhere("write")
        found = transactions.begin(asked, caller_of(request))
        return {"id": found.transaction.id, "committed": found.transaction.committed}

    @routes.get("/prepared")
    def prepared(request: Request) -> dict[str, list[str]]:
        """The ids of transactions that are durable but neither committed nor rolled back."""
        caller_of(request).require("admin", EVERY)
        return {"transactions": log.prepared()}

    @routes.post("/{transaction}/rows/{topic}", status_code=204, openapi_extra=ROWS_BODY)
    async def append(
        request: Request,
        transaction: str,
        topic: str,
        partition: int | None = Query(default=None, ge=-BIG_MAX, le=BIG_MAX),
    ) -> None:
        """Add rows."""
        caller = caller_of(request)
        caller.require("write", topic)
        found = transactions.get(transaction, caller)
        body = await request.body()

        def work() -> None:
            rows = rows_of(body, request.headers, log.topic(topic), size_max=service.settings.body_bytes_max)
            with found.lock:
                found.transaction.append(topic, rows, partition=partition)

        await service.run(work)

    @routes.post("/{transaction}/offsets/{group}", status_code=204)
    def commit_offsets(request: Request, transaction: str, group: str, asked: Commit) -> None:
        """Commit a group's position together with the rows."""
        caller = caller_of(request)
        caller.require("read", asked.topic)
        found = transactions.get(transaction, caller)
        check_offsets(asked.offsets, log.topic(asked.topic).partitions)
        with found.lock:
            found.transaction.commit_offsets(group, asked.topic, asked.offsets, metadata=asked.metadata)

    @routes.post("/{transaction}/prepare")
    def prepare(request: Request, transaction: str) -> dict[str, str]:
        """Make it durable without showing it."""
        found = transactions.get(transaction, caller_of(request))
        with found.lock:
            if not found.is_prepared:  # an answer that was lost is asked for again
                found.transaction.prepare()
                found.is_prepared = True
        return {"id": transaction}

    @routes.post("/{transaction}/commit")
    def commit(request: Request, transaction: str) -> dict[str, Any]:
        """Show everything at once; says where the rows are, by topic."""
        found = transactions.commit(transaction, caller_of(request))
        return {"topics": {topic: appended_to_json(one) for topic, one in found.items()}}

    @routes.delete("/{transaction}", status_code=204)
    def rollback(request: Request, transaction: str) -> None:
        """Forget the rows."""
        transactions.rollback(transaction, caller_of(request))

    return routes
