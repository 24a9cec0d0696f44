"""How programs put, take and acknowledge: on Headwater, RabbitMQ and Redis, each with the best settings of its client.

Bodies are 100 bytes. All messages are durable, and a `put` has ended when all are confirmed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

import headwater as hw
from headwater.queues import Queue

BODY = "x" * 100
BATCH = 1_000
#: Messages that RabbitMQ has not confirmed, or that a consumer holds.
WINDOW = 1_000
#: One acknowledgement for so many messages.
MULTIPLE = 250
NAME, GROUP = "jobs", "default"

#: Called with the body of each message that was taken.
Taken = Callable[[str], None]


class Client(Protocol):
    """One connection of a producer or a consumer."""

    def create(self) -> None:
        """Make the queue, empty."""

    def put(self, count: int) -> None:
        """Put messages, and return when all are durable."""

    def take(self, count: int, taken: Taken | None = None) -> None:
        """Take and acknowledge messages."""

    def put_at(self, per_second: int, count: int) -> None:
        """Put messages at a steady rate; each body is the time of its call in nanoseconds."""

    def close(self) -> None: ...


class Headwater:
    """The embedded log: every client opens the folder."""

    def __init__(self, address: str) -> None:
        self._log = hw.open(address)
        self._queue: Queue = self._log.queue(NAME)

    def create(self) -> None:
        self._queue.replay("latest")

    def put(self, count: int) -> None:
        for start in range(0, count, BATCH):
            self._queue.put_many([BODY] * min(BATCH, count - start))

    def take(self, count: int, taken: Taken | None = None) -> None:
        while count:
            messages = self._queue.take(min(count, BATCH), wait="60 seconds")
            if taken is not None:
                for message in messages:
                    taken(message.body)
            self._queue.ack_many(messages)
            count -= len(messages)

    def put_at(self, per_second: int, count: int) -> None:
        with self._queue.publisher(linger=0) as publisher:
            for _ in paced(per_second, count):
                publisher.put(str(time.monotonic_ns()))

    def close(self) -> None:
        self._queue.close()
        self._log.close()


class Redis:
    """Streams with a consumer group: a pipeline of XADD, one XREADGROUP and one XACK for each batch."""

    def __init__(self, address: str) -> None:
        import redis

        # Any: the package's own types do not say what its commands return.
        self._redis: Any = redis.Redis(port=int(address), decode_responses=True)
        self._consumer = f"consumer-{time.monotonic_ns()}"

    def create(self) -> None:
        self._redis.delete(NAME)
        self._redis.xgroup_create(NAME, GROUP, mkstream=True)

    def put(self, count: int) -> None:
        for start in range(0, count, BATCH):
            pipeline = self._redis.pipeline(transaction=False)
            for _ in range(min(BATCH, count - start)):
                pipeline.xadd(NAME, {"body": BODY})
            pipeline.execute()

    def take(self, count: int, taken: Taken | None = None) -> None:
        while count:
            answer = self._redis.xreadgroup(
                GROUP, self._consumer, {NAME: ">"}, count=min(count, BATCH), block=60_000, noack=False
            )
            for _, messages in answer:
                if taken is not None:
                    for _, fields in messages:
                        taken(fields["body"])
                self._redis.xack(NAME, GROUP, *(number for number, _ in messages))
                count -= len(messages)

    def put_at(self, per_second: int, count: int) -> None:
        for _ in paced(per_second, count):
            self._redis.xadd(NAME, {"body": str(time.monotonic_ns())})

    def close(self) -> None:
        self._redis.close()


class Pika:
    """pika's asynchronous connection: a window of confirms, a prefetch, and one acknowledgement for many messages."""

    kind = "quorum"

    def __init__(self, address: str) -> None:
        self._port = int(address)

    def create(self) -> None:
        import pika

        connection = pika.BlockingConnection(self._parameters())
        channel = connection.channel()
        channel.queue_delete(NAME)
        channel.queue_declare(NAME, durable=True, arguments={"x-queue-type": self.kind})
        connection.close()

    def put(self, count: int) -> None:
        self._publish(count, lambda: BODY)

    def put_at(self, per_second: int, count: int) -> None:
        self._publish(count, lambda: str(time.monotonic_ns()), per_second=per_second)

    def _publish(self, count: int, body: Callable[[], str], *, per_second: int | None = None) -> None:
        import pika

        properties = pika.BasicProperties(delivery_mode=2)
        sent = confirmed = 0
        open_tags: set[int] = set()
        began = time.monotonic()

        def send(channel: Any) -> None:
            nonlocal sent
            due = count if per_second is None else min(count, int((time.monotonic() - began) * per_second) + 1)
            while sent < due and sent - confirmed < WINDOW:
                sent += 1
                open_tags.add(sent)
                channel.basic_publish("", NAME, body(), properties)

        def on_confirm(channel: Any, frame: Any) -> None:
            nonlocal confirmed
            if frame.method.NAME != "Basic.Ack":
                raise RuntimeError("RabbitMQ refused a message")
            tag = frame.method.delivery_tag
            gone = {each for each in open_tags if each <= tag} if frame.method.multiple else {tag}
            open_tags.difference_update(gone)
            confirmed += len(gone)
            if confirmed == count:
                connection.close()
            else:
                send(channel)

        def tick(channel: Any) -> None:
            send(channel)
            if sent < count:
                connection.ioloop.call_later(0.001, lambda: tick(channel))

        def on_channel(channel: Any) -> None:
            nonlocal began
            channel.confirm_delivery(lambda frame: on_confirm(channel, frame))
            began = time.monotonic()
            if per_second is None:
                send(channel)
            else:
                tick(channel)

        connection = self._connection(on_channel)
        connection.ioloop.start()

    def take(self, count: int, taken: Taken | None = None) -> None:
        left = count

        def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
            nonlocal left
            if not left:  # fetched ahead: these return when the connection is closed
                return
            left -= 1
            if taken is not None:
                taken(body.decode())
            if left % MULTIPLE == 0 or taken is not None:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if not left:
                connection.close()

        def on_channel(channel: Any) -> None:
            channel.basic_qos(prefetch_count=min(WINDOW, count))
            channel.basic_consume(NAME, on_message)

        connection = self._connection(on_channel)
        connection.ioloop.start()

    # Any: pika has no types.
    def _connection(self, on_channel: Callable[[Any], None]) -> Any:
        import pika

        return pika.SelectConnection(
            self._parameters(),
            on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )

    def _parameters(self) -> Any:
        import pika

        return pika.ConnectionParameters("127.0.0.1", self._port, heartbeat=0)

    def close(self) -> None:
        """Each call has closed its connection."""


