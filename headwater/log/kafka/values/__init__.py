"""How rows are written as the values of Kafka's messages: one codec per format, with one protocol."""

from headwater.log.kafka.values.formats import FORMATS, Format, values_of
from headwater.log.kafka.values.port import Decoded, Incoming, Messages, Outgoing, Values
from headwater.log.kafka.values.registry import Registry, RegistryRefused, RegistryUnavailable

__all__ = [
    "FORMATS",
    "Decoded",
    "Format",
    "Incoming",
    "Messages",
    "Outgoing",
    "Registry",
    "RegistryRefused",
    "RegistryUnavailable",
    "Values",
    "values_of",
]
