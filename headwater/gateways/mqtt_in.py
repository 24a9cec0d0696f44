"""MQTT in: messages of a broker as rows.

A message is acknowledged to the broker when its row is durable: what was not acknowledged comes again, so that nothing is lost at QoS 1,
also while the gateway is away. A message that comes again after a lost connection is a row with `redelivered`; the broker alone knows
whether it is a duplicate. What was published with QoS 2 is taken with QoS 1, because at QoS 2 a broker forgets a message before its row
is durable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.gateways.inlet import Inlet, Message, create_topic
from headwater.gateways.mqtt import IN_FLIGHT_MAX, Broker, Connection
from headwater.gateways.port import Counters, Direction
from headwater.log.port import Log
from headwater.schema import parse_schema

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage

MQTT_SCHEMA: pa.Schema = parse_schema(
    "at timestamp not null, topic string not null, payload binary not null, qos int8 not null, retain bool not null, "
    "redelivered bool not null, properties map<string, string>"
)
#: How long a stop may wait for the network.
STEP_SECONDS = 0.1
#: Properties of a message besides those of its publisher, and what the row calls them.
PROPERTIES = {
    "ContentType": "mqtt.content-type",
    "ResponseTopic": "mqtt.response-topic",
    "CorrelationData": "mqtt.correlation-data",
    "MessageExpiryInterval": "mqtt.message-expiry",
}
logger = logging.getLogger("headwater.gateways")


@dataclass(frozen=True, kw_only=True)
class MqttIn(Broker):
    """Messages of an MQTT broker as rows of a topic.

    A level of a filter may have a name: `sensors/{device}/state` subscribes to `sensors/+/state`, and in a topic with columns of its own
    the level is the column `device`. The broker keeps the subscriptions of a session: to take fewer topics, choose another `client_id`.

    As many messages are appended together as the broker sends without an acknowledgement: mosquitto's default of 20 makes an append of
    20 rows. With its `max_inflight_messages 1000` they are 1,000.

    >>> MqttIn(topic="states", filters=("sensors/{device}/state",), url="mqtt://127.0.0.1:1883").name
    'mqtt-in-states'
    """

    topic: str = "mqtt"
    filters: tuple[str, ...] = ("#",)
    qos: int = 1

    kind: ClassVar[str] = "mqtt-in"
    direction: ClassVar[Direction] = "in"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.qos not in (0, 1):
            expected = "0 or 1: at QoS 2 a broker forgets a message before its row is durable"
            raise ArgumentInvalid(name="qos", value=self.qos, expected=expected)
        if not self.filters:
            raise ArgumentInvalid(name="filters", value=self.filters, expected="at least one filter, such as sensors/#")
        for text in self.filters:
            Filter(text).check()

    @property
    def name(self) -> str:
        return f"mqtt-in-{self.topic}"

    def create_topics(self, log: Log) -> None:
        create_topic(log, self.topic, MQTT_SCHEMA)

    def open(self, log: Log) -> MqttInSession:
        return MqttInSession(log, self)


@dataclass(frozen=True)
class Filter:
    """A filter of MQTT whose levels may have names.

    >>> named = Filter("sensors/{device}/#")
    >>> named.subscription, named.columns_of("sensors/d7/state/x"), named.columns_of("lamps/d7")
    ('sensors/+/#', {'device': 'd7'}, None)
    """

    text: str

    @property
    def subscription(self) -> str:
        return "/".join("+" if _name_of(level) else level for level in self.text.split("/"))

    def check(self) -> None:
        """Raise unless a broker would take it."""
        levels = self.subscription.split("/")
        wild = [level for level in levels if ("+" in level or "#" in level) and level not in ("+", "#")]
        if not self.text or wild or "#" in levels[:-1] or any(sign in self.text for sign in "\x00\n"):
            expected = "levels with / between, + or {name} for any level, # for all at the end"
            raise ArgumentInvalid(name="filters", value=self.text, expected=expected)

    def columns_of(self, topic: str) -> dict[str, str] | None:
        """The named levels of a topic; None if the filter does not match it."""
        wanted, levels = self.text.split("/"), topic.split("/")
        if wanted[0] == "$share":  # the name of the group, and then the filter itself
            wanted = wanted[2:]
        if wanted[-1] == "#":
            wanted = wanted[:-1]
            levels = levels[: len(wanted)]
        if len(wanted) != len(levels):
            return None
        found = {}
        for one, level in zip(wanted, levels, strict=True):
            if name := _name_of(one):
                found[name] = level
            elif one not in ("+", level):
                return None
        return found


def _name_of(level: str) -> str:
    return level[1:-1] if len(level) > 2 and level[0] == "{" and level[-1] == "}" else ""


def message_of(message: MQTTMessage, filters: Sequence[Filter], *, now_us: int) -> Message:
    """A message of MQTT as a row, and what it says besides its payload."""
    topic, payload = message.topic, bytes(message.payload)
    named = next((columns for one in filters if (columns := one.columns_of(topic)) is not None), {})
    row = {
        "at": now_us,
        "topic": topic,
        "payload": payload,
        "qos": message.qos,
        "retain": message.retain,
        "redelivered": message.dup,
        "properties": list(_properties_of(message).items()) or None,
    }
    return Message(subject=topic, payload=payload, row=row, columns=named)


def _properties_of(message: MQTTMessage) -> Mapping[str, str]:
    """The properties of a message; MQTT 3.1.1 has none. A name that stands several times has all its values, with commas between."""
    found: dict[str, str] = {}
    properties = message.properties
    for name, value in getattr(properties, "UserProperty", ()):
        found[name] = f"{found[name]}, {value}" if name in found else value
    for of_mqtt, name in PROPERTIES.items():
        value = getattr(properties, of_mqtt, None)
        if value is not None:
            found[name] = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return found


class MqttInSession:
    """A session with a broker; a thread reads, appends, and then acknowledges."""

    def __init__(self, log: Log, gateway: MqttIn) -> None:
        self._log = log
        self._filters = [Filter(text) for text in gateway.filters]
        self.counters = Counters()
        self.address = gateway.url
        self._inlet = Inlet(log, gateway.topic, MQTT_SCHEMA, gateway=gateway.name, counters=self.counters)
        self._waiting: list[MQTTMessage] = []
        self._connection = Connection(
            gateway,
            gateway=gateway.name,
            client_id=gateway.client_id_of(log, gateway.name),
            on_message=self._receive,
        )
        self._connection.subscribe([one.subscription for one in self._filters], qos=gateway.qos)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._connection.step(STEP_SECONDS)
            # All that has come already is appended together.
            count = -1
            while count < len(self._waiting) < IN_FLIGHT_MAX:
                count = len(self._waiting)
                self._connection.step(0)
            self._append()
        self._append()

    def close(self) -> None:
        self._connection.close()

    def _receive(self, message: MQTTMessage) -> None:
        self._waiting.append(message)
        self.counters.add(received=1, bytes=len(message.payload), duplicates=int(message.dup))

    def _append(self) -> None:
        """Append what waits, and acknowledge it then: the order is what nothing is lost by."""
        if not self._waiting:
            return
        received, self._waiting = self._waiting, []
        now_us = self._log.clock.now_us()
        self._inlet.append([message_of(message, self._filters, now_us=now_us) for message in received])
        for message in received:
            self._connection.client.ack(message.mid, message.qos)
