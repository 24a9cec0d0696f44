"""MQTT: a message is acknowledged when its row is durable; a position is committed when the broker has acknowledged the messages."""

from __future__ import annotations

import logging
import ssl
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import lists, sampled_from

import headwater
from headwater.errors import ArgumentInvalid, ColumnUnknown, NotFound
from headwater.gateways import AddressUnusable, GatewayRunner, MqttIn, MqttOut
from headwater.gateways.kinds import gateway_from_text
from headwater.gateways.mqtt_in import Filter, message_of
from headwater.gateways.mqtt_out import unusable_topic
from headwater.log import Log
from tests.conditions import until
from tests.gateways.fake_broker import FakeBroker
from tests.servers import Mosquitto

LEVELS = lists(sampled_from(["a", "b", "sensors", ""]), min_size=1, max_size=4)
QOS1, QOS1_AGAIN = 0x32, 0x3A


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return headwater.open(tmp_path / "log")


def received(topic: str, payload: bytes = b"{}", **more: Any) -> Any:
    return SimpleNamespace(
        **{"topic": topic, "payload": payload, "qos": 1, "retain": False, "dup": False, "properties": None} | more
    )


def taken_in(log: Log, broker: FakeBroker, count: int, **settings: Any) -> GatewayRunner:
    """Run a gateway until it has appended or refused so many messages."""
    runner = GatewayRunner(log, MqttIn(url=broker.url, **settings))
    runner.start()
    until(lambda: runner.status().counters["appended"] + runner.status().counters["rejected"] >= count)
    runner.stop()
    return runner


# -- nothing is started -----------------------------------------------------------------------------------------------


@given(levels=LEVELS)
def test_a_filter_with_names_takes_what_its_subscription_takes(levels: list[str]) -> None:
    from paho.mqtt.client import topic_matches_sub

    topic = "/".join(levels)
    for text in ("sensors/{device}/state", "{a}", "{a}/#", "a/+/{b}", "#", "a/b"):
        one = Filter(text)
        columns = one.columns_of(topic)
        if topic:
            assert (columns is not None) == topic_matches_sub(one.subscription, topic), (text, topic)
        if columns:
            assert set(columns.values()) <= set(levels)


@pytest.mark.parametrize("text", ["", "a/#/b", "a+/b", "{a}#", "a\x00"])
def test_a_filter_that_no_broker_takes_is_refused(text: str) -> None:
    with pytest.raises(ArgumentInvalid, match="filters"):
        MqttIn(filters=(text,))


def test_a_message_is_a_row_with_its_properties() -> None:
    properties = SimpleNamespace(
        UserProperty=[("a", "1"), ("b", "2"), ("a", "3")], ContentType="text/plain", CorrelationData=b"\xff"
    )
    message = message_of(
        received("s/d7/x", b"\x00", qos=0, retain=True, dup=True, properties=properties),
        [Filter("t"), Filter("s/{device}/x")],
        now_us=7,
    )
    assert message.row == {
        "at": 7, "topic": "s/d7/x", "payload": b"\x00", "qos": 0, "retain": True, "redelivered": True,
        "properties": [("a", "1, 3"), ("b", "2"), ("mqtt.content-type", "text/plain"), ("mqtt.correlation-data", "\\xff")],
    }  # fmt: skip
    assert message.columns == {"device": "d7"}


def test_settings_come_as_text_and_wrong_ones_are_named() -> None:
    made = gateway_from_text("mqtt-in", ["topic=t", "filters=a/#, b/{c}", "qos=0", "url=mqtts://broker:8884"])
    assert made == MqttIn(topic="t", filters=("a/#", "b/{c}"), qos=0, url="mqtts://broker:8884")
    assert MqttOut(url="mqtts://broker").address == ("broker", 8883)
    for wrong in (
        {"qos": 2},
        {"url": "http://broker"},
        {"url": "mqtt://u:secret@broker"},
        {"protocol": "4"},
        {"filters": ()},
    ):
        with pytest.raises(ArgumentInvalid) as raised:
            MqttIn(**wrong)
        assert "secret" not in str(raised.value)
    with pytest.raises(ArgumentInvalid, match="wildcard"):
        MqttOut(template="a/+")
    assert unusable_topic("x" * 70_000)


def test_a_password_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("from a file\n")
    monkeypatch.setenv("BROKER_PASSWORD", "from the environment")
    assert MqttIn(password_file=str(tmp_path / "password")).password() == "from a file"
    assert MqttIn(password_env="BROKER_PASSWORD").password() == "from the environment"
    for wrong in (MqttIn(password_env="NO_SUCH"), MqttIn(password_file="/no/such")):
        with pytest.raises(NotFound):
            wrong.password()


# -- against a broker in a thread -------------------------------------------------------------------------------------


