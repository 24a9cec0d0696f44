"""MQTT out: rows of a topic as messages of a broker.

The position is committed when the broker has acknowledged every message in front of it: after a crash or a lost connection the last ones
are published again. At QoS 0 there is no acknowledgement, and what the network loses is lost.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headwater.errors import ArgumentInvalid
from headwater.gateways.mqtt import ANSWER_SECONDS_MAX, IN_FLIGHT_MAX, QOS, Broker, Connection
from headwater.gateways.outlet import Outgoing, Outlet, Start
from headwater.gateways.port import Counters, Direction
from headwater.log.port import Log

if TYPE_CHECKING:
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

STEP_SECONDS = 0.1
TOPIC_BYTES_MAX = 65_535
#: The head of a packet, with the lengths in it.
HEAD_BYTES = 10
#: A user property of MQTT 5: the row that a message was made of. A receiver that has seen it has a duplicate.
POSITION_PROPERTY = "headwater.position"


@dataclass(frozen=True, kw_only=True)
class MqttOut(Broker):
    """Rows of a topic as messages of an MQTT broker.

    `template` names the MQTT topic of a row, with columns in braces; by default it is the topic's name. The payload is the row as JSON, or
    the column `value`. The headers of a row are user properties. With `retain`, the tombstone of a key deletes what is retained for it.

    >>> MqttOut(topic="states", template="sensors/{device}/state", retain=True).name
    'mqtt-out-states'
    """

    topic: str = "mqtt"
    template: str = ""
    value: str = ""
    qos: int = 1
    retain: bool = False
    #: Where a gateway begins that has committed no position.
    start: Start = "earliest"

    kind: ClassVar[str] = "mqtt-out"
    direction: ClassVar[Direction] = "out"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.qos not in QOS:
            raise ArgumentInvalid(name="qos", value=self.qos, expected="0, 1 or 2")
        if why := unusable_topic(self.template or self.topic):
            raise ArgumentInvalid(name="template", value=self.template, expected=f"a topic of MQTT; this one {why}")

    @property
    def name(self) -> str:
        return f"mqtt-out-{self.topic}"

    def create_topics(self, log: Log) -> None:
        """Create nothing: the topic is that of other programs."""

    def open(self, log: Log) -> MqttOutSession:
        return MqttOutSession(log, self)


def unusable_topic(topic: str) -> str:
    """Why a broker would not take messages under a topic; empty if it would.

    >>> unusable_topic("sensors/d7"), unusable_topic("sensors/#")
    ('', 'has a wildcard, + or #')
    """
    if not 0 < len(topic.encode()) <= TOPIC_BYTES_MAX:
        return f"must have from 1 to {TOPIC_BYTES_MAX} bytes"
    if "+" in topic or "#" in topic:
        return "has a wildcard, + or #"
    return "has a control character" if "\x00" in topic else ""


class MqttOutSession:
    """A session with a broker; a thread reads rows, publishes them, and commits when all are acknowledged."""

    def __init__(self, log: Log, gateway: MqttOut) -> None:
        self._gateway = gateway
        self.counters = Counters()
        self.address = gateway.url
        self._in_flight: dict[int, Outgoing] = {}
        self._refused: list[tuple[Outgoing, str]] = []
        self._connection = Connection(
            gateway,
            gateway=gateway.name,
            client_id=gateway.client_id_of(log, gateway.name),
            on_publish=self._note,
        )
        try:
            self._outlet = Outlet(
                log,
                gateway.topic,
                template=gateway.template,
                value=gateway.value,
                start=gateway.start,
                rows_max=IN_FLIGHT_MAX,
                gateway=gateway.name,
                counters=self.counters,
            )
        except BaseException:
            self._connection.close()
            raise

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            messages = self._outlet.next(seconds=STEP_SECONDS)
            self._connection.step(0)
            for message in messages:
                if not self._acknowledged(stop, left_max=self._connection.in_flight_max - 1):
                    return
                self._publish(message)
            if not self._acknowledged(stop, left_max=0):
                return  # they are published again
            self._outlet.refuse(self._refused)
            self._refused.clear()
            self._outlet.commit()

    def close(self) -> None:
        self._outlet.close()
        self._connection.close()

    def _acknowledged(self, stop: threading.Event, *, left_max: int) -> bool:
        """Wait until the broker has acknowledged all but so many; False if it does not while the gateway has to stop."""
        deadline = float("inf")
        while len(self._in_flight) > left_max or self._connection.client.want_write():
            if stop.is_set():
                deadline = min(deadline, time.monotonic() + ANSWER_SECONDS_MAX)
            if time.monotonic() > deadline:
                return False
            self._connection.step(STEP_SECONDS)
        return True

    def _publish(self, message: Outgoing) -> None:
        self.counters.add(received=1)
        gateway = self._gateway
        properties = self._properties(message) if self._connection.is_mqtt5 else None
        if why := self._why_not(message, properties):
            self._refused.append((message, why))
            return
        sent = self._connection.client.publish(
            message.subject, message.payload, gateway.qos, gateway.retain, properties=properties
        )
        if gateway.qos:
            self._in_flight[sent.mid] = message
        else:  # there is no acknowledgement
            self.counters.add(appended=1, bytes=len(message.payload))

    def _why_not(self, message: Outgoing, properties: Properties | None) -> str:
        """Why a message cannot be published; empty if it can be."""
        if why := unusable_topic(message.subject):
            return f"the topic {why}"
        size = HEAD_BYTES + len(message.subject.encode()) + len(message.payload)
        size += len(properties.pack()) if properties is not None else 0  # type: ignore[no-untyped-call]
        size_max = self._connection.packet_bytes_max
        return f"it has {size} bytes, and the broker takes {size_max}" if size > size_max else ""

    def _properties(self, message: Outgoing) -> Properties:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        named = [(name, value.decode("utf-8", "backslashreplace")) for name, value in message.headers]
        position = f"{self._gateway.topic}/{message.partition}/{message.offset}"
        properties.UserProperty = [*named, (POSITION_PROPERTY, position)]
        return properties

    def _note(self, id: int, reason: ReasonCode) -> None:
        """The broker has taken a message, or refused it."""
        message = self._in_flight.pop(id, None)
        if message is None:
            return  # of QoS 0: it is on its way
        if reason.is_failure:
            self._refused.append((message, str(reason)))
        else:
            self.counters.add(appended=1, bytes=len(message.payload))
