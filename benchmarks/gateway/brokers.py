"""MQTT through a broker, and ZeroMQ without one, each beside a plain consumer that keeps nothing: the ratio says what durability costs."""

from __future__ import annotations

import time

import orjson

from benchmarks.gateway import consumers, senders
from benchmarks.gateway.children import Child, child, gateway
from benchmarks.gateway.measure import Load, delays_of
from benchmarks.harness import Bench, Result, Sample, median_cpu_rate, median_rate
from tests.servers import Mosquitto, mosquitto_process

ROUNDS = 3


def _stamp(payload: object) -> float:
    assert isinstance(payload, bytes)
    return float(orjson.loads(payload)["at"])


def mqtt_in(bench: Bench) -> list[Result]:
    """How fast what waits in a broker is taken: QoS 1, each message acknowledged when its row is durable."""
    count = bench.size(100_000, 1_000)
    with mosquitto_process() as broker:
        samples = {
            "ours": [_mqtt_ours(bench, broker, count) for _ in range(bench.size(ROUNDS, 1))],
            "plain": [_mqtt_plain(broker, count) for _ in range(bench.size(ROUNDS, 1))],
        }
        load = Load(
            kind="mqtt-in",
            sender="mqtt",
            topic="mqtt",
            column="payload",
            settings={"url": broker.url, "filters": "bench/#", "client_id": "delay"},
            stamp=_stamp,
        )
        p50, p99 = delays_of(bench, load, bench.size(5_000, 500))
    note = "messages that wait in mosquitto, QoS 1; the peer is paho with a callback that counts"
    return [_result("mqtt_in", samples, p50, p99, peer="paho", note=note)]


def _mqtt_ours(bench: Bench, broker: Mosquitto, count: int) -> Sample:
    settings = {"url": broker.url, "filters": "bench/#", "client_id": "ours"}
    with bench.scratch("mqtt") as folder:
        with gateway(folder / "log", "mqtt-in", **settings) as first:  # the broker has its session from now on
            first.ask("start")
            first.ask("stop")
        _publish(broker, count)
        with gateway(folder / "log", "mqtt-in", **settings) as receiver:
            began, cpu = time.perf_counter(), receiver.cpu_seconds
            receiver.ask("start")
            counters = receiver.ask(f"until {count}")
            return Sample(counters["appended"], time.perf_counter() - began, receiver.cpu_seconds - cpu)


def _mqtt_plain(broker: Mosquitto, count: int) -> Sample:
    with child("mqtt", broker.url, module=consumers.MODULE) as plain:
        plain.ask("subscribe")
        _publish(broker, count)
        cpu = plain.cpu_seconds
        done = plain.ask(f"until {count}")
        return Sample(done["received"], done["seconds"], plain.cpu_seconds - cpu)


def _publish(broker: Mosquitto, count: int) -> None:
    with child("mqtt", broker.url, count, 0, module=senders.MODULE) as source:
        source.ask("go")


def zeromq_in(bench: Bench) -> list[Result]:
    """PUSH to PULL: the sender waits when the queues are full."""
    count = bench.size(300_000, 5_000)
    settings = {"addresses": "tcp://127.0.0.1:*", "bind": "true", "pattern": "pull"}

    def ours() -> Sample:
        with bench.scratch("zeromq") as folder, gateway(folder / "log", "zeromq-in", **settings) as receiver:
            return _pushed(receiver, receiver.ask("start"), count)

    def plain() -> Sample:
        with child("zeromq", "tcp://127.0.0.1:*", module=consumers.MODULE) as receiver:
            return _pushed(receiver, receiver.first, count)

    samples = bench.interleave("zeromq", {"ours": ours, "plain": plain}, rounds=bench.size(ROUNDS, 1))
    load = Load(kind="zeromq-in", sender="zeromq", topic="zeromq", column="payload", settings=settings, stamp=_stamp)
    p50, p99 = delays_of(bench, load, bench.size(5_000, 500))
    note = "PUSH to PULL over TCP; the peer is a loop of pyzmq that counts"
    return [_result("zeromq_in", samples, p50, p99, peer="pyzmq", note=note)]


def _pushed(receiver: Child, address: str, count: int) -> Sample:
    with child("zeromq", address, count, 0, module=senders.MODULE) as source:
        began, cpu = time.perf_counter(), receiver.cpu_seconds
        source.begin("go")
        receiver.ask(f"until {count}")
        seconds, cpu = time.perf_counter() - began, receiver.cpu_seconds - cpu
        source.answer()
    return Sample(count, seconds, cpu)


def _result(name: str, samples: dict[str, list[Sample]], p50: float, p99: float, *, peer: str, note: str) -> Result:
    return Result(
        name=name,
        value=median_rate(samples["ours"]),
        unit="events/s",
        peer=peer,
        peer_value=median_rate(samples["plain"]),
        p50=p50,
        p99=p99,
        more={"per_cpu_second": median_cpu_rate(samples["ours"])},
        note=note,
    )