def test_a_message_is_acknowledged_after_its_row_is_durable(log: Log) -> None:
    rows_at_ack: list[int] = []
    broker = FakeBroker(messages=[("a", b"%d" % number, QOS1) for number in range(5)])
    broker.on_ack = lambda _id: rows_at_ack.append(log.read("mqtt").count())
    with broker:
        runner = taken_in(log, broker, 5)
    assert broker.levels == [5]
    assert len(rows_at_ack) == 5
    assert all(rows >= number for number, rows in enumerate(rows_at_ack, start=1))
    assert [row["payload"] for row in log.read("mqtt").rows()] == [b"%d" % number for number in range(5)]
    assert runner.status().counters["received"] == 5


def test_a_message_whose_row_cannot_be_appended_is_not_acknowledged(log: Log) -> None:
    acknowledged: list[int] = []
    with FakeBroker(messages=[("a", b"1", QOS1)], on_ack=acknowledged.append) as broker:
        session = MqttIn(url=broker.url).open(log)
        log.delete("mqtt")
        with pytest.raises(NotFound):
            session.run(threading.Event())
        session.close()
    assert acknowledged == []


def test_payloads_are_columns_and_those_that_do_not_fit_are_dead_letters(log: Log) -> None:
    log.create("states", "device string not null, value double", key="device")
    broker = FakeBroker(
        messages=[
            ("s/d1/x", b'{"value":\n1}', QOS1),
            ("s/d2/x", b"no JSON", QOS1),
            ("s/d3/x", b'{"valu": 1}', QOS1),
            ("s/d4/x", b"", QOS1),
            ("s/d5/x", b'{"value": 5}', QOS1_AGAIN),
        ]
    )
    with broker:
        runner = taken_in(log, broker, 5, topic="states", filters=("s/{device}/x",))
    rows = log.read("states").rows()
    assert [(row["device"], row["value"]) for row in rows] == [("d1", 1.0), ("d5", 5.0)]
    assert rows[0]["_headers"] == {"headwater.subject": b"s/d1/x"}
    assert [row["value"] for row in log.read("states.dlq").rows()] == [b"no JSON", b'{"valu": 1}', b""]
    counters = runner.status().counters
    assert (counters["appended"], counters["rejected"], counters["duplicates"]) == (2, 3, 1)


def test_a_broker_of_the_older_version_is_spoken_to_in_it(log: Log) -> None:
    with FakeBroker(knows=(4,), messages=[("a", b"1", QOS1)]) as broker:
        taken_in(log, broker, 1)
        assert broker.levels == [5, 4]
        with pytest.raises(AddressUnusable, match="Unsupported protocol version"):
            MqttIn(url=broker.url, protocol="5").open(log)


def test_a_broker_that_refuses_says_why_and_no_error_has_the_password(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "s3cret")
    gateway = MqttIn(username="ada", password_env="BROKER_PASSWORD")
    for knows, refusal, why in (((5,), 0x87, "Not authorized"), ((), 0, "protocol")):
        with FakeBroker(knows=knows, refusal=refusal) as broker, pytest.raises(AddressUnusable, match=why) as raised:
            replace(gateway, url=broker.url).open(log)
        assert "s3cret" not in f"{raised.value}{gateway}"
        assert b"s3cret" in broker.connects[0]


def test_rows_are_published_and_those_that_are_refused_are_dead_letters(log: Log) -> None:
    log.create("states", "device string, value double")
    devices = ["d1", None, "a+b", "no", "d2"]
    log.append("states", [{"device": device, "value": 1.5} for device in devices])
    with FakeBroker(reason=lambda topic, _: 0x87 if topic == "s/no" else 0) as broker:
        runner = GatewayRunner(log, MqttOut(topic="states", template="s/{device}", url=broker.url))
        runner.start()
        until(lambda: log.committed("mqtt-out-states", "states") == {0: 5})
        runner.stop()
    assert broker.published == [
        (f"s/{device}", b'{"device":"%s","value":1.5}' % device.encode()) for device in ("d1", "no", "d2")
    ]
    letters = log.read("states.dlq").rows()
    assert sorted(letter["offset"] for letter in letters) == [1, 2, 3]
    assert any("Not authorized" in letter["message"] for letter in letters)
    counters = runner.status().counters
    assert (counters["appended"], counters["rejected"]) == (2, 3)


def test_what_the_broker_has_not_acknowledged_is_published_again(log: Log) -> None:
    log.create("t")
    log.append("t", [(b"k", b"%d" % number) for number in range(3)])
    with FakeBroker(silent_from=2) as broker:  # it takes the third message, and is gone
        session = MqttOut(topic="t", url=broker.url).open(log)
        with pytest.raises(AddressUnusable):
            session.run(threading.Event())
        session.close()
    assert log.committed("mqtt-out-t", "t") == {}
    with FakeBroker() as broker:
        runner = GatewayRunner(log, MqttOut(topic="t", url=broker.url))
        runner.start()
        until(lambda: log.committed("mqtt-out-t", "t") == {0: 3})
        runner.stop()
    assert broker.published == [("t", b"0"), ("t", b"1"), ("t", b"2")]


