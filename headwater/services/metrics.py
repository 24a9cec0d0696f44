"""Metrics of a log and its server, as Prometheus reads them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import get_args

from headwater.apps.metrics import Metric, metrics
from headwater.errors import NotFound
from headwater.gateways.report import State
from headwater.services.callers import EVERY
from headwater.services.captures import Captures
from headwater.services.gateways import Gateways
from headwater.services.queries import Queries
from headwater.services.queues import Queues
from headwater.services.route import Service, route

#: The counters of a gateway, and what they say.
_COUNTERS = {
    "received": "Datagrams, requests, lines or messages received.",
    "appended": "Rows appended; of a gateway out, messages that the receiver has taken.",
    "rejected": "Events answered with an error, or dead letters.",
    "duplicates": "Events that came more than once and were appended once.",
    "lost": "Events that are known to be gone.",
    "bytes": "Bytes received or sent.",
}

#: The counts of each group of a queue, and what they say.
_QUEUE_GAUGES = {
    "depth": "Messages that wait for a worker.",
    "oldest_seconds": "Age of the oldest message that waits.",
    "in_flight": "Messages that workers hold.",
    "scheduled": "Messages that wait for their time.",
    "blocked": "Messages that wait for an earlier one of their key.",
    "consumers": "Consumers that have taken messages and still run.",
    "paused": "1 if the group is paused.",
}
_QUEUE_COUNTERS = {
    "delivered": "Messages delivered, each time.",
    "redelivered": "Messages delivered again.",
    "acknowledged": "Messages acknowledged.",
    "dead": "Messages that became dead letters.",
    "expired": "Messages whose time to live ended, or that a length limit dropped.",
}


class Metrics(Service):
    """The metrics of topics that the caller sees, of their groups, of the queries of all apps, and of the server."""

    @route("GET", "/metrics", scope="read:*", media="text/plain; version=0.0.4")
    def scrape(self) -> str:
        """Read all metrics in the text format of Prometheus."""
        host = self.host
        text = metrics(Queries(host, self.caller).statuses().queries, host.log, sees=self.caller.sees)
        streams = Metric(name="headwater_server_streams", help="Tails that are open.")
        streams.add(host.streams)
        refused = Metric(
            name="headwater_server_refused_anonymous_total", help="Refusals of anonymous callers.", kind="counter"
        )
        for status, count in sorted(host.audit.unrecorded.items() if host.audit else ()):
            refused.add(count, status=str(status))
        own = [
            streams,
            refused,
            *self._captures(),
            *self._gateways(),
            *self._queues(),
            *self._alerts(),
            *(self._kafka() if host.settings.kafka_names else ()),
        ]
        return text + "\n".join(metric.text() for metric in own if metric.samples) + "\n"

    def _captures(self) -> Iterable[Metric]:
        if not self.caller.may("read", EVERY):  # captures belong to the whole log
            return []
        found = Captures(self.host, self.caller).list_captures()
        running = Metric(name="headwater_capture_running", help="1 if a process runs the capture.")
        delay = Metric(name="headwater_capture_delay_seconds", help="Age of the oldest change that is not captured.")
        pending = Metric(name="headwater_capture_pending", help="Changes or bytes that are not captured.")
        retained = Metric(name="headwater_capture_retained_bytes", help="What the database keeps for the capture.")
        danger = Metric(name="headwater_capture_at_risk", help="1 if the database may soon delete uncaptured changes.")
        rows = Metric(name="headwater_capture_rows_total", help="Rows captured.", kind="counter")
        rate = Metric(name="headwater_capture_rows_per_second", help="Rows captured per second, by table.")
        share = Metric(name="headwater_capture_snapshot_share", help="How much of a snapshot is read, from 0 to 1.")
        for one in found:
            running.add(one.running, capture=one.name)
            delay.add(one.delay_seconds, capture=one.name)
            pending.add(one.pending, capture=one.name, unit=one.pending_unit)
            retained.add(one.retained_bytes, capture=one.name)
            danger.add(bool(one.danger), capture=one.name)
            rows.add(one.rows, capture=one.name)
            for table in one.tables:
                rate.add(table.rows_per_second, capture=one.name, table=table.table)
                share.add(table.snapshot_share, capture=one.name, table=table.table)
        return running, delay, pending, retained, danger, rows, rate, share

    def _gateways(self) -> Iterable[Metric]:
        if not self.caller.may("read", EVERY):  # gateways belong to the whole log
            return []
        state = Metric(name="headwater_gateway_state", help="1 for the state of the gateway, 0 for the others.")
        counters = {
            name: Metric(name=f"headwater_gateway_{name}_total", help=help, kind="counter")
            for name, help in _COUNTERS.items()
        }
        restarts = Metric(name="headwater_gateway_restarts_total", help="Restarts after a failure.", kind="counter")
        reported = Metric(
            name="headwater_gateway_reported_timestamp_seconds", help="When the gateway's process last reported."
        )
        for one in Gateways(self.host, self.caller).list_gateways():
            labels = {"gateway": one.name, "kind": one.kind}
            for each in get_args(State):
                state.add(each == one.state, **labels, state=each)
            for name, metric in counters.items():
                metric.add(getattr(one, name), **labels)
            restarts.add(one.restarts, **labels)
            reported.add(one.at_us / 1e6, **labels)
        return state, *counters.values(), restarts, reported

    def _queues(self) -> Iterable[Metric]:
        gauges = {name: Metric(name=f"headwater_queue_{name}", help=help) for name, help in _QUEUE_GAUGES.items()}
        counters = {
            name: Metric(name=f"headwater_queue_{name}_total", help=help, kind="counter")
            for name, help in _QUEUE_COUNTERS.items()
        }
        for queue in Queues(self.host, self.caller).list_queues():
            for group in queue.groups:
                for name, metric in {**gauges, **counters}.items():
                    metric.add(getattr(group.stats, name), queue=queue.name, group=group.name)
        return *gauges.values(), *counters.values()

    def _alerts(self) -> Iterable[Metric]:
        firing = Metric(name="headwater_alert_firing", help="Subjects of an alert rule that fire.")
        unknown = Metric(name="headwater_alert_unknown", help="1 for an alert rule that cannot be evaluated.")
        waiting = Metric(name="headwater_alert_deliveries_waiting", help="Notifications that are not delivered yet.")
        for one in self.host.watcher.states():
            unknown.add(one.error is not None, rule=one.name)
            if one.rule is not None:
                count = sum(each.state == "firing" for each in one.subjects)
                firing.add(count, rule=one.name, severity=one.rule.severity)
        if unknown.samples:
            waiting.add(len(self.host.watcher.store.outbox.open))
        return firing, unknown, waiting

    def _kafka(self) -> Iterable[Metric]:
        """Lag under the names of Kafka's exporters. Behind a setting: two families of one number would be confusing."""
        log, sees = self.log, self.caller.sees
        partitions = Metric(name="kafka_topic_partitions", help="Partitions of a topic.")
        ends = Metric(name="kafka_topic_partition_current_offset", help="The first offset not yet used.")
        starts = Metric(name="kafka_topic_partition_oldest_offset", help="The oldest offset that is kept.")
        for topic in filter(sees, log.topics()):
            with contextlib.suppress(NotFound):  # deleted meanwhile
                described = log.describe(topic).partitions
                partitions.add(len(described), topic=topic)
                for one in described:
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
