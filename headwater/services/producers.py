"""Producers and transactions of writers on other machines.

The server holds open transactions in memory and drops them when it ends, or after a time without use. A prepared
transaction is durable, and can be committed by its id also after that. A second commit changes nothing, so a client
whose answer was lost may repeat it. The name of a producer is the caller's own, see `Caller.own`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Appended, Staged, Transaction
from headwater.log.errors import TransactionFinished
from headwater.services.callers import EVERY
from headwater.services.groups import check_offsets
from headwater.services.host import ExpiringCache, ServerFull
from headwater.services.route import Service, route
from headwater.services.settings import Settings

#: How many outcomes are kept, for clients whose answer was lost.
ENDED_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class ProducerEpoch:
    """A producer, and its new epoch."""

    producer: str
    epoch: int


@dataclass(frozen=True, kw_only=True)
class ProducerSequence:
    """A producer, and its last sequence; -1 for none."""

    producer: str
    sequence: int


@dataclass(frozen=True, kw_only=True)
class TopicSequence(ProducerSequence):
    """The last sequence of a producer in a topic."""

    topic: str


@dataclass(frozen=True, kw_only=True)
class TransactionMetadata:
    """A producer, and the metadata of the last transaction that it has committed, null for none."""

    producer: str
    # Any: JSON.
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class StagedRows:
    """Staged rows, as text that only the caller who staged them can commit, through the same server process."""

    staged: str


@dataclass(frozen=True, kw_only=True)
class TransactionBegun:
    """A new transaction; `committed` if one with its producer and sequence was committed before."""

    id: str
    committed: bool = False


@dataclass(frozen=True, kw_only=True)
class PreparedTransactions:
    """The ids of prepared transactions."""

    transactions: list[str]


@dataclass(frozen=True, kw_only=True)
class TransactionCommitted:
    """Where the rows of a transaction are, by topic."""

    topics: dict[str, Appended] = field(default_factory=dict)


@dataclass(kw_only=True)
class OpenTransaction:
    """A transaction that the server holds."""

    transaction: Transaction
    owner: str
    is_prepared: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True)
class EndedTransaction:
    """The outcome of a transaction, for a client whose answer was lost."""

    owner: str
    outcome: str
    appended: dict[str, Appended] = field(default_factory=dict)
    #: The log itself knows its outcome.
    was_prepared: bool = False


class Producers(Service):
    """Idempotent producers, punctuations and transactions."""

    @route("POST", "/producers/{producer}/open", scope="write", audited=False)
    def open(self, producer: str, *, holder: str | None = None) -> ProducerEpoch:
        """Begin a new epoch of a producer: appends with an older epoch fail from now on."""
        return ProducerEpoch(producer=producer, epoch=self.log.open_producer(self.caller.own(producer), holder=holder))

    @route("GET", "/producers/{producer}", scope="write")
    def committed_sequence(self, producer: str) -> ProducerSequence:
        """Read the sequence of the last transaction that a producer has committed, -1 for none."""
        return ProducerSequence(producer=producer, sequence=self.log.committed_sequence(self.caller.own(producer)))

    @route("GET", "/producers/{producer}/metadata", scope="write")
    def transaction_metadata(self, producer: str) -> TransactionMetadata:
        """Read the metadata of the last transaction that a producer has committed."""
        metadata = self.log.transaction_metadata(self.caller.own(producer))
        return TransactionMetadata(producer=producer, metadata=metadata)

    @route("GET", "/topics/{topic}/producers/{producer}", scope="write:{topic}")
    def last_sequence(self, topic: str, producer: str) -> TopicSequence:
        """Read the highest sequence that a producer has appended to a topic, -1 for none."""
        sequence = self.log.last_sequence(topic, self.caller.own(producer))
        return TopicSequence(topic=topic, producer=producer, sequence=sequence)

    @route("POST", "/topics/{topic}/punctuate", scope="write:{topic}", audited=False)
    def punctuate(self, topic: str, time_us: int, *, producer: str | None = None, partition: int | None = None) -> None:
        """Promise that no row earlier than a time follows."""
        own = None if producer is None else self.caller.own(producer)
        self.log.punctuate(topic, time_us, producer=own, partition=partition)

    @route("POST", "/topics/{topic}/flush", scope="write:{topic}", audited=False)
    def flush(self, topic: str) -> None:
        """Wait until every row written so far is as durable as the topic promises."""
        self.log.flush(topic)

    # -- transactions -------------------------------------------------------------------------------------------------

    @route("POST", "/transactions", scope="write", status=201, audited=False)
    def begin(
        self, *, producer: str | None = None, epoch: int | None = None, sequence: int | None = None
    ) -> TransactionBegun:
        """Begin a transaction. With a producer and a sequence it can be repeated; `committed` says that it was."""
        if sequence is not None and sequence < 0:
            raise ArgumentInvalid(name="sequence", value=sequence, expected="0 or more")
        own = None if producer is None else self.caller.own(producer)
        made = self.log.transaction(own, epoch=epoch, sequence=sequence)
        transactions = self._transactions.open
        if not transactions.put(made.id, OpenTransaction(transaction=made, owner=self.caller.name), evict=False):
            made.rollback()
            raise ServerFull(what="open transactions", count_max=transactions.count_max, setting="transactions_max")
        return TransactionBegun(id=made.id, committed=made.committed)

    @route("GET", "/transactions/prepared", scope="admin:*")
    def prepared(self) -> PreparedTransactions:
        """List the ids of transactions that are durable but neither committed nor rolled back."""
        return PreparedTransactions(transactions=self.log.prepared())

    # Any: rows in a shape that `Log.append` takes.
    def append(
        self, transaction: str, topic: str, rows: Any, *, partition: int | None = None, sent_at_us: int | None = None
    ) -> None:
        """Add rows to a transaction."""
        self.caller.require("write", topic)
        opened = self._opened(transaction)
        with opened.lock:
            opened.transaction.append(topic, rows, partition=partition, sent_at_us=sent_at_us)

    @route("POST", "/transactions/{transaction}/offsets/{group}", scope="read:{topic}", audited=False)
    def commit_offsets(
        self, transaction: str, group: str, topic: str, offsets: dict[int, int], *, metadata: str = ""
    ) -> None:
        """Commit offsets of a group together with the rows."""
        opened = self._opened(transaction)
        check_offsets(offsets, self.log.topic(topic).partitions)
        with opened.lock:
            opened.transaction.commit_offsets(group, topic, offsets, metadata=metadata)

    @route("POST", "/transactions/{transaction}/prepare", audited=False)
    def prepare(self, transaction: str) -> TransactionBegun:
        """Make a transaction durable without showing it to readers."""
        opened = self._opened(transaction)
        with opened.lock:
            if not opened.is_prepared:  # else a repeated call whose answer was lost
                opened.transaction.prepare()
                opened.is_prepared = True
        return TransactionBegun(id=transaction)

    @route("POST", "/transactions/{transaction}/commit", audited=False)
    def commit(self, transaction: str) -> TransactionCommitted:
        """Show all rows of a transaction at once."""
        opened = self._transactions.open.get(transaction)
        if opened is None or opened.owner != self.caller.name:
            return self._commit_again(transaction)
        with opened.lock:
            if self._ended(transaction) is not None:  # by another call, while this one waited
                return self._commit_again(transaction)
            appended = self.log.commit(transaction) if opened.is_prepared else opened.transaction.commit()
            self._end(transaction, opened, "committed", appended)
            return TransactionCommitted(topics=appended)

    @route("DELETE", "/transactions/{transaction}", audited=False)
    def rollback(self, transaction: str) -> None:
        """Drop the rows of a transaction."""
        opened = self._transactions.open.get(transaction)
        if opened is None or opened.owner != self.caller.name:
            self._rollback_again(transaction)
            return
        with opened.lock:
            if self._ended(transaction) is not None:
                self._rollback_again(transaction)
                return
            if opened.is_prepared:
                self.log.rollback(transaction)
            else:
                opened.transaction.rollback()
            self._end(transaction, opened, "rolled back")

    # -- staged rows --------------------------------------------------------------------------------------------------

    # Any: rows in a shape that `Log.append` takes.
    def stage(self, producer: str, sequence: int, attempt: str, topic: str, rows: Any) -> StagedRows:
        """Stage rows of one topic; they become visible by `commit_staged`."""
        self.caller.require("write", topic)
        # The name is new at each call: a client repeats a call whose answer was lost, and never commits the first one.
        unique = f"{attempt}.{secrets.token_hex(4)}"
        with self.log.stage(self.caller.own(producer), sequence=sequence, attempt=unique) as stage:
            stage.append(topic, rows)
            staged = stage.finish()
        return StagedRows(staged=f"{self._signature(staged)} {staged}")

    # Any: metadata are JSON.
    @route("POST", "/staged/commit", scope="write", audited=False)
    def commit_staged(
        self,
        staged: list[str],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> TransactionCommitted:
        """Show all staged rows at once. With a producer and a sequence, committing them again changes nothing."""
        if sequence is not None and (producer is None or sequence < 0):
            raise ArgumentInvalid(name="sequence", value=sequence, expected="0 or more, and a producer along with it")
        own = None if producer is None else self.caller.own(producer)
        appended = self.log.commit_staged(
            [self._verified(one) for one in staged], producer=own, sequence=sequence, epoch=epoch, metadata=metadata
        )
        return TransactionCommitted(topics=appended)

    @route("DELETE", "/staged/{producer}/{sequence}", scope="write", audited=False)
    def discard_attempts(self, producer: str, sequence: int, *, attempt: str) -> None:
        """Delete all rows staged for a sequence by attempts whose names begin with `attempt`."""
        self.log.discard_attempts(self.caller.own(producer), sequence=sequence, attempt=attempt)

    def _signature(self, staged: str) -> str:
        """Bind staged rows to their caller: the text names files, and topics that the caller may write."""
        key = self.host.share("staged", lambda: secrets.token_bytes(32))
        return hmac.new(key, f"{self.caller.name}\n{staged}".encode(), hashlib.sha256).hexdigest()

    def _verified(self, signed: str) -> Staged:
        signature, _, staged = signed.partition(" ")
        if not hmac.compare_digest(signature.encode(), self._signature(staged).encode()):
            raise NotFound(
                kind="staged rows", name=signed[:16], near=" Another caller or server process has staged them."
            )
        return Staged(staged)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _transactions(self) -> _Transactions:
        return self.host.share("transactions", lambda: _Transactions(self.host.settings))

    def _opened(self, transaction: str) -> OpenTransaction:
        """The open transaction of this caller; that of another caller does not exist for this one."""
        opened = self._transactions.open.get(transaction)
        if opened is not None and opened.owner == self.caller.name:
            return opened
        ended = self._ended(transaction)
        if ended is None:
            raise NotFound(kind="prepared transaction", name=transaction)
        raise TransactionFinished(transaction=transaction, outcome=ended.outcome)

    def _ended(self, transaction: str) -> EndedTransaction | None:
        ended = self._transactions.ended.get(transaction)
        return ended if ended is not None and ended.owner == self.caller.name else None

    def _end(
        self, transaction: str, opened: OpenTransaction, outcome: str, appended: dict[str, Appended] | None = None
    ) -> None:
        """Drop the rows, and keep the outcome."""
        ended = EndedTransaction(
            owner=opened.owner, outcome=outcome, appended=appended or {}, was_prepared=opened.is_prepared
        )
        self._transactions.ended.put(transaction, ended)
        self._transactions.open.pop(transaction)

    def _commit_again(self, transaction: str) -> TransactionCommitted:
        ended = self._ended_or_foreign(transaction)
        if ended is None or ended.was_prepared:
            return TransactionCommitted(topics=self.log.commit(transaction))
        if ended.outcome != "committed":
            raise TransactionFinished(transaction=transaction, outcome=ended.outcome)
        return TransactionCommitted(topics=ended.appended)

    def _rollback_again(self, transaction: str) -> None:
        ended = self._ended_or_foreign(transaction)
        if ended is None or ended.was_prepared:
            self.log.rollback(transaction)
        elif ended.outcome == "committed":
            raise TransactionFinished(transaction=transaction, outcome=ended.outcome)

    def _ended_or_foreign(self, transaction: str) -> EndedTransaction | None:
        """The outcome; None, for callers with `admin:*`, if another caller or an earlier server prepared it."""
        ended = self._ended(transaction)
        if ended is None:
            self.caller.require("admin", EVERY)
        return ended


class _Transactions:
    """The transactions that the server holds, and the outcomes of the last ones."""

    def __init__(self, settings: Settings) -> None:
        seconds_max = settings.transaction_seconds_max
        self.open: ExpiringCache[OpenTransaction] = ExpiringCache(
            count_max=settings.transactions_max, seconds_max=seconds_max
        )
        self.ended: ExpiringCache[EndedTransaction] = ExpiringCache(count_max=ENDED_MAX, seconds_max=seconds_max)
