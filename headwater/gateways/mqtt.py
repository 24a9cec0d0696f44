"""A connection to an MQTT broker: MQTT 5, or 3.1.1 where the broker knows no newer one.

One thread works with it: nothing is read from the network while rows are appended, so that a broker whose messages are not acknowledged
stops at its limit. A lost connection raises; the runner of the gateway opens it again with exponential back-off, and the broker continues
the session under its client id.
"""

from __future__ import annotations

import hashlib
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from headwater.errors import ArgumentInvalid
from headwater.gateways.errors import AddressUnusable
from headwater.gateways.secret import read_secret
from headwater.home import absolute_address
from headwater.log.port import Log
from headwater.optional import require
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

Protocol = Literal["auto", "5", "3.1.1"]
PORTS = {"mqtt": 1883, "mqtts": 8883}
#: How long a broker may take to answer.
ANSWER_SECONDS_MAX = 10.0
#: Messages that are on their way, in each direction.
IN_FLIGHT_MAX = 1_000
QOS = (0, 1, 2)
#: The largest packet that MQTT knows.
PACKET_BYTES_MAX = 256 * 2**20
#: The reason that paho names if a broker answers with the code of MQTT 3.
VERSION_UNKNOWN = "Unsupported protocol version"


@dataclass(frozen=True, kw_only=True)
class Broker:
    """Where a broker is, and how a gateway authenticates itself there.

    A password comes from an environment variable or a file, never from the address.
    """

    url: str = "mqtt://127.0.0.1:1883"
    protocol: Protocol = "auto"
    #: The name of the broker's session for this gateway; by default made of the log and the gateway.
    client_id: str = ""
    username: str = ""
    password_env: str = ""
    password_file: str = ""
    #: Certificates to trust instead of the system's, and a certificate of our own, as files in PEM.
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    #: How long the broker keeps the session, and its messages, while the gateway is away.
    session_expiry: Duration = "7 days"
    keep_alive: Duration = "1 minute"

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            usable = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.path not in ("", "/") or parts.query:
            raise ArgumentInvalid(name="url", value=_shown(self.url), expected="mqtt://HOST:PORT or mqtts://HOST:PORT")
        if "@" in parts.netloc:
            expected = "an address without a user: `username`, and `password_env` or `password_file`"
            raise ArgumentInvalid(name="url", value=_shown(self.url), expected=expected)
        if self.protocol not in get_args(Protocol):
            raise ArgumentInvalid(name="protocol", value=self.protocol, expected=", ".join(get_args(Protocol)))

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or PORTS[parts.scheme]

    def password(self) -> str | None:
        """The password, if there is one."""
        return read_secret(env=self.password_env, file=self.password_file)

    def client_id_of(self, log: Log, name: str) -> str:
        """The client id: two gateways with one id would take the session from each other for ever."""
        if self.client_id:
            return self.client_id
        unique = hashlib.blake2b(f"{absolute_address(log.address)}\n{name}".encode(), digest_size=5).hexdigest()
        return f"headwater-{unique}"


def _shown(url: str) -> str:
    """An address without what stands before its host, for errors."""
    scheme, sign, rest = url.partition("://")
    return scheme + sign + rest.rpartition("@")[2]


