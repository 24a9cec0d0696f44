"""Clients in processes of their own, which begin together.

python -m benchmarks.queue.processes SUBJECT ADDRESS put|take|put_at|take_at COUNT
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from benchmarks.harness import Sample
from benchmarks.queue.clients import CLIENTS
from benchmarks.together import run_together, together

#: Messages a second of `put_at`.
PER_SECOND = 1_000


def run_clients(subject: str, address: str, work: Sequence[tuple[str, int]]) -> tuple[float, list[list[float]]]:
    """Run clients, each with what it does and how often; the seconds until the last has ended, and what each prints."""
    programs = [(subject, address, act, count) for act, count in work]
    seconds, outputs = run_together("benchmarks.queue.processes", programs)
    return seconds, [json.loads(output) for output in outputs]


def put_take_ack(subject: str, address: str, count: int, *, clients: int) -> Sample:
    """Put all messages, then take and acknowledge them, with so many producers and consumers."""
    client = CLIENTS[subject](address)
    client.create()
    client.close()
    each = count // clients
    seconds, _ = run_clients(subject, address, [("put", each)] * clients)
    further, _ = run_clients(subject, address, [("take", each)] * clients)
    return Sample(each * clients, seconds + further, 0.0)


def main() -> None:
    subject, address, act, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    client = CLIENTS[subject](address)
    latencies: list[float] = []

    def taken(body: str) -> None:
        latencies.append((time.monotonic_ns() - int(body)) / 1e6)

    with together():
        match act:
            case "put":
                client.put(count)
            case "take":
                client.take(count)
            case "put_at":
                client.put_at(PER_SECOND, count)
            case "take_at":
                client.take(count, taken)
    print(json.dumps(latencies))
    client.close()


if __name__ == "__main__":
    main()
