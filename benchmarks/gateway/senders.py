"""Senders of the benchmark, each in a process of its own: they begin when they read a line, and say how much was sent in how long.

python -m benchmarks.gateway.senders statsd|syslog|syslog-tcp|udp|zeromq|mqtt|webhook|rows ADDRESS COUNT RATE
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from benchmarks.harness import percentile
from headwater.gateways.signatures import signature

MODULE = "benchmarks.gateway.senders"
SECRET = "a secret of the benchmark"
#: Clients of an HTTP gateway at once.
CONNECTIONS = 32
#: Messages of MQTT that are not acknowledged yet: their numbers have 16 bits, and the client refuses one that is in use.
MESSAGES_MAX = 50_000
#: What one event of each kind is; the number is its time, or its position.
STATSD = b"bench.latency:%d|g"
SYSLOG = b"<14>1 2026-01-31T12:00:00Z web bench 1 - - %d"


def _paced(count: int, rate: float) -> Iterator[int]:
    """The time of each event in nanoseconds, when it is due; as fast as possible with the rate 0."""
    began = time.monotonic()
    for number in range(count):
        if rate:
            left = began + number / rate - time.monotonic()
            if left > 0:
                time.sleep(left)
        yield time.monotonic_ns()


def _datagrams(template: bytes) -> Callable[[str, int, float], dict[str, float]]:
    def send(address: str, count: int, rate: float) -> dict[str, float]:
        parts = urlsplit(address)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.connect((parts.hostname, parts.port))
            began, put = time.perf_counter(), own.send
            if rate:
                for at in _paced(count, rate):
                    put(template % at)
            else:
                some = [template % number for number in range(1_000)]
                for number in range(count):
                    put(some[number % 1_000])
            return {"sent": count, "seconds": time.perf_counter() - began}

    return send


def _syslog_tcp(address: str, count: int, rate: float) -> dict[str, float]:
    parts = urlsplit(address.rpartition(", ")[2])
    with socket.create_connection((parts.hostname, parts.port)) as own:
        began = time.perf_counter()
        if rate:
            for at in _paced(count, rate):
                own.sendall(SYSLOG % at + b"\n")
        else:
            lines = b"".join(SYSLOG % number + b"\n" for number in range(1_000))
            for _ in range(count // 1_000):
                own.sendall(lines)
        return {"sent": count, "seconds": time.perf_counter() - began}


def _udp(address: str, count: int, rate: float) -> dict[str, float]:
    from headwater.gateways import UdpPublisher

    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    publisher = UdpPublisher(parts.hostname, parts.port)
    began = time.perf_counter()
    for at in _paced(count, rate):
        publisher.send(b"%d" % at)
    seconds = time.perf_counter() - began
    publisher.close(linger_seconds=6)  # the receiver asks for what it misses
    return {"sent": count, "seconds": seconds}


def _zeromq(address: str, count: int, rate: float) -> dict[str, float]:
    import zmq

    context = zmq.Context[zmq.Socket[bytes]]()
    own = context.socket(zmq.PUSH)
    own.connect(address)
    began = time.perf_counter()
    for at in _paced(count, rate):
        own.send_multipart([b"bench", b'{"at": %d, "text": "a payload of some length"}' % at])
    seconds = time.perf_counter() - began
    context.destroy(linger=60_000)
    return {"sent": count, "seconds": seconds}


def _mqtt(address: str, count: int, rate: float) -> dict[str, float]:
    import paho.mqtt.client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion

    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(1_000)
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    client.connect(parts.hostname, parts.port)
    client.loop_start()
    began, sent = time.perf_counter(), deque[mqtt.MQTTMessageInfo]()
    for at in _paced(count, rate):
        if len(sent) == MESSAGES_MAX:
            sent.popleft().wait_for_publish(120)
        sent.append(client.publish("bench/d1", b'{"at": %d, "text": "a payload of some length"}' % at, qos=1))
    for each in sent:
        each.wait_for_publish(120)
    seconds = time.perf_counter() - began
    client.disconnect()
    client.loop_stop()
    return {"sent": count, "seconds": seconds}


# -- HTTP -------------------------------------------------------------------------------------------------------------


def _webhook_request(url: str, number: int) -> bytes:
    body = b'{"type": "order.paid", "order": %d, "note": "a body of some length"}' % number
    id, at = f"m{number}", str(int(time.time()))
    signed = signature(SECRET, id=id, timestamp=at, body=body)
    headers = f"webhook-id: {id}\r\nwebhook-timestamp: {at}\r\nwebhook-signature: {signed}\r\n"
    return _post(url, headers, body)


def _rows_request(rows: int) -> Callable[[str, int], bytes]:
    def made(url: str, number: int) -> bytes:
        body = json.dumps([{"id": number * rows + one, "note": "a body of some length"} for one in range(rows)])
        return _post(url, "content-type: application/json\r\n", body.encode())

    return made


def _post(url: str, headers: str, body: bytes) -> bytes:
    parts = urlsplit(url)
    head = f"POST {parts.path or '/'} HTTP/1.1\r\nhost: {parts.netloc}\r\n{headers}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _http(request: Callable[[str, int], bytes]) -> Callable[[str, int, float], dict[str, float]]:
    """Clients with a connection each: the next request follows its answer, or is sent when it is due."""

    def send(url: str, count: int, rate: float) -> dict[str, float]:
        requests = [request(url, number) for number in range(count)]
        latencies: list[float] = []
        began = time.perf_counter()
        asyncio.run(_clients(url, requests, rate, latencies))
        seconds = time.perf_counter() - began
        return {
            "sent": len(latencies),
            "seconds": seconds,
            "p50": percentile(latencies, 0.5),
            "p99": percentile(latencies, 0.99),
        }

    return send


async def _clients(url: str, requests: list[bytes], rate: float, latencies: list[float]) -> None:
    began, next_request = time.monotonic(), iter(enumerate(requests))
    parts = urlsplit(url)

    async def client() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        for number, request in next_request:
            if rate:
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            at = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status, lower = int(head[9:12]), head.lower()
            length = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            if status >= 300:
                raise RuntimeError(head.decode())
            latencies.append((time.perf_counter() - at) * 1e3)
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(client())


SENDERS: dict[str, Callable[[str, int, float], dict[str, float]]] = {
    "statsd": _datagrams(STATSD),
    "syslog": _datagrams(SYSLOG),
    "syslog-tcp": _syslog_tcp,
    "udp": _udp,
    "zeromq": _zeromq,
    "mqtt": _mqtt,
    "webhook": _http(_webhook_request),
    "rows": _http(_rows_request(1)),
    "batch": _http(_rows_request(1_000)),
}

if __name__ == "__main__":
    kind, address, count, rate = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(SENDERS[kind](address, int(count), float(rate))), flush=True)
