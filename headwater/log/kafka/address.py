"""The address of a log on Kafka: `kafka://HOST:PORT[,HOST:PORT…][/NAMESPACE]`, and how a client connects to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headwater.config import Config
from headwater.errors import ArgumentInvalid

SCHEME = "kafka://"
_BROKER = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
PORT = 9092


@dataclass(frozen=True, kw_only=True)
class Address:
    """The brokers to ask first, and the namespace: what the names of all topics and groups of this log begin with.

    >>> Address.parse("kafka://one,two:9093/shop")
    Address(bootstrap='one:9092,two:9093', namespace='shop')
    >>> Address.parse("kafka://one").topic("orders"), Address.parse("kafka://one/shop").topic("orders")
    ('orders', 'shop.orders')
    """

    bootstrap: str
    namespace: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        brokers, _, namespace = text.removeprefix(SCHEME).rstrip("/").partition("/")
        matches = [_BROKER.fullmatch(broker) for broker in brokers.split(",")]
        if not all(matches) or not (namespace == "" or _NAMESPACE.fullmatch(namespace)):
            raise ArgumentInvalid(
                name="log",
                value=text,
                expected="kafka://HOST:PORT, several HOST:PORT with commas, and /NAMESPACE or none",
            )
        bootstrap = ",".join(f"{match[1]}{match[2] or f':{PORT}'}" for match in matches if match)
        return cls(bootstrap=bootstrap, namespace=namespace)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap}" + (f"/{self.namespace}" if self.namespace else "")

    @property
    def prefix(self) -> str:
        """What the names of Kafka's topics, groups and transactional ids begin with."""
        return f"{self.namespace}." if self.namespace else ""

    def topic(self, name: str) -> str:
        """The name of a topic on Kafka."""
        return f"{self.prefix}{name}"

    def name(self, topic: str) -> str | None:
        """The name of a topic of Kafka in this log; None if it is not in the namespace."""
        return topic[len(self.prefix) :] if topic.startswith(self.prefix) and topic != self.prefix else None


# Any: librdkafka's settings are texts, numbers and functions.
def client_settings(address: Address, config: Config) -> dict[str, Any]:
    """What every client of librdkafka gets: where the brokers are, and who asks."""
    found: dict[str, Any] = {
        "bootstrap.servers": address.bootstrap,
        "client.id": "headwater",
        "socket.timeout.ms": round(config.kafka_seconds_max * 1000),
        "socket.connection.setup.timeout.ms": round(min(config.kafka_seconds_max, 10.0) * 1000),
        "reconnect.backoff.max.ms": 2_000,
        "log_level": 0,
    }
    is_tls = config.kafka_tls or config.kafka_ca_file is not None or config.kafka_certificate_file is not None
    if config.kafka_user is not None:
        found |= {
            "security.protocol": "SASL_SSL" if is_tls else "SASL_PLAINTEXT",
            "sasl.mechanism": config.kafka_mechanism,
            "sasl.username": config.kafka_user,
            "sasl.password": config.kafka_password or "",
        }
    elif is_tls:
        found["security.protocol"] = "SSL"
    for name, value in (
        ("ssl.ca.location", config.kafka_ca_file),
        ("ssl.certificate.location", config.kafka_certificate_file),
        ("ssl.key.location", config.kafka_key_file),
    ):
        if value is not None:
            found[name] = str(value)
    return found