def test_a_row_that_is_too_large_for_the_broker_is_a_dead_letter_and_stops_no_other(log: Log) -> None:
    log.create("t")
    log.append("t", [(b"k", b"x" * 2_000), (b"k", b"small")])
    with FakeBroker(packet_bytes_max=1_000) as broker:
        runner = GatewayRunner(log, MqttOut(topic="t", url=broker.url))
        runner.start()
        until(lambda: log.committed("mqtt-out-t", "t") == {0: 2})
        runner.stop()
    assert broker.published == [("t", b"small")]
    assert "the broker takes 1000" in log.read("t.dlq").rows()[0]["message"]


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*SSLSocket")  # paho leaves the socket of a failed handshake to the collector
def test_a_connection_by_tls_needs_a_certificate_that_is_trusted(log: Log, tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        key,
    ]
    words += ["-out", certificate, "-days", "2", "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(words, check=True, capture_output=True)
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(certificate, key)
    messages = [("a", b"%d" % number, QOS1) for number in range(200)]
    with FakeBroker(secure=secure, messages=messages) as broker:
        with pytest.raises(AddressUnusable, match="certificate verify failed"):
            MqttIn(url=broker.url).open(log)
        taken_in(log, broker, 200, ca_file=certificate)
        with pytest.raises(AddressUnusable):
            MqttIn(url=broker.url, ca_file=str(tmp_path / "missing")).open(log)
    assert log.read("mqtt").count() == 200


def test_an_address_without_a_broker_is_named(log: Log) -> None:
    log.create("t")
    with pytest.raises(AddressUnusable, match=r"mqtt://127\.0\.0\.1:1"):
        MqttOut(topic="t", url="mqtt://127.0.0.1:1").open(log)


def test_a_template_names_columns_that_exist(log: Log) -> None:
    log.create("states", "device string")
    with FakeBroker() as broker, pytest.raises(ColumnUnknown, match="'room'"):
        MqttOut(topic="states", template="s/{room}", url=broker.url).open(log)


# -- against mosquitto ------------------------------------------------------------------------------------------------


def test_nothing_is_lost_when_the_broker_restarts_in_the_middle(
    log: Log, mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="headwater.gateways")
    runner = GatewayRunner(log, MqttIn(topic="in", filters=("sensors/#",), url=mosquitto.url))
    runner.start()
    first, second, third = ([f"{part}-{number}" for number in range(500)] for part in "abc")
    mosquitto.publish("sensors/x", first)
    until(lambda: log.read("in").count() >= 500)
    mosquitto.stop()
    until(lambda: runner.status().state == "failed")
    mosquitto.start()
    mosquitto.publish("sensors/x", second, qos=2)  # perhaps before the gateway is back: its session is kept
    until(lambda: log.read("in").count() >= 1_000)
    runner.stop()
    mosquitto.publish("sensors/x", third)  # while the gateway is away
    again = GatewayRunner(log, MqttIn(topic="in", filters=("sensors/#",), url=mosquitto.url))
    again.start()
    until(lambda: log.read("in").count() >= 1_500)
    again.stop()
    rows = log.read("in").rows()
    sure = [row["payload"].decode() for row in rows if not row["redelivered"]]
    assert len(sure) == len(set(sure))  # a duplicate is always named
    assert {row["payload"].decode() for row in rows} == {*first, *second, *third}


def test_rows_reach_subscribers_through_a_restart_of_the_broker(
    log: Log, mosquitto: Mosquitto, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="headwater.gateways")
    log.create("out", "device string, value int64")
    log.append("out", [{"device": f"d{number % 3}", "value": number} for number in range(500)])
    words = ["mosquitto_sub", "-p", str(mosquitto.port), "-q", "1", "-c", "-i", "receiver", "-t", "s/+/state", "-v"]
    subprocess.run([*words, "-E"], check=True, timeout=60)  # leaves a session behind
    runner = GatewayRunner(log, MqttOut(topic="out", template="s/{device}/state", url=mosquitto.url))
    runner.start()
    until(lambda: log.committed("mqtt-out-out", "out") == {0: 500})
    mosquitto.stop()
    until(lambda: runner.status().state == "failed")
    log.append("out", [{"device": "d9", "value": number} for number in range(500, 1_000)])
    mosquitto.start()
    until(lambda: log.committed("mqtt-out-out", "out") == {0: 1_000})
    runner.stop()
    taken = (
        subprocess.run([*words, "-C", "1000"], check=True, timeout=60, capture_output=True).stdout.decode().splitlines()
    )
    expected = {
        f's/d{n % 3 if n < 500 else 9}/state {{"device":"d{n % 3 if n < 500 else 9}","value":{n}}}'
        for n in range(1_000)
    }
    assert set(taken) == expected
