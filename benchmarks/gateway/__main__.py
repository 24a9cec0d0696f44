"""`python -m benchmarks.gateway`: each gateway in a process of its own, with senders or receivers in others; beside plain consumers, in one run.

    make bench NAME=gateway ARGS="--quick"    small sizes, to see that it runs

A figure counts events from the first that is sent to the last that is durable. p50 and p99 are, at 1,000 events a second, the time from
the send of an event until a consumer of the log has its row; of HTTP, the time of a request while 32 connections are busy. Server-sent events are in
the benchmark `server`.
"""

from __future__ import annotations

from benchmarks.gateway.brokers import mqtt_in, zeromq_in
from benchmarks.gateway.datagrams import statsd, syslog_tcp, syslog_udp, udp
from benchmarks.gateway.files import tail
from benchmarks.gateway.requests import http_batch, http_one, webhook_in
from benchmarks.gateway.webhooks_out import webhook_out
from benchmarks.harness import main

PARTS = {
    "statsd": statsd,
    "syslog.udp": syslog_udp,
    "syslog.tcp": syslog_tcp,
    "udp": udp,
    "tail": tail,
    "webhook_in": webhook_in,
    "webhook_out": webhook_out,
    "http.one": http_one,
    "http.batch": http_batch,
    "mqtt_in": mqtt_in,
    "zeromq_in": zeromq_in,
}

if __name__ == "__main__":
    main("gateway", PARTS)
