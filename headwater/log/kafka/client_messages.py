"""Messages as the client library gives them, whose parts are taken when they are needed: most readers need few of them."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from headwater.log.kafka.values.port import Headers, Incoming, Messages

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


class ClientMessages(Messages):
    """Messages that were fetched together."""

    # Any: librdkafka gives bytes, and headers as pairs with bytes; its types say what may be sent.
    def __init__(self, fetched: list[Any]) -> None:
        self._fetched = fetched

    @cached_property
    def offsets(self) -> list[int]:
        return [message.offset() for message in self._fetched]

    @cached_property
    def values(self) -> list[bytes | None]:
        return [message.value() for message in self._fetched]

    @cached_property
    def keys(self) -> list[bytes | None]:
        return [message.key() for message in self._fetched]

    @cached_property
    def headers(self) -> list[Headers] | None:
        headers = [message.headers() for message in self._fetched]
        return [one or () for one in headers] if any(headers) else None

    @cached_property
    def appended_us(self) -> list[int]:
        return [message.timestamp()[1] * 1000 for message in self._fetched]

    def __len__(self) -> int:
        return len(self._fetched)

    @overload
    def __getitem__(self, place: int) -> Incoming: ...
    @overload
    def __getitem__(self, place: slice) -> ClientMessages: ...
    def __getitem__(self, place: int | slice) -> Incoming | ClientMessages:
        if isinstance(place, slice):
            return ClientMessages(self._fetched[place])
        one = self._fetched[place]
        return Incoming(one.offset(), one.value(), one.key(), one.headers() or (), one.timestamp()[1] * 1000)


@contextmanager
def uncollected() -> Iterator[None]:
    """Create many messages without garbage collections among them: they are no garbage yet, and each would look at them again.

    >>> with uncollected():
    ...     gc.isenabled()
    False
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def messages_before(got: list[Message], stop: int) -> tuple[ClientMessages, KafkaError | None]:
    """The messages with offsets before `stop`, up to the first error that is no message."""
    errors = [message.error() for message in got]
    count, error = len(got), None
    if any(errors):
        count, error = next((number, one) for number, one in enumerate(errors) if one is not None)
    found = ClientMessages(got[:count])
    if count and found.offsets[-1] >= stop:
        return found[: bisect_left(found.offsets, stop)], None
    return found, error
