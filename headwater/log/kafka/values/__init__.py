"""How rows are written as the values of Kafka's messages: one codec per format, with one protocol."""

from headwater.log.kafka.values.port import Decoded, Incoming, Outgoing, Values

__all__ = ["Decoded", "Incoming", "Outgoing", "Values"]
