"""The adapter that keeps a log on Apache Kafka."""

from headwater.log.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
