"""How a log and its server do, as Prometheus reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from headwater.apps.metrics import Metric, metrics
from headwater.errors import NotFound
from headwater.log import Log
from headwater.services.host import Host


def scrape(service: Host, *, sees: Callable[[str], bool]) -> str:
    """The text of a scrape: topics that the caller sees, their groups, and the server itself."""
    text = metrics(service.runner.statuses() if service.runner else (), service.log, sees=sees)
    streams = Metric(name="headwater_server_streams", help="Tails that are open.")
    refused = Metric(
        name="headwater_server_refused_anonymous_total", help="Refusals of callers without a name.", kind="counter"
    )
    for status, count in sorted(service.audit.unrecorded.items() if service.audit else ()):
        refused.add(count, status=str(status))
    own = [streams, refused, *_of_alerts(service), *_of_kafka(service, sees)]
    own[0].add(service.streams)
    return text + "\n".join(metric.text() for metric in own if metric.samples) + "\n"


def _of_alerts(service: Host) -> Iterable[Metric]:
    firing = Metric(name="headwater_alert_firing", help="Subjects of an alert rule that fire.")
    unknown = Metric(name="headwater_alert_unknown", help="1 for an alert rule that cannot be evaluated.")
    waiting = Metric(name="headwater_alert_deliveries_waiting", help="Notifications that are not delivered yet.")
    for one in service.watcher.states():
        unknown.add(one.error is not None, rule=one.name)
        if one.rule is not None:
            firing.add(sum(each.state == "firing" for each in one.subjects), rule=one.name, severity=one.rule.severity)
    if unknown.samples:
        waiting.add(len(service.watcher.store.outbox.open))
    return firing, unknown, waiting


def _of_kafka(service: Host, sees: Callable[[str], bool]) -> Iterable[Metric]:
    """The names that dashboards for Kafka know, behind a switch: two families of one number would be confusing."""
    return _lag(service.log, sees) if service.settings.kafka_names else ()


def _lag(log: Log, sees: Callable[[str], bool]) -> Iterable[Metric]:
    partitions = Metric(name="kafka_topic_partitions", help="Partitions of a topic.")
    ends = Metric(name="kafka_topic_partition_current_offset", help="The first offset not yet used.")
    starts = Metric(name="kafka_topic_partition_oldest_offset", help="The oldest offset that is kept.")
    for topic in filter(sees, log.topics()):
        with contextlib.suppress(NotFound):  # deleted while we looked
            found = log.describe(topic).partitions
            partitions.add(len(found), topic=topic)
            for one in found:
                ends.add(one.offset_next, topic=topic, partition=str(one.partition))
                starts.add(one.offset_start, topic=topic, partition=str(one.partition))
    lag = Metric(name="kafka_consumergroup_lag", help="Rows that a group has not committed.")
    current = Metric(name="kafka_consumergroup_current_offset", help="What a group has committed.")
    seconds = Metric(name="kafka_consumergroup_group_lag_seconds", help="How long the oldest such row has waited.")
    for group in log.groups.names():
        with contextlib.suppress(NotFound):
            for behind in (one for one in log.groups.lag(group) if sees(one.topic)):
                where = {"topic": behind.topic, "partition": str(behind.partition)}
                lag.add(behind.rows, consumergroup=group, **where)
                current.add(behind.committed, consumergroup=group, **where)
                seconds.add(behind.seconds, group=group, **where)
    return partitions, ends, starts, lag, current, seconds
