"""Plain consumers that write to nowhere: peers, and receivers of gateways out.

python -m benchmarks.gateway.consumers mqtt|zeromq|webhook ADDRESS
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from urllib.parse import urlsplit

from benchmarks.harness import percentile

MODULE = "benchmarks.gateway.consumers"


def _mqtt(address: str) -> None:
    """`subscribe` makes the session; `until N` counts the messages of the session."""
    import paho.mqtt.client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    print("ready", flush=True)
    for line in sys.stdin:
        received = [0]
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="plain", protocol=mqtt.MQTTv5)

        def count(*_: object, received: list[int] = received) -> None:
            received[0] += 1

        client.on_message = count
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho has no types here
        properties.SessionExpiryInterval = 3_600
        properties.ReceiveMaximum = 1_000
        began = time.perf_counter()
        client.connect(parts.hostname, parts.port, clean_start=False, properties=properties)
        match line.split():
            case ["subscribe"]:
                client.loop(1)
                client.subscribe("bench/#", qos=1)
                client.loop(1)
            case ["until", wanted]:
                while received[0] < int(wanted):
                    client.loop(1)
        print(json.dumps({"received": received[0], "seconds": time.perf_counter() - began}), flush=True)
        client.disconnect()
        client.loop(1)


def _zeromq(address: str) -> None:
    import zmq

    context = zmq.Context[zmq.Socket[bytes]]()
    own = context.socket(zmq.PULL)
    own.bind(address)
    print(bytes(own.getsockopt(zmq.LAST_ENDPOINT)).decode().rstrip("\x00"), flush=True)
    for line in sys.stdin:
        wanted = int(line.split()[1])
        for _ in range(wanted):
            own.recv_multipart()
        print(json.dumps({"received": wanted}), flush=True)
    context.destroy(linger=0)


def _webhook(_: str) -> None:
    """`until N` waits for N requests, and says how long each was on its way, by the time in its row."""
    delays: list[float] = []
    arrived = threading.Condition()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            sent_ns = json.loads(await reader.readexactly(length))["data"]["sent_ns"]
            with arrived:
                delays.append((time.monotonic_ns() - sent_ns) / 1e6)
                arrived.notify()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async def serve() -> None:
        server = await asyncio.start_server(receive, "127.0.0.1", 0)
        print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", flush=True)
        await server.serve_forever()

    threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
    for line in sys.stdin:
        wanted = int(line.split()[1])
        with arrived:
            while len(delays) < wanted and arrived.wait(timeout=120):
                pass
            told = {"received": len(delays), "p50": percentile(delays, 0.5), "p99": percentile(delays, 0.99)}
            delays.clear()
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    {"mqtt": _mqtt, "zeromq": _zeromq, "webhook": _webhook}[sys.argv[1]](sys.argv[2])
