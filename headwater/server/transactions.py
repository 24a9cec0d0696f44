"""Transactions over HTTP: rows of many requests that readers see all at once or never.

An open transaction is held by the server; what it holds is forgotten when the server ends, or when nobody has used it
for a while. A prepared one is durable, and can be committed by its id also after that. Committing twice is committing
once, so that a client whose answer was lost may ask again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Query, Request

from headwater.errors import TransactionFinished, TransactionNotFound
from headwater.log import Appended, Transaction
from headwater.log.remote.wire import appended_to_json
from headwater.server.bodies import rows_of
from headwater.server.forms import BIG_MAX, Begin, Commit
from headwater.server.groups import check_offsets
from headwater.server.rows import ROWS_BODY
from headwater.server.service import Kept, Service, caller_of
from headwater.server.tokens import Caller


@dataclass(kw_only=True)
class Open:
    """A transaction that the server holds, and what has become of it."""

    transaction: Transaction
    owner: str
    appended: dict[str, Appended] | None = None
    outcome: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Transactions:
    """The transactions that the server holds."""

    def __init__(self, service: Service) -> None:
        self._log = service.log
        settings = service.settings
        self._open: Kept[Open] = Kept(count_max=settings.transactions_max, seconds_max=settings.transaction_seconds_max)

    def begin(self, asked: Begin, caller: Caller) -> Open:
        made = self._log.transaction(asked.producer, epoch=asked.epoch, sequence=asked.sequence)
        found = Open(transaction=made, owner=caller.name)
        self._open.put(made.id, found, evict=False)
        return found

    def get(self, identity: str, caller: Caller) -> Open:
        """One that is held; those of others are as if they were not there."""
        found = self._open.get(identity)
        if found is None or found.owner != caller.name:
            raise TransactionNotFound(transaction=identity)
        return found

    def commit(self, identity: str, caller: Caller) -> dict[str, Appended]:
        found = self._open.get(identity)
        if found is None or found.owner != caller.name:
            caller.require("admin", "*")
            return self._log.commit(identity)  # prepared by somebody who has gone
        with found.lock:
            if found.outcome == "prepared":
                return self._log.commit(identity)
            if found.outcome == "rolled back":
                raise TransactionFinished(transaction=identity, outcome=found.outcome)
            if found.appended is None:
                found.appended = found.transaction.commit()
                found.outcome = "committed"
            return found.appended

    def rollback(self, identity: str, caller: Caller) -> None:
        found = self._open.get(identity)
        if found is None or found.owner != caller.name:
            caller.require("admin", "*")
            self._log.rollback(identity)
            return
        with found.lock:
            if found.outcome == "prepared":
                self._log.rollback(identity)
            elif not found.outcome:
                found.transaction.rollback()
                found.outcome = "rolled back"
            elif found.outcome == "committed":
                raise TransactionFinished(transaction=identity, outcome=found.outcome)


def router(service: Service, transactions: Transactions) -> APIRouter:
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
        caller_of(request).require("admin", "*")
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
            found.transaction.commit_offsets(group, asked.topic, asked.offsets)

    @routes.post("/{transaction}/prepare")
    def prepare(request: Request, transaction: str) -> dict[str, str]:
        """Make it durable without showing it."""
        found = transactions.get(transaction, caller_of(request))
        with found.lock:
            if found.outcome != "prepared":  # an answer that was lost is asked for again
                found.transaction.prepare()
                found.outcome = "prepared"
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
