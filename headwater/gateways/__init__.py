"""Gateways: events in and out of the log without a client library."""

from headwater.gateways.errors import AddressUnusable, SignatureInvalid
from headwater.gateways.mqtt_in import MqttIn
from headwater.gateways.mqtt_out import MqttOut
from headwater.gateways.port import Counters, Gateway, GatewaySession, GatewayStatus
from headwater.gateways.runner import GatewayRunner
from headwater.gateways.statsd import StatsD
from headwater.gateways.syslog import Syslog
from headwater.gateways.tail import Tail
from headwater.gateways.udp_in import UdpIn
from headwater.gateways.udp_out import UdpOut
from headwater.gateways.udp_publisher import UdpPublisher
from headwater.gateways.webhook_in import WebhookIn
from headwater.gateways.webhook_out import WebhookOut
from headwater.gateways.zeromq_in import ZeroMqIn
from headwater.gateways.zeromq_out import ZeroMqOut

__all__ = [
    "AddressUnusable",
    "Counters",
    "Gateway",
    "GatewayRunner",
    "GatewaySession",
    "GatewayStatus",
    "MqttIn",
    "MqttOut",
    "SignatureInvalid",
    "StatsD",
    "Syslog",
    "Tail",
    "UdpIn",
    "UdpOut",
    "UdpPublisher",
    "WebhookIn",
    "WebhookOut",
    "ZeroMqIn",
    "ZeroMqOut",
]
