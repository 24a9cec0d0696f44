"""`python -m benchmarks.queue`: work queues beside RabbitMQ and Redis Streams, scheduled messages, and deep queues."""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Part, main
from benchmarks.queue.rates import latency, rates
from benchmarks.queue.sizes import delay, depth

PARTS: dict[str, Part] = {
    "put_take_ack": partial(rates, clients=1),
    "put_take_ack_2": partial(rates, clients=2),
    "latency": latency,
    "delay": delay,
    "depth": depth,
}

if __name__ == "__main__":
    main("queue", PARTS)