class PikaClassic(Pika):
    kind = "classic"


class AioPika(Pika):
    """aio-pika: as many publishes at once as the window has."""

    def put(self, count: int) -> None:
        asyncio.run(self._put(count))

    def take(self, count: int, taken: Taken | None = None) -> None:
        asyncio.run(self._take(count, taken))

    async def _put(self, count: int) -> None:
        import aio_pika

        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self._port}/")
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            exchange = channel.default_exchange
            for start in range(0, count, WINDOW):
                await asyncio.gather(
                    *(
                        exchange.publish(
                            aio_pika.Message(BODY.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT), NAME
                        )
                        for _ in range(min(WINDOW, count - start))
                    )
                )

    async def _take(self, count: int, taken: Taken | None) -> None:
        import aio_pika

        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self._port}/")
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=min(WINDOW, count))
            queue = await channel.get_queue(NAME, ensure=False)
            left, done = count, asyncio.Event()

            async def on_message(message: Any) -> None:
                nonlocal left
                if not left:  # fetched ahead: these return when the connection is closed
                    return
                left -= 1
                if taken is not None:
                    taken(message.body.decode())
                if left % MULTIPLE == 0 or taken is not None:
                    await message.ack(multiple=True)
                if not left:
                    done.set()

            await queue.consume(on_message)
            await done.wait()


CLIENTS: dict[str, Callable[[str], Client]] = {
    "ours": Headwater,
    "rabbitmq quorum": Pika,
    "rabbitmq quorum, aio-pika": AioPika,
    "rabbitmq classic": PikaClassic,
    "redis everysec": Redis,
    "redis always": Redis,
}


def paced(per_second: int, count: int) -> Any:
    """The numbers up to `count`, each at its time."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        yield number