class Connection:
    """A connection that is driven by the thread that calls `step`."""

    def __init__(
        self,
        broker: Broker,
        *,
        gateway: str,
        client_id: str,
        on_message: Callable[[MQTTMessage], None] | None = None,
        on_publish: Callable[[int, ReasonCode], None] | None = None,
    ) -> None:
        require("paho.mqtt.client", extra="mqtt")
        self._broker = broker
        self._gateway = gateway
        self._client_id = client_id
        self._on_message = on_message
        self._on_publish = on_publish
        self._why = ""
        #: The broker's answers to CONNECT, and to each filter of SUBSCRIBE.
        self._answers: list[ReasonCode] = []
        self._granted: list[ReasonCode] = []
        #: How many messages may be on their way to the broker, as it says.
        self.in_flight_max = IN_FLIGHT_MAX
        #: The largest packet that it takes; one that is larger would end every connection again.
        self.packet_bytes_max = PACKET_BYTES_MAX
        self.is_mqtt5 = broker.protocol != "3.1.1"
        self.client = self._opened()

    def _opened(self) -> Client:
        try:
            return self._connect()
        except _VersionUnknown as error:
            if self._broker.protocol == "5":
                raise self._unusable(str(error)) from error
        self.is_mqtt5 = False
        return self._connect()

    def _connect(self) -> Client:
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        broker = self._broker
        # Any: paho takes `clean_session` with 3.1.1 only.
        more: dict[str, Any] = {} if self.is_mqtt5 else {"clean_session": False}
        self.client = client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=paho.MQTTv5 if self.is_mqtt5 else paho.MQTTv311,
            manual_ack=True,
            reconnect_on_failure=False,
            **more,
        )
        client.max_inflight_messages = IN_FLIGHT_MAX
        client.connect_timeout = ANSWER_SECONDS_MAX
        client.on_connect = self._note_connect
        client.on_disconnect = self._note_disconnect
        client.on_subscribe = self._note_subscribe
        client.on_message = self._note_message
        client.on_publish = self._note_publish
        password = broker.password()
        if broker.username or password is not None:
            client.username_pw_set(broker.username, password)
        self._answers.clear()
        self._why = ""
        properties = None
        if self.is_mqtt5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = min(round(parse_seconds(broker.session_expiry)), 2**32 - 1)
            properties.ReceiveMaximum = IN_FLIGHT_MAX
        host, port = broker.address
        try:
            if urlsplit(broker.url).scheme == "mqtts":
                client.tls_set(
                    ca_certs=broker.ca_file or None,
                    certfile=broker.certificate_file or None,
                    keyfile=broker.key_file or None,
                )
            keep_alive = max(1, round(parse_seconds(broker.keep_alive)))
            if self.is_mqtt5:
                client.connect(host, port, keep_alive, clean_start=False, properties=properties)
            else:
                client.connect(host, port, keep_alive)
        except OSError as error:
            raise self._unusable(str(error)) from error
        self._await(lambda: bool(self._answers), "the broker does not answer")
        if self._answers[0].is_failure:
            raise self._lost("it refuses the connection")
        return client

    def _note_connect(
        self, _client: Client, _data: object, _flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        self._answers.append(reason)
        self._why = str(reason) if reason.is_failure else ""
        self.in_flight_max = min(IN_FLIGHT_MAX, getattr(properties, "ReceiveMaximum", IN_FLIGHT_MAX))
        self.packet_bytes_max = getattr(properties, "MaximumPacketSize", PACKET_BYTES_MAX)

    def _note_disconnect(
        self, _client: Client, _data: object, _flags: DisconnectFlags, reason: ReasonCode, _properties: object
    ) -> None:
        self._why = self._why or str(reason)

    def _note_subscribe(
        self, _client: Client, _data: object, _id: int, reasons: list[ReasonCode], _properties: object
    ) -> None:
        self._granted = reasons

    def _note_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        if self._on_message is not None:
            self._on_message(message)

    def _note_publish(self, _client: Client, _data: object, id: int, reason: ReasonCode, _properties: object) -> None:
        if self._on_publish is not None:
            self._on_publish(id, reason)

    def subscribe(self, filters: list[str], *, qos: int) -> None:
        """Subscribe, and wait until the broker has granted it."""
        from paho.mqtt.subscribeoptions import SubscribeOptions

        self._granted = []
        if self.is_mqtt5:
            # What is retained is sent for a new subscription, and not each time that the gateway comes back.
            retained = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
            self.client.subscribe([(one, SubscribeOptions(qos=qos, retainHandling=retained)) for one in filters])
        else:
            self.client.subscribe([(one, qos) for one in filters])
        self._await(lambda: bool(self._granted), "the broker does not answer a subscription")
        for one, reason in zip(filters, self._granted, strict=False):
            if reason.is_failure:
                raise self._unusable(f"it refuses the subscription of {one!r}: {reason}")

    def step(self, seconds: float) -> None:
        """Wait so long for the network, then read or write a packet. Raise if the connection is lost."""
        client = self.client
        connection = client.socket()
        if connection is None:
            raise self._lost("the connection is closed")
        # TLS may hold bytes that the socket itself no longer shows.
        pending = getattr(connection, "pending", lambda: 0)()
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN | (select.POLLOUT if client.want_write() else 0))
        ready = poll.poll(0 if pending else seconds * 1_000)
        result = 0
        if pending or any(events & ~select.POLLOUT for _, events in ready):
            result = client.loop_read()
        if result == 0 and client.want_write():
            result = client.loop_write()
        if result == 0:
            result = client.loop_misc()
        if result != 0:
            from paho.mqtt.client import error_string

            raise self._lost(error_string(result).rstrip("."))

    def close(self) -> None:
        """End the connection, but not the session. What is not acknowledged comes again."""
        self.client.disconnect()

    def _await(self, holds: Callable[[], bool], why: str) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not holds():
            if time.monotonic() > deadline:
                self.close()
                raise self._unusable(why)
            self.step(0.1)

    def _lost(self, what: str) -> Exception:
        why = f"{what}: {self._why}" if self._why else what
        if self.is_mqtt5 and (not self._answers or self._why == VERSION_UNKNOWN):
            return _VersionUnknown(why)
        return self._unusable(why)

    def _unusable(self, why: str) -> AddressUnusable:
        return AddressUnusable(gateway=self._gateway, address=self._broker.url, why=why)


class _VersionUnknown(Exception):
    """The broker has ended the connection before it answered, as those do that know no MQTT 5."""
